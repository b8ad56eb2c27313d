"""Few tokens first, many later (MaskGIT, arXiv 2202.04200).

    masks kept after step s of S = floor(n cos(pi s / 2S)), at least one token a step, everything at the last

with n the masks the block started with. With one step it is `even` with one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, CountBudget
from tabes.view import View

__all__ = ["Cosine"]


@BUDGETS.register("cosine")
@dataclass(frozen=True)
class Cosine(CountBudget):
    """`num_steps` steps in all, shared evenly between blocks; None means as many as there are masks."""

    num_steps: int | None = num_steps_setting()

    def init(self, canvas: Canvas) -> BlockClock:
        return BlockClock.create(canvas, self.num_steps)

    def progress(self, view: View, state: BlockClock) -> Tensor:
        return state.progress(view.canvas)

    def counts(self, view: View, state: BlockClock) -> tuple[Tensor, BlockClock]:
        masks_B, progress_B = state.now(view.canvas)[0], state.progress(view.canvas)
        kept_B = (masks_B * torch.cos(progress_B * (pi / 2))).floor().long()
        open_B = view.canvas.open_BL.sum(1)
        count_B = torch.where(progress_B >= 1, open_B, (open_B - kept_B.clamp(min=1)).clamp(min=1))
        return count_B, state.tick(view.canvas)
