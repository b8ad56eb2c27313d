"""The share of the masks that falls due between two times of a grid (Dream, arXiv 2508.15487).

    count = floor(n (1 - s / t)),      t, s neighbours among S + 1 equal steps from 1 to eps; everything at the last

with n the masks open now. In exact arithmetic and for eps = 0 that is n / (steps left), rounded down: what is lost by
rounding and by eps comes at the last step, and with as many steps as masks the first one writes nothing (32 masks in 32
steps: 0, thirty times 1, 2). Computed in float32 as the reference does, for the counts depend on the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, CountBudget
from tabes.settings import setting
from tabes.view import View

__all__ = ["Dream", "eps_setting", "revealed"]


def eps_setting() -> Any:
    """Where the grid of times ends."""
    return setting(1e-3, "the time at which the last step ends", above=0, below=1)


@BUDGETS.register("dream")
@dataclass(frozen=True)
class Dream(CountBudget):
    """`num_steps` steps in all, shared evenly between blocks, more than there are masks too; None means as many."""

    num_steps: int | None = num_steps_setting()
    eps: float = eps_setting()

    def init(self, canvas: Canvas) -> BlockClock:
        return BlockClock.create(canvas, self.num_steps, spare=True)

    def progress(self, view: View, state: BlockClock) -> Tensor:
        return state.progress(view.canvas)

    def counts(self, view: View, state: BlockClock) -> tuple[Tensor, BlockClock]:
        open_B = view.canvas.open_BL.sum(1)
        due_B = (open_B * revealed(view.canvas, state, self.eps)).long()
        return torch.where(state.progress(view.canvas) >= 1, open_B, due_B), state.tick(view.canvas)


def revealed(canvas: Canvas, clock: BlockClock, eps: float) -> Tensor:
    """(B,) in float32: the share of the masks that falls due in this step, 1 - s / t; 1 in the last."""
    _, steps_B, taken_B = clock.now(canvas)
    steps_B = steps_B.clamp(min=1)
    numbers, which_B = steps_B.unique(return_inverse=True)
    shares = torch.nn.utils.rnn.pad_sequence([_shares(steps, eps) for steps in numbers.tolist()], batch_first=True)
    shares = shares.to(steps_B.device)
    return shares[which_B, torch.minimum(taken_B, steps_B - 1)]


@lru_cache(maxsize=64)
def _shares(steps: int, eps: float) -> Tensor:
    """Of every step; on the CPU, so that all devices have the same digits."""
    times = torch.linspace(1, eps, steps + 1)
    shares = 1 - times[1:] / times[:-1]
    shares[-1] = 1.0
    return shares
