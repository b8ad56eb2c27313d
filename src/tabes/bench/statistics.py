"""How sure a paired difference is: both rules decoded the same items, so what counts is the items they differ on.

For scores that are 0 or 1, the adjusted Wald interval of Bonett and Price (2012, J. Educ. Behav. Stat. 37) and the
exact McNemar test. It stays honest when the rules hardly differ, where a bootstrap of all-equal items has width zero.
For any other score, the percentile bootstrap over items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tabes.errors import UsageError

__all__ = ["Difference", "paired_difference"]

_DRAWS = 10_000
_SEED = 0
_CHUNK = 1000  # draws at a time, so that thousands of items do not fill the memory


@dataclass(frozen=True)
class Difference:
    """Mean of (this - first) over the same items, with its interval. `wins`: items where this one scored higher.

    `p_value` is the exact McNemar test's, None for scores that are not 0 or 1.
    """

    difference: float
    low: float
    high: float
    wins: int
    losses: int
    p_value: float | None
    level: float
    method: str


def paired_difference(first: Sequence[float], this: Sequence[float], *, level: float = 0.95) -> Difference:
    """How much better `this` is than `first`, item by item."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(this, dtype=np.float64)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise UsageError(f"paired scores need the same items, at least one: got {a.shape} and {b.shape}")
    gaps = b - a
    wins, losses = int((gaps > 0).sum()), int((gaps < 0).sum())
    if np.isin(np.concatenate([a, b]), (0.0, 1.0)).all():
        low, high = _bonett_price(wins, losses, len(gaps), level)
        return Difference(float(gaps.mean()), low, high, wins, losses, _mcnemar(wins, losses), level, "Bonett-Price")
    low, high = _bootstrap(gaps, level)
    return Difference(float(gaps.mean()), low, high, wins, losses, None, level, "paired bootstrap")


def _bonett_price(wins: int, losses: int, items: int, level: float) -> tuple[float, float]:
    """The Wald interval after adding one win and one loss."""
    win, loss = (wins + 1) / (items + 2), (losses + 1) / (items + 2)
    centre = win - loss
    reach = NormalDist().inv_cdf(0.5 + level / 2) * sqrt((win + loss - centre**2) / (items + 2))
    return max(-1.0, centre - reach), min(1.0, centre + reach)


def _mcnemar(wins: int, losses: int) -> float:
    """Two-sided exact test: were wins and losses equally likely, how often would they be this uneven?"""
    trials, rarer = wins + losses, min(wins, losses)
    tail = sum(comb(trials, k) for k in range(rarer + 1))
    return float(min(1.0, 2 * tail / 2**trials))


def _bootstrap(gaps: NDArray[np.float64], level: float) -> tuple[float, float]:
    rng = np.random.default_rng(_SEED)
    means = [gaps[rng.integers(len(gaps), size=(_CHUNK, len(gaps)))].mean(1) for _ in range(_DRAWS // _CHUNK)]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
