"""Least uncertain first (what masked diffusion papers mean; Koh et al. 2024, whom they cite, visit the highest first).

    score_i = -H(p_i) = sum_v p_i(v) log p_i(v)

Reduces to confidence when there are only two tokens. See `tabes.rankings.local` for the noise and for whose p_i it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.parts import RANKINGS, Proposal
from tabes.prediction import Prediction
from tabes.rankings.local import Local
from tabes.view import View

__all__ = ["Entropy"]


@RANKINGS.register("entropy")
@dataclass(frozen=True)
class Entropy(Local):
    """Minus the entropy of the distribution, in nats."""

    measure: ClassVar[str] = "entropy"
    needs: ClassVar[frozenset[str]] = frozenset({"entropy"})

    def certainty(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return -prediction.entropy_BL

    def drawn(self, proposal: Proposal) -> Tensor:
        return -super().drawn(proposal)
