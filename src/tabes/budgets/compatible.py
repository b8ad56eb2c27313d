"""Parallel writes that do not contradict: rows that move each other are not written in the same step.

    i joins the set S if the sum over j in S of shift(i, j) + shift(j, i) is at most `bound`

where shift(i, j) is what writing i does to j: with the measure "loss" how much probability j's proposed token loses,
with "shift" the total variation distance its whole distribution moves (which also counts what confirms j). Found by
writing each of the `pool` best rows in a copy and replaying the others of the pool alone; not asked at all where every
row to write is at least `sure`. Rows are tried in the order of the ranking, so the first is always written. With
`num_steps` places that stay empty are filled in that order all the same, to be on time, so the pool is twice the count;
with `tokens_per_step` they stay empty, decoding takes more steps, and the pool is the count. Reduces to `even` and
`tokens_per_step` as `bound` grows. Shapes: B batch rows, L canvas rows, N copies, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from tabes.budgets.blocks import num_steps_setting
from tabes.budgets.even import Even
from tabes.budgets.tokens_per_step import TokensPerStep
from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.parts import BUDGETS, Budget, CountBudget, Ranked
from tabes.settings import setting
from tabes.steering import Copies, Scene
from tabes.view import View

__all__ = ["Compatible", "Measure", "pair_shifts"]

Measure = Literal["shift", "loss"]


@BUDGETS.register("compatible")
@dataclass(frozen=True)
class Compatible(Budget):
    """At most as many rows as `num_steps` or `tokens_per_step` ask for, from the best `pool` times as many.

    The bound lies between what tuning preferred on Sudoku (0.003) and what it was first tried with (docs/boe.md).
    """

    num_steps: int | None = num_steps_setting()
    tokens_per_step: int | None = setting(None, "most rows written at a step", least=1, whole=True)
    bound: float = setting(0.01, "how much the rows written together may move each other", least=0)
    pool: float | None = setting(None, "rows tried, as a multiple of those to write; none: 2, or 1", least=1)
    measure: Measure = setting("loss", "how a move is measured", choices=get_args(Measure))
    sure: float | None = setting(0.99, "nothing is tried where all are this confident", least=0, most=1, or_none=True)

    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_steps is not None and self.tokens_per_step is not None:
            raise UsageError("num_steps and tokens_per_step exclude each other; give one")

    @cached_property
    def _most(self) -> CountBudget:
        return Even(self.num_steps) if self.tokens_per_step is None else TokensPerStep(self.tokens_per_step)

    def init(self, canvas: Canvas) -> Any:
        return self._most.init(canvas)

    def expected(self, view: View, state: Any) -> Tensor:
        return self._most.expected(view, state)

    def progress(self, view: View, state: Any) -> Tensor:
        return self._most.progress(view, state)

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        count_B, state = self._most.counts(view, state)
        count_B = torch.minimum(count_B + taken_B, ranked.open_BL.sum(1))
        asked_B = (count_B > 1) & self._doubtful(ranked, count_B)
        size_B = torch.where(asked_B, (self._pool * count_B).ceil().long(), 0)
        pool_BL = ranked.open_BL & (ranked.rank_BL < size_B[:, None])
        write_BL = ranked.open_BL & (ranked.rank_BL < torch.where(asked_B, 1, count_B)[:, None])
        if bool(pool_BL.any()):
            scene = Scene.of(view, ranked.prediction, ranked.proposal)
            shift_BLL = pair_shifts(scene, pool_BL, self.measure)
            write_BL = self._joined(write_BL, pool_BL, ranked.rank_BL, shift_BLL, count_B)
        if self.tokens_per_step is None:
            write_BL = _filled(write_BL, ranked, count_B)
        return write_BL, state

    @property
    def _pool(self) -> float:
        if self.pool is not None:
            return self.pool
        return 2.0 if self.tokens_per_step is None else 1.0

    def _doubtful(self, ranked: Ranked, count_B: Tensor) -> Tensor:
        """(B,): whether any of the first `count_B` rows is not `sure`."""
        if self.sure is None:
            return torch.ones_like(count_B, dtype=torch.bool)
        first_BL = ranked.open_BL & (ranked.rank_BL < count_B[:, None])
        return (first_BL & (ranked.proposal.confidence_BL(ranked.prediction) < self.sure)).any(1)

    def _joined(self, write_BL: Tensor, pool_BL: Tensor, rank_BL: Tensor, shift_BLL: Tensor, count_B: Tensor) -> Tensor:
        """The rows of the pool in their order, each if it fits what is in already."""
        both_BLL = shift_BLL + shift_BLL.transpose(1, 2)
        for place in range(1, int(pool_BL.sum(1).max())):
            next_BL = pool_BL & (rank_BL == place)
            moved_B = torch.einsum("bl,blm,bm->b", next_BL.float(), both_BLL, write_BL.float())
            fits_B = (moved_B <= self.bound) & (write_BL.sum(1) < count_B)
            write_BL = write_BL | (next_BL & fits_B[:, None])
        return write_BL


def _filled(write_BL: Tensor, ranked: Ranked, count_B: Tensor) -> Tensor:
    """As many rows as are due, those that were left out in the order of the ranking."""
    left_BL = ranked.open_BL & ~write_BL
    key_BL = torch.where(left_BL, ranked.rank_BL, torch.iinfo(torch.int64).max)
    place_BL = key_BL.argsort(dim=1, stable=True).argsort(dim=1)
    return write_BL | (left_BL & (place_BL < (count_B - write_BL.sum(1))[:, None]))


def pair_shifts(scene: Scene, pool_BL: Tensor, measure: Measure = "shift") -> Tensor:
    """(B, L, L): what writing row l does to row m, 0 where either is not in the pool."""
    before_MV = scene.before.at(pool_BL).logits_NV().softmax(-1)
    place_BL = (pool_BL.flatten().cumsum(0) - 1).view_as(pool_BL)  # where a row's probabilities are
    B, L = pool_BL.shape
    shift_BLL = torch.zeros(B, L, L, device=pool_BL.device)
    for part in Copies.of(pool_BL).chunks(L):
        own_nL, b_n = part.own(L), part.batch_N
        canvas = scene.canvas.select(b_n)
        others_nL = pool_BL[b_n] & ~own_nL
        after = scene.denoiser.replay(
            scene.memory.select(b_n),
            pool_BL[b_n],
            tokens_BL=torch.where(own_nL, scene.tokens_BL[b_n], canvas.tokens_BL),
            read_BL=others_nL,
        )
        old_MV = before_MV[place_BL[b_n][others_nL]]
        lost_MV = old_MV - after.logits_NV().softmax(-1)
        if measure == "shift":
            distance_M = 0.5 * lost_MV.abs().sum(-1)
        else:
            token_M1 = scene.tokens_BL[b_n][others_nL][:, None]
            distance_M = lost_MV.gather(1, token_M1).squeeze(1).clamp(min=0)
        shift_BLL[b_n, part.row_N] = after.spread(distance_M).to(shift_BLL.dtype)
    return shift_BLL
