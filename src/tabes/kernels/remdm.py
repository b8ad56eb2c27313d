"""ReMDM (arXiv 2503.00307): the ancestral sampler in which every written row may be masked again by a coin of its own.

    written row:  P(mask again) = sigma
    masked row:   P(reveal) = (alpha_s - (1 - sigma) alpha_t) / (1 - alpha_t)         alpha = 1 - t

so that as many rows are masked at every time as without it. sigma: see `tabes.remasking` (cap, rescale, conf); with
`switch` it is 0 before the time falls below that. A row that was masked again is predicted afresh later. In `conf`
masked rows have no confidence and sigma 0: nothing makes up for what is taken back, so masks fall later than that.
Reduces to `mdlm` at eta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.kernels.base import Chances, Drawn, Kernel, Now
from tabes.remasking import AUTHORS_ETA, RATES, sigma_max
from tabes.sampling import KERNELS
from tabes.settings import setting

__all__ = ["ReMDM", "WhenRevealed", "posterior"]


@dataclass(frozen=True)
class WhenRevealed(Batched):
    """psi: the (tempered and filtered) probability every token had when it was drawn."""

    psi_BL: Tensor


@KERNELS.register("remdm")
@dataclass(frozen=True)
class ReMDM(Kernel):
    """Masked rows are revealed by coins, and written rows are masked again by coins."""

    rate: str = setting("cap", "how often written rows are masked again", choices=tuple(RATES))
    eta: float | None = setting(None, "scale of that rate; none: the authors' for the rate", least=0, most=1)
    switch: float = setting(1.0, "nothing is masked again before the time falls below this", least=0, most=1)

    @property
    def revises(self) -> bool:
        return self._eta > 0 and self.switch > 0

    @property
    def wants_probability(self) -> bool:
        return self.rate == "conf"

    def begin(self, canvas: Canvas) -> WhenRevealed:
        return WhenRevealed(torch.zeros(canvas.tokens_BL.shape, device=canvas.tokens_BL.device))

    def remembered(self, memory: WhenRevealed, drawn: Drawn) -> WhenRevealed:
        if drawn.probability_BL is None:
            return memory
        return WhenRevealed(torch.where(drawn.rows_BL, drawn.probability_BL, memory.psi_BL))

    def chances(self, now: Now, memory: Any) -> Chances:
        alpha_B, next_alpha_B = 1 - now.time_B, 1 - now.next_time_B
        most_B = sigma_max(alpha_B, next_alpha_B) * (now.time_B < self.switch)
        return posterior(alpha_B, next_alpha_B, RATES[self.rate](self._eta, most_B, memory.psi_BL, now.written_BL))

    @property
    def _eta(self) -> float:
        return AUTHORS_ETA[self.rate] if self.eta is None else self.eta


def posterior(alpha_B: Tensor, next_alpha_B: Tensor, sigma_BL: Tensor) -> Chances:
    """The chances of a step from alpha_t to alpha_s at which written rows are masked again at the rate sigma."""
    alpha_B1, next_alpha_B1 = alpha_B[:, None], next_alpha_B[:, None]
    return Chances((next_alpha_B1 - (1 - sigma_BL) * alpha_B1) / (1 - alpha_B1), sigma_BL)
