"""Rank correlations of a score with the truth, over pairs that come in groups, and what chance does to them.

The bootstrap draws groups (states) with repeats. Both coefficients are written in how often a group was drawn, so that
thousands of draws are a few matrix products instead of thousands of sorts. Shapes: N pairs, S groups, D draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Draws", "Estimate", "Groups"]

Floats = NDArray[np.float64]

_DRAWS = 2_000
_LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None


class Draws:
    """How often each of S groups was drawn (D, S): the first draw is the sample itself, the others are resamples."""

    def __init__(self, groups: int) -> None:
        rng = np.random.default_rng(0)
        resampled = rng.multinomial(groups, np.full(groups, 1 / groups), size=_DRAWS)
        self.counts_DS: Floats = np.vstack([np.ones(groups), resampled])

    def estimate(self, values_D: Floats) -> Estimate:
        """The value of the sample and the percentiles of the resamples."""
        drawn = values_D[1:][np.isfinite(values_D[1:])]
        if not np.isfinite(values_D[0]) or not len(drawn):
            return Estimate(None, None, None)
        low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
        return Estimate(float(values_D[0]), float(low), float(high))

    def mean(self, values_S: Floats) -> Estimate:
        """Over the groups where there is a value."""
        return self.ratio(np.nan_to_num(values_S), np.isfinite(values_S).astype(np.float64))

    def ratio(self, top_S: Floats, bottom_S: Floats) -> Estimate:
        """Of the two sums."""
        return self.estimate(_divided(self.counts_DS @ top_S, self.counts_DS @ bottom_S))


class Groups:
    """Scores and truths of each group, one beside the other.

    A constant score ranks nothing and correlates 0; with a constant truth there is nothing to rank (NaN).
    """

    def __init__(self, scores: Sequence[Sequence[float]], truths: Sequence[Sequence[float]]) -> None:
        sizes = [len(own) for own in truths]
        self.starts_S = np.cumsum([0, *sizes[:-1]])
        self.group_N = np.repeat(np.arange(len(sizes)), sizes)
        # Larger, equal or smaller is all that ranks know; one byte a pair.
        self.score_NN, self.truth_NN = _signs(np.concatenate(scores)), _signs(np.concatenate(truths))

    def spearman(self, counts_DS: Floats) -> Floats:
        """(D,): the correlation of the ranks, equal values sharing theirs."""
        weight_DN = counts_DS[:, self.group_N]
        score_DN, truth_DN = (counts_DS @ self._by_group(signs_NN).T for signs_NN in (self.score_NN, self.truth_NN))
        together, score, truth = (
            (weight_DN * product_DN).sum(1) for product_DN in (score_DN * truth_DN, score_DN**2, truth_DN**2)
        )
        return _correlation(together, score, truth)

    def kendall(self, counts_DS: Floats) -> Floats:
        """(D,): tau-b, concordant less discordant pairs over those that are not tied."""
        products = (self.score_NN * self.truth_NN, self.score_NN**2, self.truth_NN**2)
        sums_SS = (np.add.reduceat(self._by_group(product_NN), self.starts_S, axis=0) for product_NN in products)
        together, score, truth = (((counts_DS @ sum_SS) * counts_DS).sum(1) for sum_SS in sums_SS)
        return _correlation(together, score, truth)

    def _by_group(self, signs_NN: NDArray[np.int8]) -> Floats:
        """(N, S): summed over the second of each pair."""
        return np.add.reduceat(signs_NN, self.starts_S, axis=1, dtype=np.float64)


def _signs(values_N: Floats) -> NDArray[np.int8]:
    signs: NDArray[np.int8] = np.greater.outer(values_N, values_N).astype(np.int8)
    return signs - signs.T


def _correlation(together: Floats, score: Floats, truth: Floats) -> Floats:
    found = np.where(score > 0, _divided(together, np.sqrt(score * truth)), 0.0)
    return np.where(truth > 0, found, np.nan)


def _divided(top: Floats, bottom: Floats) -> Floats:
    """NaN where it is not defined, without a warning."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)
