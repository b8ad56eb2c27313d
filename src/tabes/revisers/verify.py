"""Wide in, narrow out (WINO, arXiv 2507.18578): a wide threshold drafts, this one takes back what does not hold.

    take back row i of the block if q_i(x_i) < threshold_back

q_i is what a shadow of row i says: a mask at its position that reads every row but row i, and the other shadows
(`tabes.attention.beside`). One replay of the block's rows beside the forward of the step asks them all.
Progress: never as many are taken back as the step before wrote, the least probable first, and none in a step that
writes a single row; so every step and what it takes back later fill at least one mask. Goes with the budget `draft`.
Reduces to the locked-in rule at threshold_back = 0, and where one row is written per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.parts import REVISERS, Ranked, Reviser, Revision
from tabes.revisers.written import least, probability, written
from tabes.settings import setting
from tabes.view import View

__all__ = ["Verify", "VerifyState"]


@dataclass(frozen=True)
class VerifyState(Batched):
    """What was masked before the last step."""

    masked_BL: Tensor


@REVISERS.register("verify")
@dataclass(frozen=True)
class Verify(Reviser):
    """Written tokens that a shadow of their row finds less probable than `threshold_back` are masked again."""

    threshold_back: float = setting(
        0.9, "a token is kept if its row, masked, gives it this probability", least=0, most=1
    )
    remembers: ClassVar[bool] = True
    in_last_step: ClassVar[bool] = True

    def init(self, canvas: Canvas) -> VerifyState:
        return VerifyState(canvas.masked_BL)

    def rows(self, view: View) -> Tensor:
        view.denoiser.base.check_beside()
        return torch.zeros_like(view.canvas.writable_BL)

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: VerifyState) -> tuple[Revision, VerifyState]:
        canvas = view.canvas
        wrote_B = (state.masked_BL & ~canvas.masked_BL).sum(1)
        most_B = torch.where(write_BL.sum(1) > 1, wrote_B - 1, 0).clamp(min=0)
        asked_BL = written(canvas, canvas.block_B) & (most_B > 0)[:, None]
        remask_BL = torch.zeros_like(asked_BL)
        if self.threshold_back > 0 and bool(asked_BL.any()):
            held_BL = self._held(view, ranked, asked_BL)
            remask_BL = least(held_BL, asked_BL & (held_BL < self.threshold_back), most_B)
        return Revision(remask_BL), VerifyState(canvas.masked_BL)

    def _held(self, view: View, ranked: Ranked, asked_BL: Tensor) -> Tensor:
        """(B, L): the probability of the written tokens without themselves. All rows of the block have a shadow."""
        canvas = view.canvas
        block_BL = canvas.writable_BL & (canvas.block_BL == canvas.block_B[:, None]) & asked_BL.any(1, keepdim=True)
        shadows = view.denoiser.replay(
            ranked.prediction.memory, block_BL, read_BL=asked_BL, statistics=("log_normaliser",), beside=True
        )
        return probability(shadows, canvas.tokens_BL)
