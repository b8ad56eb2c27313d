"""Lookahead unmasking in the style of LookUM (arXiv 2511.05563), whose code is not public: what the text leaves open
was chosen here, so its numbers need not be ours.

    r(S) = -mean_j H(p_j | x with S written),    S_1 ... S_k drawn from the pool;    S ~ exp(r(S) n / tau), or the best

The pool are the `pool` most confident open rows (one more than are written, if that is more), or those at least
`pool_threshold` confident. A path is as many of them as the step writes, drawn by their confidence without replacement
(Plackett-Luce); the mean goes over what is still masked; n is the number of rows that may be written at all. Reduces to
confidence with one greedy path.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import torch
from torch import Tensor

from tabes.parts import RANKINGS
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.steering.candidates import top
from tabes.steering.foresight import Walk
from tabes.steering.path_ranking import PathRanking
from tabes.steering.paths import Paths, drawn, gumbel, nearest
from tabes.view import View

__all__ = ["Lookum"]

# Some draws are alike; what is missing then is made up by the greedy set's nearest.
_DRAWS = 2


@RANKINGS.register("lookum")
@dataclass(frozen=True)
class Lookum(PathRanking):
    """`paths` sets tried, one taken by importance resampling at the temperature `resampling`."""

    paths: int = setting(2, "sets of rows tried at a step", least=1, whole=True)
    pool: int | None = setting(5, "drawn from this many most confident rows; none: all", least=1, or_none=True)
    pool_threshold: float | None = setting(None, "drawn from rows at least this confident", least=0, most=1)
    greedy: bool = setting(True, "whether the most confident rows are one of the sets", choices=(False, True))
    verifier: Literal["entropy", "confidence"] = setting(
        "entropy", "what is averaged one step ahead", choices=("entropy", "confidence")
    )
    resampling: float = setting(0.0, "temperature of the draw among the sets tried; 0: the best", least=0, below=inf)

    @property
    def _statistic(self) -> Literal["entropy", "confidence"]:
        return self.verifier

    def _drawn(self, view: View, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Paths:
        pool_BL = self._pool(view.canvas.open_BL, confidence_BL, count_B)
        near = nearest(pool_BL, confidence_BL, count_B, self.paths)
        if self.greedy and self.paths == 1:
            return near
        noise_BTL = gumbel(view, "lookum.paths", _DRAWS * self.paths)
        log_BL = confidence_BL.double().clamp(min=1e-300).log()
        random = drawn(pool_BL, log_BL[:, None] + noise_BTL, count_B)
        first = nearest(pool_BL, confidence_BL, count_B, 1).then(random) if self.greedy else random
        return first.then(near).distinct(self.paths)

    def _pool(self, open_BL: Tensor, confidence_BL: Tensor, count_B: Tensor) -> Tensor:
        """One row more than are to be written, or nothing is left to choose; fewer only if the others are not sure."""
        pool_BL = open_BL
        if self.pool_threshold is not None:
            pool_BL = pool_BL & (confidence_BL >= self.pool_threshold)
        if self.pool is not None:
            pool_BL = top(pool_BL, confidence_BL, (count_B + 1).clamp(min=self.pool))
        return pool_BL | top(open_BL, confidence_BL, count_B)

    def _worth(self, prediction: Prediction, paths: Paths, walk: Walk) -> Tensor:
        mean_N = -walk.mean_N if self.verifier == "entropy" else walk.mean_N
        return walk.spread(mean_N, paths.valid_BK)

    def _chosen(self, view: View, worth_BK: Tensor) -> Tensor:
        if self.resampling == 0:
            return worth_BK.argmax(1)
        writable_BL = view.canvas.writable_BL
        scale_B1 = writable_BL.sum(1, keepdim=True).double() / self.resampling
        best_B1 = worth_BK.amax(1, keepdim=True).nan_to_num(neginf=0.0)
        cumulative_BK = ((worth_BK.double() - best_B1) * scale_B1).exp().cumsum(1)
        # One number for each batch row: that of its first row that may be written, wherever padding puts it.
        uniform_B1 = view.uniform("lookum.resampling").gather(1, writable_BL.long().argmax(1, keepdim=True))
        place_B1 = torch.searchsorted(cumulative_BK, uniform_B1 * cumulative_BK[:, -1:], right=True)
        return place_B1.squeeze(1).clamp(max=worth_BK.shape[1] - 1)
