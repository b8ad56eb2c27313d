"""Clearest winner first (Kim et al., arXiv 2502.06768; Dream's topk_margin, 2508.15487).

    score_i = p_i(v1) - p_i(v2)

with v1 and v2 the two most probable tokens. Reduces to confidence when there are only two tokens (2 p - 1).
See `tabes.rankings.local` for the noise and for whose p_i it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.parts import RANKINGS, Proposal
from tabes.prediction import Prediction
from tabes.rankings.local import Local
from tabes.view import View

__all__ = ["Margin"]


@RANKINGS.register("margin")
@dataclass(frozen=True)
class Margin(Local):
    """The lead of the most probable token over the second."""

    measure: ClassVar[str] = "margin"
    needs: ClassVar[frozenset[str]] = frozenset({"margin"})

    def certainty(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return prediction.margin_BL
