"""A coin for every mask (Dream's origin, arXiv 2508.15487; ancestral sampling of a masked diffusion model).

    each open row is written with probability 1 - s / t,      t, s neighbours on the grid of `dream`; all at the end

whatever the order: any ranking gives the same. How many rows that is is random, `dream`'s count on average; with one
step it is everything. A block is left early when its coins have filled it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.budgets.dream import eps_setting, revealed
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, Budget, Ranked
from tabes.view import View

__all__ = ["Coins"]


@BUDGETS.register("coins")
@dataclass(frozen=True)
class Coins(Budget):
    """`num_steps` steps in all, shared evenly between blocks, more than there are masks too; None means as many."""

    num_steps: int | None = num_steps_setting()
    eps: float = eps_setting()

    def init(self, canvas: Canvas) -> BlockClock:
        return BlockClock.create(canvas, self.num_steps, spare=True)

    def progress(self, view: View, state: BlockClock) -> Tensor:
        return state.progress(view.canvas)

    def expected(self, view: View, state: BlockClock) -> Tensor:
        """On average, rounded up."""
        return (view.canvas.open_BL.sum(1) * revealed(view.canvas, state, self.eps)).ceil().long()

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: BlockClock) -> tuple[Tensor, BlockClock]:
        share_B = revealed(view.canvas, state, self.eps)
        write_BL = ranked.open_BL & (view.uniform("budget.coins") < share_B[:, None])
        return write_BL, state.tick(view.canvas)
