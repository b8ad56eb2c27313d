"""Transitions of masked and score-based diffusion: coins for every row."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {
    "mdlm": Preset(
        "a coin for every mask, at the pace of a noise schedule; what is written stays",
        "MDLM 2406.07524",
        "ancestral",
        kernel="mdlm",
        cost="a call only in steps that reveal something, and one more for what is left",
        choose="to sample a masked diffusion model exactly as its theory says; more steps, less is written at once",
        source="kuleshov-group/mdlm c112c52, the ddpm, ddpm_cache (default) and analytic predictors, which are one "
        "distribution",
        verified="mdlm_ancestral (cached, uncached) and mdlm_analytic transitions to 1e-5; 20,000 draws against them, "
        "chi-square",
        departures="the reference stops calling only while nothing changed in the whole batch; its draw's 1e-10 in the "
        "logarithms and its float32 are not imitated",
    ),
    "mdlm-nucleus": Preset(
        "mdlm with the strict nucleus of 0.9, the MDLM row of the ReMDM paper",
        "MDLM 2406.07524, ReMDM 2503.00307",
        "ancestral",
        kernel="mdlm",
        parameters={"top_p": 0.9, "nucleus": "drop"},
        cost="as mdlm, and a sort of the vocabulary at revealed rows",
        choose="the baseline of every table that follows the ReMDM paper's protocol",
        source="kuleshov-group/remdm f830d65, scripts for MDLM",
        verified="mdlm_nucleus transitions to 1e-5; 20,000 draws against them, chi-square",
        departures="none known beyond those of mdlm",
    ),
    "sedd-analytic": Preset(
        "coins weighted by scores, exact in the noise (Tweedie tau-leaping)",
        "SEDD 2310.16834",
        "ancestral",
        kernel="sedd",
        parameters={"predictor": "analytic"},
        cost="a call only in steps that reveal something, one more for what is left; raw scores: a call in every step "
        "and the vocabulary at every masked row",
        choose="for networks that give scores; with probabilities it is mdlm, but for drawing what is left",
        source="louaaron/Score-Entropy-Discrete-Diffusion 0605786, AnalyticPredictor and Denoiser",
        verified="sedd_analytic transitions to 1e-5; 20,000 draws against them and against the definition in closed "
        "form on a timed toy, chi-square",
        departures="the reference calls the network in every step; its draw's 1e-10 in the logarithms is not imitated; "
        "the reference's command line takes 1024 steps",
    ),
    "sedd-euler": Preset(
        "coins weighted by scores, one Euler step of the reverse rate",
        "SEDD 2310.16834",
        "ancestral",
        kernel="sedd",
        parameters={"predictor": "euler"},
        cost="a call only in steps that reveal something, one more for what is left; raw scores: a call in every step "
        "and the vocabulary at every masked row",
        choose="to compare with SEDD's default; with log-linear noise the same distribution as sedd-analytic",
        source="louaaron/Score-Entropy-Discrete-Diffusion 0605786, EulerPredictor and Denoiser",
        verified="sedd_euler transitions to 1e-5; 20,000 draws against them and against the definition in closed form "
        "on a timed toy, chi-square",
        departures="the reference calls the network in every step; its draw's 1e-10 in the logarithms is not imitated",
    ),
}
