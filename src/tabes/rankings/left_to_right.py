"""The lowest open row first: the order of an autoregressive model.

score_i = -i
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["LeftToRight"]


@RANKINGS.register("left_to_right")
@dataclass(frozen=True)
class LeftToRight(Ranking):
    """Minus the position."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return -view.canvas.positions_BL.float()
