"""ReMDM's rates of masking written rows again (arXiv 2503.00307): sigma, for a step from time t to s < t.

    sigma_max = min(1, (1 - alpha_s) / alpha_t)         beyond it more would be taken back than can be revealed in time
    cap:      sigma = min(eta, sigma_max)
    rescale:  sigma = eta sigma_max
    conf:     sigma_i = softmax_i(-psi_i) eta sigma_max      psi_i: the probability token i had when revealed

The softmax runs over the written rows, so that `conf` takes back about one token per step at most. eta = 0 takes back
nothing. All in float64. Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["AUTHORS_ETA", "RATES", "sigma_max"]


def sigma_max(alpha_B: Tensor, next_alpha_B: Tensor) -> Tensor:
    """The largest sigma that leaves every chance of the step between 0 and 1."""
    return ((1 - next_alpha_B) / alpha_B).clamp(max=1.0)


def _cap(eta: float, most_B: Tensor, psi_BL: Tensor, written_BL: Tensor) -> Tensor:
    return most_B.clamp(max=eta)[:, None].expand(written_BL.shape)


def _rescale(eta: float, most_B: Tensor, psi_BL: Tensor, written_BL: Tensor) -> Tensor:
    return (eta * most_B)[:, None].expand(written_BL.shape)


def _conf(eta: float, most_B: Tensor, psi_BL: Tensor, written_BL: Tensor) -> Tensor:
    share_BL = torch.where(written_BL, -psi_BL.double(), -torch.inf).softmax(1)
    return torch.where(written_BL, share_BL * (eta * most_B)[:, None], 0.0)


RATES: dict[str, Callable[[float, Tensor, Tensor, Tensor], Tensor]] = {"cap": _cap, "rescale": _rescale, "conf": _conf}
"""(eta, sigma_max (B,), psi (B, L), which rows are written (B, L)) -> sigma (B, L); `conf` has 0 at masked rows."""

AUTHORS_ETA = {"cap": 0.04, "rescale": 0.045, "conf": 1.0}
"""With fewer steps than tokens (128 to 512 steps for 1024 tokens); with more: 0.008, 0.015, 1."""
