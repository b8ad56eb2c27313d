"""The most probable token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tabes.parts import WRITERS, Proposal, Writer
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["Argmax"]


@WRITERS.register("argmax")
@dataclass(frozen=True)
class Argmax(Writer):
    """argmax_v p_i(v); the lowest id of equal ones."""

    statistics: ClassVar[frozenset[str]] = frozenset({"top_token", "top_logit"})

    def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
        return Proposal(prediction.top_token_BL, prediction.top_logit_BL)
