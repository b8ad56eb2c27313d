"""ReMDM-loop (arXiv 2503.00307): write most of it, stand still and replace tokens, write the rest.

    t > t_on:            mdlm on a faster clock, alpha = (1 - t) alpha_on / (1 - t_on)
    t_off < t <= t_on:   alpha stays alpha_on; written rows are masked again at sigma = min(eta, sigma_max)
    t <= t_off:          mdlm for the rest, alpha = 1 - t (1 - alpha_on) / t_off

The phase of a step is that of the time at which it begins, though it may end in the next one.
Reduces to an interrupted `mdlm` at eta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.kernels.base import Chances, Kernel, Now
from tabes.kernels.remdm import posterior
from tabes.remasking import sigma_max
from tabes.sampling import KERNELS
from tabes.settings import setting

__all__ = ["ReMDMLoop"]


@KERNELS.register("remdm_loop")
@dataclass(frozen=True)
class ReMDMLoop(Kernel):
    """Fills a share of the rows, then masks and reveals at that share for a while, then fills the rest."""

    eta: float = setting(0.055, "how often a written row is masked again while the loop lasts", least=0, most=1)
    t_on: float = setting(0.55, "the loop begins when the time falls to this", above=0, below=1)
    t_off: float = setting(0.05, "the loop ends when the time falls to this", above=0, below=1)
    alpha_on: float = setting(0.9, "the share that is written while the loop lasts", above=0, below=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.t_off > self.t_on:
            raise UsageError(f"t_off is {self.t_off} and t_on {self.t_on}; the loop must not end before it begins")

    @property
    def revises(self) -> bool:
        return self.eta > 0

    def chances(self, now: Now, memory: Any) -> Chances:
        alpha_B, next_alpha_B = self._alpha(now.time_B, now.time_B), self._alpha(now.next_time_B, now.time_B)
        loops_B = (now.time_B <= self.t_on) & (now.time_B > self.t_off)
        sigma_B = sigma_max(alpha_B, next_alpha_B).clamp(max=self.eta) * loops_B
        return posterior(alpha_B, next_alpha_B, sigma_B[:, None])

    def told(self, time_B: Tensor) -> Tensor:
        return 1 - self._alpha(time_B, time_B)

    def _alpha(self, time_B: Tensor, phase_B: Tensor) -> Tensor:
        """The share that is written at a time, by the formula of the phase that another time is in."""
        before_B = (1 - time_B) * self.alpha_on / (1 - self.t_on)
        after_B = 1 - time_B * (1 - self.alpha_on) / self.t_off
        alpha_B = torch.where(phase_B > self.t_off, torch.full_like(time_B, self.alpha_on), after_B)
        return torch.where(phase_B > self.t_on, before_B, alpha_B)
