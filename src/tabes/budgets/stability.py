"""Rows whose distribution has settled (KLASS, arXiv 2511.05664).

    ready = open rows with p_i(v_i) > threshold and the last n values of KL(p_i,t || p_i,t-1) below `divergence`
    write all ready rows, or the best one of them; where none is ready, the step's count by the ranking's order

That count is LLaDA's split, fixed when the block starts; nothing is ready before the block's n-th step. What came
before belongs to the history, so rows of the next block are read as well (`carry`). Reduces to that split at a
divergence of 0.

The history is the last n predictions: hidden rows, `width` numbers each in place of the vocabulary, and logits only
where a prediction keeps them anyway (about 66 rows of 126,464 words). Elsewhere the head runs again, for now and for
before, on open rows above the threshold: others cannot be ready.
Shapes: B batch rows, L canvas rows, N rows compared, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.budgets.adaptive import Scheduled
from tabes.budgets.blocks import BlockClock
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, Proposal, Ranked
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["Past", "Settling", "Stability", "divergence"]

_AT_ONCE, _CACHED = 64, 4


@dataclass(frozen=True)
class Past:
    """The last predictions, the newest first: hidden rows that wait for the head, and logits where they were few."""

    predictions: tuple[Prediction, ...] = ()

    def select(self, batch: Tensor) -> Past:
        """The same for the batch rows where the bool mask `batch` is set."""
        return Past(tuple(prediction.select(batch) for prediction in self.predictions))

    def after(self, prediction: Prediction, most: int) -> Past:
        """With one more at the front and without what is too old."""
        return Past((prediction.forgetting(), *self.predictions)[:most])


@dataclass(frozen=True)
class Settling(Batched):
    """Where every block is in its schedule, and what was predicted before."""

    clock: BlockClock
    past: Past


@BUDGETS.register("stability")
@dataclass(frozen=True)
class Stability(Scheduled):
    """Sure rows whose prediction no longer moves, all at once."""

    threshold: float = setting(0.9, "a ready row has a confidence above this", least=0)
    divergence: float = setting(0.01, "and moved by less than this at each of its last steps, in nats", least=0)
    history: int = setting(2, "how many steps it must have stayed for", least=1, whole=True)
    ready: Literal["all", "confidence", "divergence"] = setting(
        "all", "write all ready rows, or only the surest or steadiest", choices=("all", "confidence", "divergence")
    )
    carry: bool = setting(True, "count what a block's rows did before it began", choices=(True, False))

    def init(self, canvas: Canvas) -> Settling:
        return Settling(self.clock(canvas), Past())

    def rows(self, view: View) -> Tensor:
        """Of later blocks only the next one's rows can be asked for their past, and only for the last step of it."""
        canvas = view.canvas
        if not self.carry:
            return torch.zeros_like(canvas.writable_BL)
        later_BL = canvas.masked_BL & (canvas.block_BL > canvas.block_B[:, None])
        next_B = torch.where(later_BL, canvas.block_BL, torch.iinfo(torch.int64).max).amin(1)
        return later_BL & (canvas.block_BL == next_B[:, None])

    def expected(self, view: View, state: Settling) -> Tensor:
        return self.due(view.canvas, state.clock)

    def foresee(self, view: View, prediction: Prediction, proposal: Proposal, state: Settling) -> Tensor:
        """The schedule's count: what is ready costs too much to be found out twice."""
        return self.expected(view, state)

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Settling) -> tuple[Tensor, Settling]:
        canvas, confidence_BL = view.canvas, ranked.proposal.confidence_BL(ranked.prediction)
        may_B = state.clock.now(canvas)[2] >= self.history - 1
        sure_BL = ranked.open_BL & (confidence_BL > self.threshold) & may_B[:, None]
        ready_BL, moved_BL = self._settled(sure_BL, ranked.prediction, state.past)
        if self.ready != "all":
            ready_BL = _best(ready_BL, confidence_BL if self.ready == "confidence" else -moved_BL)
        scheduled_BL = ranked.open_BL & (ranked.rank_BL < self.due(canvas, state.clock)[:, None])
        write_BL = torch.where(ready_BL.any(1, keepdim=True), ready_BL, scheduled_BL)
        past = state.past.after(ranked.prediction, self.history)
        return write_BL, Settling(state.clock.tick(canvas), past)

    def _settled(self, sure_BL: Tensor, now: Prediction, past: Past) -> tuple[Tensor, Tensor]:
        """Which of the rows stayed, and how far each moved last (infinite where that is not known)."""
        moved_BL = torch.full(sure_BL.shape, torch.inf, device=sure_BL.device)
        if len(past.predictions) < self.history:
            return torch.zeros_like(sure_BL), moved_BL
        stayed_BL = sure_BL
        for age, (newer, older) in enumerate(pairwise((now, *past.predictions))):
            step_BL = divergence(newer, older, stayed_BL)
            moved_BL = step_BL if age == 0 else moved_BL
            stayed_BL = stayed_BL & (step_BL < self.divergence)
        return stayed_BL, moved_BL


def divergence(newer: Prediction, older: Prediction, rows_BL: Tensor) -> Tensor:
    """KL(newer || older) in nats at these rows, infinite at those that one of the two does not have."""
    moved_BL = torch.full(rows_BL.shape, torch.inf, device=rows_BL.device)
    # On a CPU a few rows at a time stay in the cache; where the head has to run, it reads all its weights every time.
    cached = rows_BL.device.type == "cpu" and newer.kept and older.kept
    size = _CACHED if cached else _AT_ONCE
    for part_BL in _parts(rows_BL & newer.rows_BL & older.rows_BL, size):
        p, q = newer.at(part_BL), older.at(part_BL)
        normalisers_N = p.log_normaliser_BL[part_BL] - q.log_normaliser_BL[part_BL]
        moved_BL[part_BL] = (_moved(p.logits_NV(), q.logits_NV()) - normalisers_N).clamp(min=0).to(moved_BL.dtype)
    return moved_BL


def _moved(newer_NV: Tensor, older_NV: Tensor) -> Tensor:
    """sum_v p (l - l'), what the logits moved on average; less what the normaliser did it is the divergence."""
    size = _CACHED if newer_NV.device.type == "cpu" else _AT_ONCE
    pieces = zip(newer_NV.split(size), older_NV.split(size), strict=True)
    return torch.cat([(new_nV.softmax(-1) * (new_nV - old_nV)).sum(-1) for new_nV, old_nV in pieces])


def _parts(rows_BL: Tensor, size: int) -> Iterator[Tensor]:
    """The rows some at a time: a row of logits is as long as the vocabulary."""
    place_BL = (rows_BL.flatten().cumsum(0) - 1).view_as(rows_BL)
    for start in range(0, int(rows_BL.sum()), size):
        yield rows_BL & (place_BL >= start) & (place_BL < start + size)


def _best(rows_BL: Tensor, value_BL: Tensor) -> Tensor:
    """Of every batch row's rows the one with the largest value, the lowest of equal ones."""
    best_B1 = torch.where(rows_BL, value_BL, -torch.inf).argmax(1, keepdim=True)
    return rows_BL & (torch.arange(rows_BL.shape[1], device=rows_BL.device) == best_B1)
