"""Candidates: the open rows that may compete on a costly score. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.prediction import Prediction

__all__ = ["Prefilter", "share_of", "top"]


@dataclass(frozen=True)
class Prefilter:
    """The best of the open rows by `by`, and the risk one is ready to take for steering.

    `rho` keeps a share of them, `most` so many for each row that is to be written. Let c be the confidence of the last
    row that confidence alone would write: `delta` keeps only rows at least as confident as c - delta, and where c is
    `sure` or more, or more than `writes` rows are to be written, nothing competes. As many rows as are written stay in.
    """

    by: Literal["confidence", "margin", "entropy"] = "confidence"
    rho: float | None = None
    delta: float | None = None
    most: int | None = None
    sure: float | None = None
    writes: int | None = None

    def __post_init__(self) -> None:
        if self.by not in ("confidence", "margin", "entropy"):
            raise UsageError(f"prefilter is {self.by!r}; it must be confidence, margin or entropy")
        if self.rho is not None and not 0 < self.rho <= 1:
            raise UsageError(f"rho is {self.rho}; it must be above 0 and at most 1")
        for name in ("delta", "sure"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UsageError(f"{name} is {value}; it must be between 0 and 1")
        for name, limit in (("candidates", self.most), ("writes", self.writes)):
            if limit is not None and limit < 1:
                raise UsageError(f"{name} is {limit}; it must be 1 or more")

    def chosen(self, open_BL: Tensor, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Tensor:
        """(B, L)."""
        open_B = open_BL.sum(1)
        count_B = torch.minimum(count_B, open_B)
        limit_B = open_B if self.rho is None else share_of(self.rho, open_B)
        if self.most is not None:
            limit_B = torch.minimum(limit_B, self.most * count_B)
        chosen_BL = top(open_BL, self._value(prediction, confidence_BL), torch.maximum(limit_B, count_B))
        if self.delta is None and self.sure is None and self.writes is None:
            return chosen_BL
        plain_BL = top(open_BL, confidence_BL, count_B)
        last_B1 = torch.where(plain_BL, confidence_BL, torch.inf).amin(1, keepdim=True)
        if self.delta is not None:
            chosen_BL &= confidence_BL >= last_B1 - self.delta
        if self.sure is not None:
            chosen_BL &= last_B1 < self.sure
        if self.writes is not None:
            chosen_BL &= count_B[:, None] <= self.writes
        return chosen_BL | plain_BL

    def _value(self, prediction: Prediction, confidence_BL: Tensor) -> Tensor:
        if self.by == "confidence":
            return confidence_BL
        return prediction.margin_BL if self.by == "margin" else -prediction.entropy_BL


def share_of(share: float, count_B: Tensor) -> Tensor:
    """That share of every count, rounded up; 7 % of 100 are 7, although 0.07 * 100 is a little more."""
    return (share * count_B.double() - 1e-9).ceil().long()


def top(open_BL: Tensor, value_BL: Tensor, count_B: Tensor) -> Tensor:
    """The `count_B` open rows of the largest value, the lowest row first among equals."""
    key_BL = torch.where(open_BL, value_BL, -torch.inf)
    rank_BL = key_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    return open_BL & (rank_BL < count_B[:, None])
