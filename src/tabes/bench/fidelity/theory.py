"""The paper's theorem and its corollary, measured.

    |drop of the relaxed path - TIS| <= M/2,      TIS_i - TIS_j > M  =>  the relaxed drop of i is larger

M is the largest curvature on the path; what is measured is its largest second difference on a grid, a lower bound of
it, so that a bound that holds with it holds. Shapes: N candidates of all states, P pairs inside states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tabes.bench.fidelity.correlation import Draws, Floats
from tabes.bench.fidelity.report import Correlations, correlations
from tabes.bench.fidelity.rows import StateRow

__all__ = ["Corollary", "Theory", "examine"]


@dataclass(frozen=True)
class Corollary:
    """How often the gap of a pair exceeds M, so that the corollary says something, and how often it is right then."""

    bites: int
    share: float
    right: float | None


@dataclass(frozen=True)
class Theory:
    """What the theorem promises, and what it is worth.

    `tightness` is the mean error over the mean bound (1 would be tight). `ordered` is how often the order of a pair by
    TIS is right, bite or no bite. `of_pair` takes the larger M of the two, `of_state` the largest of the state.
    `to_relaxed` correlates TIS with the drop of the relaxed path, `to_exact` that drop with the exact one.
    """

    candidates: int
    holds: float
    mean_curvature: float
    mean_drop: float
    mean_error: float
    tightness: float | None
    pairs: int
    ordered: float
    of_pair: Corollary
    of_state: Corollary
    to_relaxed: Correlations
    to_exact: Correlations

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def examine(rows: Sequence[StateRow]) -> Theory | None:
    """None where the relaxed paths were not measured."""
    curves = [row.curve for row in rows if row.curve is not None]
    if not curves or len(curves) < len(rows):
        return None
    first, relaxed = [curve.first_order for curve in curves], [curve.relaxed for curve in curves]
    tis_N, drop_N = np.concatenate(first), np.concatenate(relaxed)
    curvature_N = np.concatenate([curve.curvature for curve in curves])
    error_N, bound_N, draws = np.abs(drop_N - tis_N), curvature_N / 2, Draws(len(rows))
    right_P, gap_P, pair_P, state_P = _pairs(rows)
    return Theory(
        candidates=len(tis_N),
        holds=float((error_N <= bound_N).mean()),
        mean_curvature=float(curvature_N.mean()),
        mean_drop=float(drop_N.mean()),
        mean_error=float(error_N.mean()),
        tightness=float(error_N.mean() / bound_N.mean()) if bound_N.any() else None,
        pairs=len(gap_P),
        ordered=float(right_P.mean()),
        of_pair=_corollary(gap_P > pair_P, right_P),
        of_state=_corollary(gap_P > state_P, right_P),
        to_relaxed=correlations(first, relaxed, draws),
        to_exact=correlations(relaxed, [row.truth for row in rows], draws),
    )


def _pairs(rows: Sequence[StateRow]) -> tuple[Floats, Floats, Floats, Floats]:
    """Of every pair inside a state: is TIS right, its gap, the larger M of the two, and the largest of the state."""
    found = []
    for curve in (row.curve for row in rows if row.curve is not None):
        for i, j in combinations(range(len(curve.first_order)), 2):
            gap = curve.first_order[i] - curve.first_order[j]
            is_right = gap * (curve.relaxed[i] - curve.relaxed[j]) > 0
            found.append((is_right, abs(gap), max(curve.curvature[i], curve.curvature[j]), max(curve.curvature)))
    right_P, gap_P, pair_P, state_P = np.array(found, dtype=np.float64).T
    return right_P, gap_P, pair_P, state_P


def _corollary(bites_P: NDArray[np.bool_], right_P: Floats) -> Corollary:
    bites = int(bites_P.sum())
    return Corollary(bites, float(bites_P.mean()), float(right_P[bites_P].mean()) if bites else None)
