"""Decodes to a share of the block, then loops: takes the least certain tokens back, writes as many, n times; then on.

    written / size >= share:  n times { take back the k rows with the lowest psi;  write the k best masks }

By default taking back and writing are a forward each, so what is written is chosen without the tokens taken back: the
loop of PC-Sampler's code (arXiv 2508.13021), with psi as it is now. Both at once, with psi when written, is ReMDM on
LLaDA (arXiv 2503.00307, appendix D.4). The budget's clock stands still meanwhile. Without blocks the block is the whole
canvas. Reduces to the locked-in rule at n = 0 or k = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.parts import REVISERS, Ranked, Reviser, Revision
from tabes.revisers.written import WhenWritten, least, probability, working_block, written
from tabes.settings import setting
from tabes.view import View

__all__ = ["Loop", "LoopState"]


@dataclass(frozen=True)
class LoopState(Batched):
    """How many calls the loop has had in the block it was last in."""

    block_B: Tensor
    calls_B: Tensor
    when_written: WhenWritten | None


@REVISERS.register("loop")
@dataclass(frozen=True)
class Loop(Reviser):
    """`loops` times `take_back` tokens are taken back and as many written, once `loop_share` of a block is written."""

    loop_share: float = setting(0.875, "share of a block that is written before it is looped over", above=0, most=1)
    loops: int = setting(32, "times tokens are taken back and written anew in every block", least=0, whole=True)
    take_back: int = setting(1, "tokens taken back at once", least=0, whole=True)
    certainty: str = setting(
        "now", "the probability of a written token: now, or when written", choices=("now", "written")
    )
    at_once: bool = setting(False, "whether one forward serves to take back and to write", choices=(False, True))
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})
    in_last_step: ClassVar[bool] = True

    def init(self, canvas: Canvas) -> LoopState:
        calls_B = torch.zeros_like(canvas.block_B)
        when_written = WhenWritten.create(canvas) if self.certainty == "written" else None
        return LoopState(calls_B - 1, calls_B, when_written)

    def rows(self, view: View) -> Tensor:
        if self.certainty == "written" or not self._calls:
            return torch.zeros_like(view.canvas.writable_BL)
        return written(view.canvas, working_block(view.canvas))

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: LoopState) -> tuple[Revision, LoopState]:
        block_B, calls_B, looping_B = self._rounds(view.canvas, state)
        certainty_BL, when_written = self._certainty(view, ranked, state)
        odd_B = calls_B % 2 == 1
        taking_B, writing_B = (looping_B, looping_B) if self.at_once else (looping_B & ~odd_B, looping_B & odd_B)
        remask_BL = least(certainty_BL, written(view.canvas, block_B), self.take_back * taking_B)
        best_BL = (ranked.rank_BL < self.take_back) & (view.canvas.block_BL == block_B[:, None])
        next_B = calls_B + looping_B
        # A block that the budget fills now is still to be looped over, so the canvas is not done when it is full.
        ahead_B = torch.where(looping_B, next_B, torch.where(block_B == view.canvas.block_B, calls_B, 0))
        revision = Revision(remask_BL, best_BL & writing_B[:, None], hold_B=looping_B, keep_B=ahead_B < self._calls)
        return revision, LoopState(block_B, next_B, when_written)

    @property
    def _calls(self) -> int:
        return self.loops * (1 if self.at_once else 2) * (self.take_back > 0)

    def _rounds(self, canvas: Canvas, state: LoopState) -> tuple[Tensor, Tensor, Tensor]:
        """(B,) each: the block that is or was looped over, the calls it had, and whether it gets one now."""
        within_B = (state.calls_B > 0) & (state.calls_B < self._calls)
        # Of a block that was taken back whole nothing is written, and yet it is the one.
        stays_B = within_B | (canvas.block_B == state.block_B)
        block_B = torch.where(stays_B, state.block_B, working_block(canvas))
        calls_B = torch.where(block_B == state.block_B, state.calls_B, 0)
        return block_B, calls_B, (calls_B < self._calls) & (within_B | self._reached(canvas, block_B))

    def _reached(self, canvas: Canvas, block_B: Tensor) -> Tensor:
        """(B,): whether enough of the block is written."""
        size_B = (canvas.writable_BL & (canvas.block_BL == block_B[:, None])).sum(1)
        written_B = written(canvas, block_B).sum(1)
        return (written_B > 0) & (written_B >= (self.loop_share * size_B.double()).floor())

    def _certainty(self, view: View, ranked: Ranked, state: LoopState) -> tuple[Tensor, WhenWritten | None]:
        if state.when_written is None:
            return probability(ranked.prediction.at(self.rows(view)), view.canvas.tokens_BL), None
        when_written = state.when_written.seen(view.canvas, ranked)
        return when_written.certainty_BL, when_written
