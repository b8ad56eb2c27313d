"""The forward-backward corrector (Campbell et al. 2205.14987) in one update, as run in the ReMDM paper (2503.00307).

A step back from t to s, which reveals, and a step forward from s to t, which masks again:

    sigma = (alpha_s - alpha_t) / alpha_t  (1 where alpha_t = 0)         chances: ReMDM's posterior; alpha = 1 - t

On the even grid the second step masks everything again that the first revealed. In the last step sigma is beyond what
leaves chances (the mask's is negative, a token's above 1): everything is revealed, as the reference's draw has it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tabes.kernels.base import Chances, Kernel, Now
from tabes.kernels.remdm import posterior
from tabes.sampling import KERNELS

__all__ = ["ForwardBackward"]


@KERNELS.register("forward_backward")
@dataclass(frozen=True)
class ForwardBackward(Kernel):
    """Reveals twice as fast and masks again as much as that is too fast."""

    @property
    def revises(self) -> bool:
        return True

    def chances(self, now: Now, memory: Any) -> Chances:
        alpha_B, next_alpha_B = 1 - now.time_B, 1 - now.next_time_B
        sigma_B = torch.where(alpha_B > 0, (next_alpha_B - alpha_B) / alpha_B, 1.0)
        return posterior(alpha_B, next_alpha_B, sigma_B[:, None])
