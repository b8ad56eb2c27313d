"""Probes: the rows whose uncertainty is watched while candidates are tried. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.prediction import Prediction
from tabes.settings import check, setting
from tabes.steering.candidates import share_of, top

__all__ = ["NoSignalWarning", "ProbeRule", "Probes"]

ProbeRule = Literal["masked", "block", "uncertain", "candidates"]


class NoSignalWarning(UserWarning):
    """A setting in which the score cannot say what its name promises."""


@dataclass(frozen=True)
class Probes:
    """All masked rows, those of the current block, the most uncertain, or (as the paper says) the candidates.

    Of the most uncertain there are `count`, or a `share` of the masked rows (rounded up).
    """

    rule: ProbeRule = setting("masked", "the rows whose uncertainty is watched", choices=get_args(ProbeRule))
    count: int | None = setting(None, 'how many probes, with probes="uncertain"', least=1, whole=True)
    share: float | None = setting(None, 'or which share of the masked rows, with probes="uncertain"', above=0, most=1)

    def __post_init__(self) -> None:
        check(self)
        if (self.count is not None) + (self.share is not None) != (self.rule == "uncertain"):
            given = f"probe_count={self.count} and probe_share={self.share}"
            raise UsageError(f"probes={self.rule!r} with {given}: 'uncertain' takes one of them, no other takes any")
        if self.rule == "candidates":
            text = "probes='candidates' is the paper's active set: its gradient carries nothing about any other row"
            warnings.warn(text, NoSignalWarning, stacklevel=4)

    def pool(self, canvas: Canvas) -> Tensor:
        """Rows among which the probes will be (B, L)."""
        return canvas.masked_BL if self.rule in ("masked", "uncertain") else canvas.open_BL

    def most_B(self, canvas: Canvas) -> Tensor:
        """How many probes there will be at most (B,)."""
        pool_B = self.pool(canvas).sum(1)
        if self.share is not None:
            return share_of(self.share, pool_B)
        return pool_B if self.count is None else pool_B.clamp(max=self.count)

    def chosen(self, canvas: Canvas, prediction: Prediction, candidates_BL: Tensor) -> Tensor:
        """The probes (B, L)."""
        if self.rule == "candidates":
            return candidates_BL
        pool_BL = self.pool(canvas)
        if self.rule != "uncertain":
            return pool_BL
        return top(pool_BL, prediction.entropy_BL, self.most_B(canvas))
