"""The same number at every step (LLaDA's split, arXiv 2502.09992): n masks over S steps, the first n mod S one more.

    count = ceil(masks left / steps left)

which is that split, and stays on time when something was taken back. Steps are shared evenly between blocks.
Reduces to one token per step when there are as many steps as masks.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, CountBudget
from tabes.view import View

__all__ = ["Even"]


@BUDGETS.register("even")
@dataclass(frozen=True)
class Even(CountBudget):
    """`num_steps` steps in all, never more than there are masks; None means one token per step."""

    num_steps: int | None = num_steps_setting()

    def init(self, canvas: Canvas) -> BlockClock:
        return BlockClock.create(canvas, self.num_steps)

    def progress(self, view: View, state: BlockClock) -> Tensor:
        return state.progress(view.canvas)

    def counts(self, view: View, state: BlockClock) -> tuple[Tensor, BlockClock]:
        _, steps_B, taken_B = state.now(view.canvas)
        left_B = (steps_B - taken_B).clamp(min=1)
        open_B = view.canvas.open_BL.sum(1)
        return -(-open_B // left_B), state.tick(view.canvas)
