"""Candidates: the open rows that may compete on a costly score. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.prediction import Prediction

__all__ = ["Prefilter", "top"]


@dataclass(frozen=True)
class Prefilter:
    """The best of the open rows by `by`: a share `rho` of them, and not less confident than the risk `delta` allows.

    `delta`: only rows whose confidence is within delta of that of the last row that would be written anyway. At least
    as many rows as are written stay in.
    """

    by: Literal["confidence", "margin", "entropy"] = "confidence"
    rho: float | None = None
    delta: float | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.by not in ("confidence", "margin", "entropy"):
            raise UsageError(f"prefilter is {self.by!r}; it must be confidence, margin or entropy")
        if self.rho is not None and not 0 < self.rho <= 1:
            raise UsageError(f"rho is {self.rho}; it must be above 0 and at most 1")
        if self.delta is not None and not 0 <= self.delta <= 1:
            raise UsageError(f"delta is {self.delta}; it must be between 0 and 1")
        if self.most is not None and self.most < 1:
            raise UsageError(f"candidates is {self.most}; it must be 1 or more")

    def chosen(self, open_BL: Tensor, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Tensor:
        """(B, L)."""
        if self.by == "confidence":
            value_BL = confidence_BL
        else:
            value_BL = prediction.margin_BL if self.by == "margin" else -prediction.entropy_BL
        n_B = open_BL.sum(1)
        limit_B = n_B if self.rho is None else (self.rho * n_B).ceil().long()
        if self.most is not None:
            limit_B = limit_B.clamp(max=self.most)
        limit_B = torch.minimum(torch.maximum(limit_B, count_B), n_B)
        chosen_BL = top(open_BL, value_BL, limit_B)
        if self.delta is None:
            return chosen_BL
        sure_BL = top(open_BL, confidence_BL, torch.minimum(count_B, n_B))
        last_B = torch.where(sure_BL, confidence_BL, torch.inf).amin(1)
        return chosen_BL & (confidence_BL >= last_B[:, None] - self.delta) | sure_BL


def top(open_BL: Tensor, value_BL: Tensor, count_B: Tensor) -> Tensor:
    """The `count_B` open rows of the largest value, the lowest row first among equals."""
    key_BL = torch.where(open_BL, value_BL, -torch.inf)
    rank_BL = key_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return open_BL & (rank_BL < count_B[:, None])
