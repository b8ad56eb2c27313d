"""Rows in, numbers out: how well each score predicts the truth. Shapes: S states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np

from tabes.bench.fidelity.correlation import Draws, Estimate, Floats, Groups
from tabes.bench.fidelity.rows import StateRow
from tabes.errors import UsageError

__all__ = ["Correlations", "Fidelity", "correlations", "summarise"]

_ONE = np.ones((1, 1))


@dataclass(frozen=True)
class Correlations:
    """Rank correlations: the mean of those inside each state, and over all candidates of all states together."""

    spearman: Estimate
    kendall: Estimate
    pooled_spearman: Estimate
    pooled_kendall: Estimate


@dataclass(frozen=True)
class Fidelity:
    """How well one score predicts the exact drop.

    The first pick is the candidate of the largest score. `share` is the sum of its drops over the sum of the best
    ones, `regret` the mean of what it misses, `best` how often it is the best. `cost` is in full forwards per state.
    """

    score: str
    states: int
    correlations: Correlations
    share: Estimate
    regret: Estimate
    best: Estimate
    cost: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        return {"score": found.pop("score"), "states": found.pop("states"), **found.pop("correlations"), **found}


def summarise(rows: Sequence[StateRow]) -> tuple[Fidelity, ...]:
    """A summary per score, in the order of the rows."""
    if not rows:
        raise UsageError("there are no states to report on; measure some first")
    draws = Draws(len(rows))
    return tuple(_fidelity(name, rows, draws) for name in rows[0].scores)


def _fidelity(name: str, rows: Sequence[StateRow], draws: Draws) -> Fidelity:
    # Equal scores: the lowest row, as everywhere.
    picked_S = np.array([row.truth[int(np.argmax(row.scores[name]))] for row in rows])
    best_S = np.array([max(row.truth) for row in rows])
    return Fidelity(
        score=name,
        states=len(rows),
        correlations=correlations([row.scores[name] for row in rows], [row.truth for row in rows], draws),
        share=draws.ratio(picked_S, best_S),
        regret=draws.mean(best_S - picked_S),
        best=draws.mean((best_S == picked_S).astype(np.float64)),
        cost=fmean(row.cost[name] for row in rows),
    )


def correlations(scores: Sequence[Sequence[float]], truths: Sequence[Sequence[float]], draws: Draws) -> Correlations:
    """Of the scores with the truths, state by state."""
    each = [Groups([score], [truth]) for score, truth in zip(scores, truths, strict=True)]
    pooled = Groups(scores, truths)
    return Correlations(
        spearman=draws.mean(_joined([state.spearman(_ONE) for state in each])),
        kendall=draws.mean(_joined([state.kendall(_ONE) for state in each])),
        pooled_spearman=draws.estimate(pooled.spearman(draws.counts_DS)),
        pooled_kendall=draws.estimate(pooled.kendall(draws.counts_DS)),
    )


def _joined(values: Sequence[Floats]) -> Floats:
    return np.concatenate(values)
