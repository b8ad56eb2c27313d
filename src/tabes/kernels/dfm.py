"""The corrector of discrete flow matching (Gat et al. 2407.15595), as run in the ReMDM paper (2503.00307).

    beta_t = 10 t^(1/4) (1 - t)^(1/4),   a_t = 1 + beta_t,   alpha = 1 - t
    masked row:   P(reveal) = a_t (alpha_s - alpha_t) / (1 - alpha_t)
    written row:  P(mask again) = beta_t (alpha_s / alpha_t - 1)
    step:         t - s = min(1 / T, 1 / (a_t / t + beta_t / (1 - t))),   the first 1 / T;   while t > (1 - 1e-5) / T

The steps are as long as leaves chances, so there are more than T of them: 133 for T = 128, 259 for 256.
Reduces to `mdlm` for beta = 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from tabes.kernels.base import Chances, Kernel, Now
from tabes.sampling import KERNELS
from tabes.settings import setting

__all__ = ["DFM"]


@KERNELS.register("dfm")
@dataclass(frozen=True)
class DFM(Kernel):
    """Reveals faster than it has to and masks the surplus again, most of both half way."""

    beta: float = setting(10.0, "how much more is revealed and masked again", least=0, below=inf)

    @property
    def revises(self) -> bool:
        return self.beta > 0

    def grid(self, steps: int) -> Tensor:
        """Times as far apart as the chances allow; more steps than asked for."""
        times = [1.0, 1 - 1 / steps]
        while times[-1] > (1 - 1e-5) / steps:
            time = times[-1]
            beta = self.beta * (time * (1 - time)) ** 0.25
            times.append(time - min(1 / steps, 1 / ((1 + beta) / time + beta / (1 - time))))
        return torch.tensor(times, dtype=torch.float64)

    def chances(self, now: Now, memory: Any) -> Chances:
        time_B1, alpha_B1, next_alpha_B1 = (x[:, None] for x in (now.time_B, 1 - now.time_B, 1 - now.next_time_B))
        beta_B1 = self.beta * (time_B1 * alpha_B1) ** 0.25
        reveal_B1 = (1 + beta_B1) * (next_alpha_B1 - alpha_B1) / time_B1
        remask_B1 = torch.where(alpha_B1 > 0, beta_B1 * (next_alpha_B1 / alpha_B1 - 1), 0.0)
        return Chances(reveal_B1, remask_B1)
