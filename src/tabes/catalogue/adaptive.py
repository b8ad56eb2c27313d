"""Rules that write as many rows as they dare.

Each is a budget, so it goes with any ranking too: `sampler("margin", budget="entropy_bound", bound=0.1)`. What the
authors set:

| rule | model and task | parameters |
| --- | --- | --- |
| threshold, factor | LLaDA and Dream, 256 tokens, blocks of 32 | threshold 0.9; factor 1 |
| entropy-bound | LLaDA-8B-Base, Dream-7B-Base | bound 0, .001, .01, .1, .25, .5, .75, 1, 1.5 |
| quota | LLaDA2.0, blocks of 32 in 32 steps | threshold 0.95 |
| klass | LLaDA-Instruct, 256 tokens, blocks of 64, 256 steps: GSM8K | threshold .6, divergence .015 |
| klass | the same: MATH | threshold .6, divergence .01 |
| klass | the same: HumanEval | threshold .9, divergence .01 |
| klass | the same: MBPP | threshold .7, divergence .01 |
| klass | Dream-Instruct, no blocks: GSM8K | threshold .9, divergence .001 |
| klass | the same: MATH | threshold .9, divergence .005 |
| klass | the same: HumanEval | threshold .8, divergence .001 |
| klass | the same: MBPP | threshold .9, divergence .001 |
"""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

_FAST = "Fast-dLLM 2505.22618"

PRESETS: dict[str, Preset] = {
    "entropy-bound": Preset(
        "least uncertain rows first, as many as keep the sum of their entropies bounded",
        "EB-Sampler 2505.24857",
        "adaptive",
        ranking="entropy",
        budget="entropy_bound",
        cost="the entropy of the rows read",
        choose="few steps without loss: bound=0.01 tied with one row a step at a quarter to a half of the work on both "
        "models measured (docs/rules.md), and reviser='least_certain', certainty='written' adds a point; the authors' "
        "best order is confidence for LLaDA, entropy for Dream",
        source="the definition; the bound default of the PC-Sampler code and of transformers' EntropyBoundSampler",
        verified="four recorded traces (eb_sampler), one of them guided; bounds 0 and infinite",
        departures="keeps to the current block, where the recorded code knows no blocks",
    ),
    "factor": Preset(
        "most confident rows first, the more at once the surer each",
        _FAST,
        "adaptive",
        ranking="confidence",
        budget="factor",
        choose="as threshold, but bold where a single row is unsure and careful where many are written",
        source="the definition; the code of the PC-Sampler repository, which has the rule too",
        verified="four recorded traces (fast_dllm_factor); factors 0 and large",
        departures="the code also accepts the first row that fails if it is the last one open: at the steps recorded "
        "as such, and only there, ours writes one row less",
    ),
    "klass": Preset(
        "all rows that are sure and no longer move at once, else the most confident first",
        "KLASS 2511.05664",
        "adaptive",
        ranking="confidence",
        budget="stability",
        cost="reads the next block too; the head two or three times more on rows above the threshold, unless no more "
        "rows were read than are kept (66 of 126,464 words)",
        choose="when a threshold alone writes too early; authors: GSM8K threshold 0.6, divergence 0.015 (LLaDA), 0.9 "
        "and 0.001 (Dream); all in tabes.catalogue.adaptive; carry=False reads no more than other rules",
        source="the definition and defaults of shkim0116/KLASS, llada_klass.py",
        verified="five recorded traces (klass): whole canvas, blocks, two tokens a step, the surest only; divergence 0 "
        "against even",
        departures="a block ends when it is full, where the code leaves masks over if fewer rows were ready than due; "
        "in float32; tempered draws are judged by the model's own distribution",
    ),
    "quota": Preset(
        "all rows above a threshold, at least as many as are due",
        "LLaDA2.0 2512.15745",
        "adaptive",
        ranking="confidence",
        budget="quota",
        choose="as threshold, with a number of steps that is never exceeded; with reviser='edit' LLaDA2.1's sampler",
        source="diffusers' BlockRefinementScheduler 58eb52c",
        verified="three recorded traces (block_refinement), one of them edited; threshold 1.1 against even",
        departures="the masks of a block are shared out over its steps, where the code shares out its length",
    ),
    "threshold": Preset(
        "all rows that are confident enough at once, at least the best",
        _FAST,
        "adaptive",
        ranking="confidence",
        budget="threshold",
        choose="the simplest way to fewer steps; 0.9 loses little with LLaDA and Dream in blocks of 32",
        source="NVlabs/Fast-dLLM 24cc59e, llada/generate.py without its caches",
        verified="five recorded traces (fast_dllm_threshold): 0.3 to 0.8, blocks of 8, 12 and all, and none; "
        "thresholds 0 and above 1",
        departures="confidence in float32",
    ),
}
