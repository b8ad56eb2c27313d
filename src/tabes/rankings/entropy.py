"""Least uncertain first (what masked diffusion papers mean; Koh et al. 2024, whom they cite, visit the highest first).

    score_i = -H(p_i) = sum_v p_i(v) log p_i(v)

Reduces to confidence when there are only two tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["Entropy"]


@RANKINGS.register("entropy")
@dataclass(frozen=True)
class Entropy(Ranking):
    """Minus the entropy of the distribution, in nats."""

    statistics: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return -prediction.entropy_BL
