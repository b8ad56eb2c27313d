"""How wrong a replayed prediction is: the row cache, and with it the winner's replay of a lookahead, against a full
forward of the same canvas, by the number of writes since the last full forward.

64 test puzzles with 28 clues (the row cache's seed), decoded cell by cell with a full forward every 8 steps. Per
masked row: the total variation distance of the two distributions, and whether the most probable digit is the same. Per
step: whether the same row would be written. What is kept stale is what was given or written, so the error starts at the
second layer and grows with every write; the distance at age 1 is that of `lookahead`'s offer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import torch

import tabes
from benchmarks.report import Verdict, table
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.prediction import Prediction
from tabes.tasks.sudoku import puzzles

__all__ = ["report", "run"]

PUZZLES, CLUES, SEED, EVERY = 64, 28, 20_261_118, 8
STATED = 0.02  # the mean distance up to which the docs call a replay as good as a forward
MEASURES = ("mean", "p99", "same_digit", "same_row")

Found = dict[int, dict[str, list[torch.Tensor]]]


class _Watched(tabes.RowCache):
    """A row cache whose every answer is compared with a full forward."""

    found: ClassVar[Found]

    def predict(self, canvas: Canvas, rows_BL: torch.Tensor, **options: Any) -> Prediction:
        prediction = super().predict(canvas, rows_BL, **options)
        exact = self.denoiser.predict(canvas, rows_BL, statistics={"confidence"})
        p_NV, q_NV = prediction.logits_NV().softmax(-1), exact.logits_NV().softmax(-1)
        assert self._age_B is not None
        age_N = self._age_B[rows_BL.nonzero()[:, 0]]
        for age in age_N.unique().tolist():
            at, of = self.found[age], age_N == age
            at["distance"].append(0.5 * (p_NV - q_NV)[of].abs().sum(-1))
            at["same_digit"].append((p_NV.argmax(-1) == q_NV.argmax(-1))[of].float())
            at["same_row"].append(_same_row(prediction, exact, self._age_B == age))
        return prediction


def _same_row(prediction: Prediction, exact: Prediction, of_B: torch.Tensor) -> torch.Tensor:
    return (prediction.confidence_BL.argmax(1) == exact.confidence_BL.argmax(1))[of_B].float()


def run() -> Iterator[Row]:
    """All measurements."""
    model = tabes.load("sudoku")
    givens_NP = torch.from_numpy(puzzles(PUZZLES, CLUES, SEED).givens).long()
    canvas = Canvas.create(torch.where(givens_NP == 0, model.mask_id, givens_NP), mask_id=model.mask_id)
    _Watched.found = defaultdict(lambda: defaultdict(list))
    for _ in tabes.decode(_Watched(model, EVERY), canvas, tabes.sampler("confidence")):
        pass
    for age, found in sorted(_Watched.found.items()):
        distance_N = torch.cat(found["distance"])
        values = {"mean": distance_N.mean(), "p99": distance_N.quantile(0.99)}
        values |= {name: torch.cat(found[name]).mean() for name in ("same_digit", "same_row")}
        for name, value in values.items():
            yield Row(str(age), "replay", name, 0, float(value))


def report(rows: Rows) -> Iterator[Verdict]:
    """A line per age, and the largest age within the stated distance."""
    lines = [[age, *(f"{rows.median(age, 'replay', name):.4f}" for name in MEASURES)] for age in rows.cases()]
    header = ("writes since the full forward", "mean distance", "99th percentile", "same digit", "same row next")
    print(f"\n{table(header, lines)}\n")
    within = [int(age) for age in rows.cases() if rows.median(age, "replay", "mean") <= STATED]
    yield Verdict(f"writes up to which the mean distance is at most {STATED}", _longest_run(within))


def _longest_run(ages: Iterable[int]) -> float:
    """The last of 0, 1, 2, ... that is there without a gap."""
    last = -1
    for age in sorted(ages):
        if age != last + 1:
            break
        last = age
    return float(last)
