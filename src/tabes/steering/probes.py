"""Probes: the rows whose uncertainty is watched while candidates are tried. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.prediction import Prediction

__all__ = ["NoSignalWarning", "ProbeRule", "Probes"]

ProbeRule = Literal["masked", "block", "uncertain", "candidates"]


class NoSignalWarning(UserWarning):
    """A setting in which the score cannot say what its name promises."""


@dataclass(frozen=True)
class Probes:
    """All masked rows, those of the current block, the `count` most uncertain, or (as the paper says) the
    candidates."""

    rule: ProbeRule = "masked"
    count: int | None = None

    _RULES: ClassVar[tuple[str, ...]] = get_args(ProbeRule)

    def __post_init__(self) -> None:
        if self.rule not in self._RULES:
            raise UsageError(f"probes is {self.rule!r}; it must be one of {', '.join(self._RULES)}")
        if (self.rule == "uncertain") != (self.count is not None):
            raise UsageError(f"probes={self.rule!r} with probe_count={self.count}: 'uncertain' takes a count, no other")
        if self.count is not None and self.count < 1:
            raise UsageError(f"probe_count is {self.count}; it must be 1 or more")
        if self.rule == "candidates":
            text = "probes='candidates' is the paper's active set: its gradient carries nothing about any other row"
            warnings.warn(text, NoSignalWarning, stacklevel=4)

    def pool(self, canvas: Canvas) -> Tensor:
        """Rows among which the probes will be (B, L)."""
        return canvas.masked_BL if self.rule in ("masked", "uncertain") else canvas.open_BL

    def chosen(self, canvas: Canvas, prediction: Prediction, candidates_BL: Tensor) -> Tensor:
        """The probes (B, L)."""
        if self.rule == "candidates":
            return candidates_BL
        pool_BL = self.pool(canvas)
        if self.count is None:
            return pool_BL
        entropy_BL = torch.where(pool_BL, prediction.entropy_BL, -torch.inf)
        rank_BL = entropy_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return pool_BL & (rank_BL < self.count)
