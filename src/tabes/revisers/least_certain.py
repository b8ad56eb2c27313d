"""Takes back the least certain tokens, a fixed number at every step; the budget writes as many more.

    take back the k written rows of the block with the lowest psi

psi is the probability of the token that stands there, as it is now or as it was when it was written: ReMDM's confidence
(arXiv 2503.00307, section 4.1) with a count in place of its noise schedule, and, like its switch, only within a window
of times. Reduces to the locked-in rule at k = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.parts import REVISERS, Ranked, Reviser, Revision
from tabes.revisers.written import WhenWritten, least, probability, written
from tabes.settings import setting
from tabes.view import View

__all__ = ["LeastCertain"]


@REVISERS.register("least_certain")
@dataclass(frozen=True)
class LeastCertain(Reviser):
    """The `take_back` least certain written tokens are masked again at every step."""

    take_back: int = setting(1, "tokens taken back at once", least=0, whole=True)
    certainty: str = setting(
        "now", "the probability of a written token: now, or when written", choices=("now", "written")
    )
    revise_from: float = setting(1.0, "starts when no more than this share is masked", least=0, most=1)
    revise_until: float = setting(0.0, "stops when no more than this share is masked", least=0, most=1)
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def init(self, canvas: Canvas) -> WhenWritten | None:
        return WhenWritten.create(canvas) if self.certainty == "written" else None

    def rows(self, view: View) -> Tensor:
        if self.certainty == "written" or not self.take_back:
            return torch.zeros_like(view.canvas.writable_BL)
        return written(view.canvas, view.canvas.block_B) & self._active(view)[:, None]

    def revise(
        self, view: View, ranked: Ranked, write_BL: Tensor, state: WhenWritten | None
    ) -> tuple[Revision, WhenWritten | None]:
        canvas = view.canvas
        if state is None:
            certainty_BL = probability(ranked.prediction.at(self.rows(view)), canvas.tokens_BL)
        else:
            state = state.seen(canvas, ranked)
            certainty_BL = state.certainty_BL
        # As many more are written as are taken back, so they must find masks besides those that would be written.
        room_B = ranked.open_BL.sum(1) - write_BL.sum(1).clamp(min=1)
        count_B = room_B.clamp(min=0, max=self.take_back) * self._active(view)
        return Revision(least(certainty_BL, written(canvas, canvas.block_B), count_B)), state

    def _active(self, view: View) -> Tensor:
        return (view.time_B <= self.revise_from) & (view.time_B > self.revise_until)
