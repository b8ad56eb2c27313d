"""Edits written tokens: where the network now proposes another one and is sure of it, that one is written instead.

    rewrite row i of the block if v_i differs from the token there and p_i(v_i) > threshold

at every step, and after the last mask of a block in up to `max_post_steps` more forwards, until one edits nothing.
The token editing of LLaDA2.1, as the diffusers library's BlockRefinementScheduler has it. A token is never edited in
the step that writes it. Reduces to the locked-in rule at threshold 1 with no post steps (these
cost an idle forward a block).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.parts import REVISERS, Ranked, Reviser, Revision, last_step
from tabes.revisers.written import working_block, written
from tabes.settings import setting
from tabes.view import View

__all__ = ["Edit", "EditState"]


@dataclass(frozen=True)
class EditState(Batched):
    """How many more forwards a block that is full may have."""

    left_B: Tensor


@REVISERS.register("edit")
@dataclass(frozen=True)
class Edit(Reviser):
    """Written tokens of the block give way to proposals of a probability above `editing_threshold`."""

    editing_threshold: float = setting(0.9, "a written token gives way to one more probable than this", least=0, most=1)
    max_post_steps: int = setting(16, "forwards that only edit, after a block's last mask", least=0, whole=True)
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})
    in_last_step: ClassVar[bool] = True

    def init(self, canvas: Canvas) -> EditState:
        return EditState(torch.zeros_like(canvas.block_B))

    def rows(self, view: View) -> Tensor:
        canvas = view.canvas
        return written(canvas, working_block(canvas) if self.max_post_steps else canvas.block_B)

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: EditState) -> tuple[Revision, EditState]:
        canvas, proposal = view.canvas, ranked.proposal
        only_edits_B = state.left_B > 0
        # The block before the current one is read while nothing of the current one is written; it is edited only then
        # and only while it has forwards left.
        editable_BL = self.rows(view) & (only_edits_B[:, None] | (canvas.block_BL == canvas.block_B[:, None]))
        sure_BL = proposal.confidence_BL(ranked.prediction) > self.editing_threshold
        edit_BL = editable_BL & sure_BL & (proposal.tokens_BL != canvas.tokens_BL)
        filled_B = last_step(ranked.open_BL, write_BL)
        after_B = torch.where(edit_BL.any(1), state.left_B - 1, 0)
        left_B = torch.where(only_edits_B, after_B, self.max_post_steps * filled_B)
        nothing_BL = torch.zeros_like(edit_BL)
        return Revision(nothing_BL, edit_BL, hold_B=only_edits_B, keep_B=left_B > 0), EditState(left_B)
