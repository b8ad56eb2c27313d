"""Locked-in rules that look at each row by itself."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

_DREAM = "Dream 2508.15487"
_DREAM_SETTINGS = {"read": "writer", "temperature": 0.2, "top_p": 0.95}
_DREAM_SOURCE = (
    "its generation code (`alg` {}), with the README's temperature 0.2 and top_p 0.95; the README's 512 steps for 512 "
    "tokens are the default here: one per token"
)
_DREAM_COST = "top-p sorts the words of every row and a draw passes over them once more"
_DREAM_DEPARTS = (
    "counts from each batch row's own masks, where the code takes the batch's mean; equally certain rows (with top_p "
    "many have one token left) go from left to right, where the code leaves it to topk; the mask is never proposed; "
    "`noise` is its alg_temp, drawn by Gumbel numbers; scores in float32 (the code: the model's dtype); blocks, which "
    "it does not have, share the steps"
)
_LOCAL = "tests/rankings/test_local.py"

PRESETS: dict[str, Preset] = {
    "confidence": Preset(
        "most confident token first",
        "LLaDA 2502.09992",
        "local",
        ranking="confidence",
        choose="the baseline; with LLaDA-Instruct and no blocks set ends_last, or end tokens fill the answer first",
        source="LLaDA's generate with remasking low_confidence, in the field also called MaskGIT: the probability of "
        "the proposed token under the model's own distribution, even counts per block, temperature 0 as in its "
        "evaluations; its confidence_eos_eot_inf is ends_last, its logits_eos_inf is suppress in generate",
        verified="eleven recorded traces (llada_low_confidence, llada_low_confidence_batch) with blocks, guidance, "
        "left padding and both end-token options, and its table of counts (schedules/llada_split)",
        departures="scores in float32 (the code: the model's dtype); ties to the lowest row; the mask is never "
        "proposed; ends_last works at every temperature (the code's EOS half only at 0); no steps after the last mask",
    ),
    "dream-confidence": Preset(
        "most confident token first, read off the tempered and filtered distribution",
        _DREAM,
        "local",
        ranking="confidence",
        budget="dream",
        parameters=_DREAM_SETTINGS,
        cost=_DREAM_COST,
        choose="to compare with Dream's maskgit_plus; with argmax tokens it is confidence with Dream's counts",
        source=_DREAM_SOURCE.format("maskgit_plus"),
        verified="three recorded traces at temperature 0 (dream_maskgit_plus), rows read in place and shifted, its "
        "table of counts (schedules/dream_counts); what is read after temperature and filters: a restatement in "
        f"{_LOCAL}",
        departures=_DREAM_DEPARTS,
    ),
    "dream-entropy": Preset(
        "least uncertain row first, read off the tempered and filtered distribution",
        _DREAM,
        "local",
        ranking="entropy",
        budget="dream",
        parameters=_DREAM_SETTINGS,
        cost=_DREAM_COST + ", and a logarithm per word",
        choose="Dream checkpoints: what their authors recommend",
        source=_DREAM_SOURCE.format("entropy, the one it recommends"),
        verified="three recorded traces at temperature 0 (dream_entropy), rows read in place and shifted, its table of "
        f"counts (schedules/dream_counts); what is read after temperature and filters: a restatement in {_LOCAL}",
        departures=f"{_DREAM_DEPARTS}; p log p, where the code adds 1e-10 inside the logarithm",
    ),
    "dream-margin": Preset(
        "largest lead of the best token first, read off the tempered and filtered distribution",
        _DREAM,
        "local",
        ranking="margin",
        budget="dream",
        parameters=_DREAM_SETTINGS,
        cost=_DREAM_COST,
        choose="to compare with Dream's topk_margin",
        source=_DREAM_SOURCE.format("topk_margin"),
        verified="three recorded traces at temperature 0 (dream_topk_margin), rows read in place and shifted, its "
        "table of counts (schedules/dream_counts); what is read after temperature and filters: a restatement in "
        f"{_LOCAL}",
        departures=_DREAM_DEPARTS,
    ),
    "dream-origin": Preset(
        "a coin for every row",
        _DREAM,
        "local",
        ranking="random",
        budget="coins",
        choose="to compare with Dream's default, which looks at no certainty",
        source="its generation code with that code's own defaults: `alg` origin, temperature 0, eps 0.001",
        verified="the chance of every step against the closed form 1 - s / t, and that the coins of two rows are "
        "independent (tests/rankings/test_dream.py); no trace can be recorded of a random rule",
        departures="decoding ends with the last mask, where the code goes on calling the network; the mask is never "
        "proposed; blocks, which it does not have, share the steps",
    ),
    "entropy": Preset(
        "least uncertain row first",
        "as in Dream 2508.15487; the name from Koh et al. 2024, who visit the most uncertain first",
        "local",
        ranking="entropy",
        cost="a second reading of each row's words",
        choose="where several tokens are likely and confidence alone does not tell them apart",
        source="the definition with LLaDA's counts, as in PC-Sampler's baselines",
        verified="four recorded traces (entropy) with guidance and uneven counts; a fifth, whose code forgets its "
        "blocks, differs where it leaves one; one with KLASS's reversed sign differs and is the reverse",
        departures="keeps to its block; no constant inside the logarithm",
    ),
    "left-to-right": Preset(
        "lowest row first, as an autoregressive model",
        "",
        "local",
        ranking="left_to_right",
        choose="to see what a free order is worth, or for a model that was an autoregressive one",
        source="the definition",
        verified="tests/rankings/test_local.py: the order of the rows, whatever the model says",
        departures="none",
    ),
    "margin": Preset(
        "largest lead of the best token over the second first",
        "Kim et al. 2502.06768",
        "local",
        ranking="margin",
        cost="a second search for a largest logit",
        choose="puzzles, where its authors report far more solved than with confidence; noise for varied text",
        source="the definition with even counts and argmax tokens, as in PC-Sampler and KLASS; the paper draws tokens "
        "(temperature 1) and perturbs the score for free text (noise)",
        verified="four recorded traces (margin) with guidance and uneven counts, two of KLASS's baseline "
        "(klass_baseline_topk_margin) with blocks; one whose code forgets its blocks differs where it leaves one",
        departures="counts are even, not the paper's share of a noise schedule; keeps to its block",
    ),
    "maskgit": Preset(
        "most probable drawn token first, with noise that fades from step to step",
        "MaskGIT 2202.04200",
        "local",
        ranking="maskgit",
        budget="curve",
        parameters={"temperature": 1.0, "choice_temperature": 4.5},
        cost="a draw: one more pass over the words of every row",
        choose="varied samples in few steps (its authors take 8 to 16 for 256 tokens); for the deterministic rule that "
        "papers on language models call MaskGIT take confidence",
        source="its decoding code: tokens drawn at temperature 1, cosine curve; choice temperature 4.5 as in its "
        "configurations (the function's own default is 1)",
        verified="its counts (128 in 12 steps, 64 in 8) and its curves; order and limits against the formula in "
        "tests/rankings/test_maskgit.py; no recorded trace",
        departures="the last step writes the mask the code leaves over and fills with the same draw; ties go to the "
        "lowest row, where the code re-masks fewer; counts per block where there are blocks",
    ),
    "pc": Preset(
        "PC-Sampler: confident, uncommon and early rows first (needs a frequency table)",
        "PC-Sampler 2508.13021",
        "local",
        ranking="calibrated",
        cost="one look into the table per row",
        choose="long answers, which other rules begin at both ends; decay 0 for puzzles, 0.5 where order matters a lot",
        source="the definition and the values of its code (decay 0.25, cap 10); its README leaves out the minus sign",
        verified="four recorded traces (pc_sampler): decay 0 to 0.25, cap 2 and 10, blocks of 8, 12 and all",
        departures="no table comes with it: without one, confidence with the same decay; rows are counted without "
        "given text between them; a table knows the model's vocabulary, where the code has LLaDA's",
    ),
    "random": Preset(
        "a fresh random order at every step",
        "LLaDA 2502.09992",
        "local",
        ranking="random",
        choose="a baseline that knows nothing; mdlm draws the counts too",
        source="LLaDA's generate with remasking random (its logits_eos_inf is suppress in generate): uniform numbers "
        "in place of the confidence, even counts per block",
        verified="tests/rankings/test_local.py: every order of rows equally often",
        departures="its own random numbers; the mask is never proposed",
    ),
}
