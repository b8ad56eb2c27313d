"""Probes: the rows whose uncertainty is watched while candidates are tried. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.prediction import Prediction
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

    rule: ProbeRule = "masked"
    count: int | None = None
    share: float | None = None

    _RULES: ClassVar[tuple[str, ...]] = get_args(ProbeRule)

    def __post_init__(self) -> None:
        if self.rule not in self._RULES:
            raise UsageError(f"probes is {self.rule!r}; it must be one of {', '.join(self._RULES)}")
        if (self.count is not None) + (self.share is not None) != (self.rule == "uncertain"):
            given = f"probe_count={self.count} and probe_share={self.share}"
            raise UsageError(f"probes={self.rule!r} with {given}: 'uncertain' takes one of them, no other takes any")
        if self.count is not None and self.count < 1:
            raise UsageError(f"probe_count is {self.count}; it must be 1 or more")
        if self.share is not None and not 0 < self.share <= 1:
            raise UsageError(f"probe_share is {self.share}; it must be above 0 and at most 1")
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
