"""MDLM's ancestral sampler (arXiv 2406.07524): every mask has a coin of its own, what is written stays.

    P(reveal) = (alpha_s - alpha_t) / (1 - alpha_t)         token ~ p_i

for a step from time t to s < t. With the log-linear schedule, whatever its eps, and with the linear one that is
(t - s) / t: MDLM's cached update (masking probability t), its uncached one ((1 - eps) t) and its score-based analytic
predictor are this one distribution. Reduces to everything at once, drawn independently, with one step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.kernels.base import Chances, Kernel, Now
from tabes.sampling import KERNELS
from tabes.schedules import SCHEDULES, PolynomialSchedule, Schedule
from tabes.settings import setting

__all__ = ["MDLM"]


@KERNELS.register("mdlm")
@dataclass(frozen=True)
class MDLM(Kernel):
    """Every masked row is revealed by its own coin, at the pace of a noise schedule; written rows stay."""

    schedule: str = setting("loglinear", "how the share that is masked falls with time", choices=tuple(SCHEDULES))
    power: float = setting(2.0, "of the polynomial schedule: 1 is linear, more writes sooner", above=0)
    cached: bool = setting(True, "no call of the network in steps that reveal nothing", choices=(True, False))

    @property
    def always_calls(self) -> bool:
        return not self.cached

    def chances(self, now: Now, memory: Any) -> Chances:
        schedule = self._schedule
        before_B, after_B = schedule.alpha(now.time_B), schedule.alpha(now.next_time_B)
        reveal_B1 = ((after_B - before_B) / (1 - before_B))[:, None]
        return Chances(reveal_B1, torch.zeros_like(reveal_B1))

    def told(self, time_B: Tensor) -> Tensor:
        """The share that is masked: the time itself, but for schedules along which masks do not fall evenly."""
        return time_B if self.schedule == "loglinear" else 1 - self._schedule.alpha(time_B)

    @property
    def _schedule(self) -> Schedule:
        return PolynomialSchedule(self.power) if self.schedule == "polynomial" else SCHEDULES[self.schedule]
