"""Orders of rows that float32 keeps. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["differ", "in_front"]


def differ(candidates_BL: Tensor, drops_BL: Tensor) -> Tensor:
    """(B,): whether the drops say anything. With nothing to watch all are 0, and that is no reason to choose."""
    largest_B = torch.where(candidates_BL, drops_BL, -torch.inf).amax(1)
    return largest_B > torch.where(candidates_BL, drops_BL, torch.inf).amin(1)


def in_front(first_BL: Tensor, scores_BL: Tensor, then_BL: Tensor) -> Tensor:
    """Scores where `first_BL`; all other rows behind these, in the order of `then_BL`.

    They are counted down, not shifted: a shift in float32 makes equals of rows that differ by little.
    """
    most = torch.finfo(torch.float32).max / 4
    lowest_B1 = torch.where(first_BL, scores_BL, torch.inf).amin(1, keepdim=True).clamp(-most, most)
    place_BL = torch.where(first_BL, -torch.inf, then_BL).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    step_B1 = (lowest_B1.abs() * 2.0**-20).clamp(min=1.0)
    return torch.where(first_BL, scores_BL, lowest_B1 - step_B1 * (place_BL + 1))
