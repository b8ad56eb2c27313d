"""Rules that take written tokens back."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

# The ReMDM paper draws everything but SEDD with this nucleus, which drops the token that crosses it.
_NUCLEUS = {"top_p": 0.9, "nucleus": "drop"}

PRESETS: dict[str, Preset] = {
    "dfm": Preset(
        "coins reveal too much and mask the surplus again: the corrector of flow matching",
        "Gat et al. 2407.15595, as run in ReMDM 2503.00307",
        "revising",
        kernel="dfm",
        parameters=_NUCLEUS,
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="to compare with the corrector of the ReMDM paper; 133 steps where 128 are asked for",
        source="kuleshov-group/remdm f830d65, _dfm_caching_update",
        verified="dfm transitions to 1e-5; 20,000 draws against them, chi-square; beta 0 against mdlm",
        departures="the reference crashes without a nucleus, this does not",
    ),
    "forward_backward": Preset(
        "a step back and a step forward at once: reveals twice as fast and masks half of it again",
        "Campbell et al. 2205.14987, as run in ReMDM 2503.00307",
        "revising",
        kernel="forward_backward",
        parameters=_NUCLEUS,
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="to compare with the corrector of the ReMDM paper",
        source="kuleshov-group/remdm f830d65, the sampler fb",
        verified="forward_backward transitions to 1e-5; 20,000 draws against them, chi-square; "
        "the last step reveals all, as the reference's draw does",
        departures="none known; its second step masks all again that the first revealed, as the reference does",
    ),
    "remdm": Preset(
        "coins reveal, and coins mask written tokens again, at a capped rate",
        "ReMDM 2503.00307",
        "revising",
        kernel="remdm",
        parameters=_NUCLEUS,
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="when written tokens should stay open to change; the same as remdm-cap",
        source="kuleshov-group/remdm f830d65, remdm-cap with eta 0.04",
        verified="remdm_cap transitions to 1e-5; 20,000 draws against them, chi-square; eta 0 against mdlm",
        departures="the float32 of the reference's clock is not imitated",
    ),
    "remdm-cap": Preset(
        "remdm at the rate min(eta, sigma_max)",
        "ReMDM 2503.00307",
        "revising",
        kernel="remdm",
        parameters=_NUCLEUS | {"rate": "cap", "eta": 0.04},
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="fewer steps than tokens; with more steps than tokens eta 0.008",
        source="kuleshov-group/remdm f830d65, remdm-cap",
        verified="remdm_cap transitions to 1e-5; 20,000 draws against them, chi-square; eta 0 against mdlm",
        departures="the float32 of the reference's clock is not imitated",
    ),
    "remdm-conf": Preset(
        "remdm that masks again what was unsure when it was revealed",
        "ReMDM 2503.00307",
        "revising",
        kernel="remdm",
        parameters=_NUCLEUS | {"rate": "conf"},
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="about one token is taken back per step at most, the least sure most often",
        source="kuleshov-group/remdm f830d65, remdm-conf",
        verified="remdm_conf transitions to 1e-5; 20,000 draws against them, chi-square; eta 0 against mdlm",
        departures="confidences are kept in float32; the reference's bfloat16 buffer rejects its own probabilities",
    ),
    "remdm-loop": Preset(
        "fills most of the rows, replaces tokens for a while, fills the rest",
        "ReMDM 2503.00307",
        "revising",
        kernel="remdm-loop",
        parameters=_NUCLEUS | {"eta": 0.055},
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="fewer steps than tokens; with more steps than tokens eta 0.02",
        source="kuleshov-group/remdm f830d65, remdm-loop",
        verified="remdm_loop transitions to 1e-5; 20,000 draws against them, chi-square; eta 0 never takes back",
        departures="the float32 of the reference's clock is not imitated; a timed network is told the "
        "share that is masked",
    ),
    "remdm-rescale": Preset(
        "remdm at the rate eta sigma_max",
        "ReMDM 2503.00307",
        "revising",
        kernel="remdm",
        parameters=_NUCLEUS | {"rate": "rescale", "eta": 0.045},
        cost="reads revealed rows only; a call only in steps that reveal something, and one more for what is left",
        choose="fewer steps than tokens; with more steps than tokens eta 0.015",
        source="kuleshov-group/remdm f830d65, remdm-rescale",
        verified="remdm_rescale transitions to 1e-5; 20,000 draws against them, chi-square; eta 0 against mdlm",
        departures="the float32 of the reference's clock is not imitated",
    ),
    "p2": Preset(
        "every step plans anew which rows are masked, the written ones included",
        "P2 2502.03540",
        "revising",
        kernel="p2",
        cost="reads the written rows too; with a denoiser as planner a second forward",
        choose="when early tokens are often wrong; eta 0 never takes back, larger eta takes back more",
        source="the authors' package path_planning, p2_sampling (a stored copy); Open-dLLM's p2 is eta 1",
        verified="golden p2 (eta 0, 0.5, 1, 2) and p2_open_dllm (same position, shifted), step by step; eta 0 against "
        "confidence",
        departures="the package's default temperature is 1 and it scores with noised logits: here the score is the "
        "model's own log-probability, whatever the temperature; the paper puts eta on the masked rows' term, here it "
        "is on the written rows as in the package; an external planner sees the prompt and the written tokens, the "
        "package's sees a fresh proposal in their places too; floor(F (1 - kappa)) is exact where the package's "
        "float32 rounds",
    ),
}
