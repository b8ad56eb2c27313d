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
    "forward-backward": Preset(
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
        kernel="remdm_loop",
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
    "llada2-edit": Preset(
        "rows above a threshold or as many as are due, and written tokens give way to surer ones",
        "LLaDA2.1",
        "revising",
        ranking="confidence",
        budget="quota",
        reviser="edit",
        parameters={"threshold": 0.7, "editing_threshold": 0.5, "max_post_steps": 16},
        cost="also reads the written rows of the block",
        choose='with models trained to correct themselves (LLaDA2.1), in blocks; these are its "quality" settings, '
        'threshold=0.5 without edits its "speed" ones',
        source="huggingface/diffusers 58eb52c, BlockRefinementScheduler",
        verified="block_refinement/threshold_0p7_with_editing_0p6 step by step; threshold 1 against quota",
        departures="a block that is full is left as soon as a step edits nothing, as in the reference",
    ),
    "loop": Preset(
        "confidence until most is written, then takes the least certain token back and writes another, again and again",
        "PC-Sampler 2508.13021, where it stands for ReMDM",
        "revising",
        ranking="confidence",
        reviser="loop",
        cost="reads the written rows of the block while it loops; two more forwards for every round",
        choose="to compare with what PC-Sampler's tables call ReMDM; remask does the same work in half the forwards",
        source="NEUIR/PC-Sampler 8b106b0, generate_with_remdm",
        verified="pcs_loop_remask, both cases step by step; no rounds against confidence",
        departures="PC-Sampler's own scripts set no rounds, which is plain confidence",
    ),
    "loop-once": Preset(
        "the loop with one forward a round, taking back what was least certain when it was written",
        "ReMDM 2503.00307, appendix D.4",
        "revising",
        ranking="confidence",
        reviser="loop",
        parameters={"certainty": "written", "at_once": True, "temperature": 1.0},
        cost="one more forward for every round",
        choose="ReMDM on a language model: short answers, 32 tokens in the paper",
        source="the paper's appendix; no code",
        verified="known answers and limits; no recorded trace",
        departures="that a round is one forward is our reading of the appendix",
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
    "remask": Preset(
        "confidence that takes its least certain token back at every step and writes one more",
        "ReMDM 2503.00307, with a count in place of its schedule",
        "revising",
        ranking="confidence",
        reviser="least_certain",
        parameters={"certainty": "written"},
        cost="nothing more",
        choose="one token a step: a point or two above confidence on both models measured, for no work "
        "(docs/rules.md); ReMDM's idea at a fixed number of tokens per step",
        source="the paper's confidence schedule; the count is ours",
        verified="known answers, limits and invariants; nothing taken back against confidence",
        departures="a fixed number is taken back where the paper draws it",
    ),
    "wino": Preset(
        "drafts all rows above a wide threshold, takes back what its own row, masked again, does not confirm",
        "WINO 2507.18578",
        "revising",
        ranking="confidence",
        budget="draft",
        reviser="verify",
        cost="one replay of the block's rows beside the forward, in steps that have something to verify",
        choose="few steps on a model that drafts well; in blocks, as published",
        source="Feng-Hong/WINO-DLLM 9549a1d, decoding_wino",
        verified="wino, both cases step by step; threshold_back 0 against the draft alone",
        departures="needs a model that replays rows alone and does not predict the next row (Dream); "
        "the cap of 20 rows is reached by no recorded trace",
    ),
}
