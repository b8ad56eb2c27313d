"""Information gain (arXiv 2602.18176): what writing a set teaches about the rest, less what is guessed by writing it.

    J(S) = -mean_j H(p_j | x with S written) - charge sum_{i in S} H(p_i)

over the most confident rows and sets drawn near them (largest p_i(v_i) / position_temperature + Gumbel noise), equal
ones tried once; the best is written. `charge` 0 is the authors' "lookum" variant; their bypass where every open row is
sure is the budget `all_sure`. Reduces to confidence with one candidate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from tabes.parts import RANKINGS
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.steering.foresight import Walk
from tabes.steering.path_ranking import PathRanking
from tabes.steering.paths import Paths, drawn, gumbel, nearest
from tabes.view import View

__all__ = ["InfoGain"]


@RANKINGS.register("info_gain")
@dataclass(frozen=True)
class InfoGain(PathRanking):
    """`candidates` sets, the first of them the most confident rows."""

    candidates: int = setting(8, "sets of rows drawn at a step, the most confident one included", least=1, whole=True)
    position_temperature: float = setting(
        0.2, "how far from the most confident rows sets are drawn; 0: none are", least=0, below=inf
    )
    charge: float = setting(1.0, "weight of the entropy of the rows written; 0: their 'lookum' variant", least=0)

    @property
    def statistics(self) -> frozenset[str]:  # type: ignore[override]
        """The proposals' confidence and the rows' own entropy."""
        return frozenset({"log_normaliser", "entropy"})

    def _drawn(self, view: View, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Paths:
        open_BL = view.canvas.open_BL
        paths = nearest(open_BL, confidence_BL, count_B, 1)
        if self.candidates > 1 and self.position_temperature > 0:
            noise_BTL = gumbel(view, "info_gain.candidates", self.candidates - 1)
            key_BTL = confidence_BL.double()[:, None] / self.position_temperature + noise_BTL
            paths = paths.then(drawn(open_BL, key_BTL, count_B)).distinct(self.candidates)
        return paths

    def _worth(self, prediction: Prediction, paths: Paths, walk: Walk) -> Tensor:
        cost_BK = torch.einsum("bkl,bl->bk", paths.write_BKL.float(), prediction.entropy_BL.float())
        return walk.spread(-walk.mean_N, paths.valid_BK) - self.charge * cost_BK
