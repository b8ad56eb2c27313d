"""Rules that look at what a write does to the rest: gradients and replays (docs/boe.md)."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

_TABES = "TABES 2602.00250"
_PAPER_ALONE = "the paper (no code was published with it); docs/boe.md lists what it says twice or not at all"
_TESTED = (
    "tests/steering: the theorem's bound by finite differences on a denoiser with known gradients, replayed gradients "
    "against dense ones in float64, the shaping against the paper's formulas written out for one row"
)
# Chosen on tuning items, except `writes`; so is the floor, of which the paper prints neither number (docs/boe.md).
_BEST = {"candidates": 4, "delta": 0.1, "sure": 0.95, "writes": 1}
_PAPER = {"rho": 0.25, "gate": True, "floor_weight": 1.0, "floor_height": 0.5}

PRESETS: dict[str, Preset] = {
    "boe": Preset(
        "where unsure, the write that makes the rest least uncertain by its gradient",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_BEST,
        cost="a step that is steered: a replay of the masked rows and a backward pass through them (1.1 to 2.2 steps); "
        "all others nothing. 1 % over whole decodings of Sudokus",
        choose="one token a step, and answers that hang together: puzzles, plans, structures. On 2,000 Sudokus 1.6 "
        "points over confidence [0.8, 2.4], on reactions a tie (docs/accuracy.md)",
        source=_PAPER_ALONE,
        verified=_TESTED,
        departures="steers only where confidence is unsure and one token is written, among four rows about as "
        "confident as the best; no gate, no floor; the row's own entropy is part of the sum; all masked rows are "
        "watched, not the candidates alone",
    ),
    "boe-dense": Preset(
        "boe with a second forward and a dense backward: the reference",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_BEST | {"backward": "dense"},
        cost="a step that is steered: a forward and a backward pass of the whole canvas (3.4 steps); others nothing",
        choose="to check boe, or where most rows are given and the sparse gradient says little (docs/fidelity.md)",
        source=_PAPER_ALONE,
        verified=_TESTED,
        departures="as boe, except that the gradient passes through every row",
    ),
    "boe-literal": Preset(
        "the paper to the letter: only candidates active",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_PAPER | {"probes": "candidates"},
        cost="at every step a replay of a quarter of the open rows, and a backward pass through them",
        choose="to reproduce the paper's active set, not to decode: on Sudokus 5.6 points below confidence",
        source="the paper's ActiveQueryAttention with its active set, the candidates",
        verified=_TESTED + "; that its gradient carries nothing about other rows is a test, and a warning",
        departures="lambda = 1 and h_max = 0.5 are ours: the paper prints neither number",
    ),
    "boe-paper": Preset(
        "the paper's method as it is meant",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_PAPER,
        cost="at every step a replay of the masked rows and a backward pass through them: 1.1 to 2.2 steps",
        choose="to compare with the paper. On Sudokus 4.0 points below confidence: a quarter of all rows competes on a "
        "score that ignores whether their token is right",
        source=_PAPER_ALONE,
        verified=_TESTED,
        departures="all masked rows are watched, the row's own entropy included; lambda = 1, h_max = 0.5 and no "
        "annealing are ours: the paper prints none of them",
    ),
    "boe-verify": Preset(
        "importance proposes, lookahead decides",
        _TABES + ", with its quantity measured for the two best",
        "steered",
        ranking="boe_verify",
        parameters=_BEST | {"verify": 2},
        cost="a step that is steered: what boe costs, and two replays of the masked rows. 2 % over whole decodings of "
        "Sudokus; behind a row cache the winner's replay is the next step's",
        choose="as boe, for one percent more work: on 2,000 Sudokus 2.0 points over confidence [1.1, 2.9]",
        source="ours: boe and lookahead put together",
        verified=_TESTED + "; with all candidates it is lookahead, with one it is boe",
        departures="the paper has no such step",
    ),
    "lookahead": Preset(
        "where unsure, tries the surest rows and writes what leaves the least uncertain",
        "TABES 2602.00250, its quantity measured instead of estimated",
        "steered",
        ranking="lookahead",
        parameters={"delta": 0.1, "sure": 0.95, "writes": 1},
        cost="a step that is steered: a replay of the masked rows for each of at most four candidates; all others "
        "nothing. 2 % over whole decodings of Sudokus",
        choose="with a check of the answer that can be relaxed (objective=tabes.steering.Verifier), or where gradients "
        "cannot be had: on 2,000 Sudokus 1.9 points over confidence [1.0, 2.7]",
        source="ours: what the paper's importance estimates, by writing each candidate in a copy",
        verified="tests/steering: the exact drop by full forwards where every row is replayed; the Spearman "
        "correlation with it is 0.95 on Sudokus and 0.52 on reactions (docs/fidelity.md)",
        departures="given rows keep their remembered keys and values; steers only where unsure, as boe does",
    ),
}
