"""Most confident first (MaskGIT, arXiv 2202.04200; LLaDA's low_confidence, arXiv 2502.09992).

    score_i = p_i(v_i)

with v_i the proposed token and p_i the model's own distribution: temperature and filters choose the token, not the
score. With argmax tokens and a vocabulary of two, confidence, margin and entropy give the same order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["Confidence"]


@RANKINGS.register("confidence")
@dataclass(frozen=True)
class Confidence(Ranking):
    """The probability of the proposed token."""

    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return proposal.confidence_BL(prediction)
