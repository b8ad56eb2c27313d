"""Candidates: the open rows that may compete on a costly score. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from tabes.prediction import Prediction
from tabes.settings import check, setting

__all__ = ["By", "Prefilter", "share_of", "top"]

By = Literal["confidence", "margin", "entropy"]


@dataclass(frozen=True)
class Prefilter:
    """The best of the open rows by `by`, and the risk one is ready to take for steering.

    `rho` keeps a share of them, `most` so many for each row that is to be written. Let c be the confidence of the last
    row that confidence alone would write: `delta` keeps only rows at least as confident as c - delta, and where c is
    `sure` or more, or more than `writes` rows are to be written, nothing competes. As many rows as are written stay in.
    """

    by: By = setting("confidence", "orders the rows from which candidates are taken", choices=get_args(By))
    rho: float | None = setting(None, "the share of the open rows that may compete", above=0, most=1)
    delta: float | None = setting(
        None,
        "only rows within this much of the last confidence that is written without steering",
        least=0,
        most=1,
    )
    most: int | None = setting(None, "how many rows compete for each token to write", least=1, whole=True)
    sure: float | None = setting(
        None, "nothing competes where the last row that confidence would write is this confident", least=0, most=1
    )
    writes: int | None = setting(None, "nothing competes where more tokens than this are written", least=1, whole=True)

    def __post_init__(self) -> None:
        check(self)

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
