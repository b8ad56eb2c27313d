"""A fresh random order at every step: what ancestral sampling of a masked diffusion model does, with the counts fixed.

score_i ~ U(0, 1)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["Random"]


@RANKINGS.register("random")
@dataclass(frozen=True)
class Random(Ranking):
    """One uniform number per row, from the batch row's own stream."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return view.uniform("ranking.random")
