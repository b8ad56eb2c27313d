"""ReMDM's coins for any ranking (arXiv 2503.00307): every written row of the block is masked again with chance sigma.

    sigma as in `tabes.remasking` (cap, rescale, conf) for a step from time t to s

t is the share of the block that is masked, s the share that the budget is about to leave; psi in `conf` is the
probability of a token when it was written. The budget writes as many more as are taken back, so that masks grow fewer
on time as they do in ReMDM on average; where there are not as many masks, the rows whose coins fell lowest go first.
Reduces to the locked-in rule at eta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.canvas import Canvas
from tabes.parts import REVISERS, Ranked, Reviser, Revision
from tabes.remasking import AUTHORS_ETA, RATES, sigma_max
from tabes.revisers.written import WhenWritten, least, written
from tabes.settings import setting
from tabes.view import View

__all__ = ["ReMDM"]


@REVISERS.register("remdm")
@dataclass(frozen=True)
class ReMDM(Reviser):
    """Written tokens are masked again by coins, at a rate that follows the share that is masked."""

    rate: str = setting("cap", "how often written rows are masked again", choices=tuple(RATES))
    eta: float | None = setting(None, "scale of that rate; none: the authors' for the rate", least=0, most=1)
    switch: float = setting(1.0, "nothing is masked again before the share masked falls below this", least=0, most=1)
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def init(self, canvas: Canvas) -> WhenWritten:
        return WhenWritten.create(canvas)

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: WhenWritten) -> tuple[Revision, WhenWritten]:
        canvas, state = view.canvas, state.seen(view.canvas, ranked)
        written_BL = written(canvas, canvas.block_B)
        sigma_BL = self._sigma(written_BL, ranked.open_BL, write_BL, state.certainty_BL)
        coin_BL = view.uniform("reviser.remdm")
        taken_BL = written_BL & (coin_BL < sigma_BL)
        # As many more are written as are taken back, so they must find masks besides those that would be written.
        room_B = (ranked.open_BL.sum(1) - write_BL.sum(1).clamp(min=1)).clamp(min=0)
        return Revision(least(coin_BL / sigma_BL, taken_BL, room_B)), state

    def _sigma(self, written_BL: Tensor, open_BL: Tensor, write_BL: Tensor, psi_BL: Tensor) -> Tensor:
        masks_B, size_B = open_BL.sum(1).double(), (open_BL | written_BL).sum(1)
        time_B, next_time_B = masks_B / size_B, (masks_B - write_BL.sum(1)) / size_B
        eta = AUTHORS_ETA[self.rate] if self.eta is None else self.eta
        most_B = sigma_max(1 - time_B, 1 - next_time_B) * (time_B < self.switch)
        return RATES[self.rate](eta, most_B, psi_BL, written_BL)
