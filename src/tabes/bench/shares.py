"""Each item's share of what its batch cost. Shapes: B items decoded together, F countable fields of `Cost`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from tabes.canvas import Canvas
from tabes.cost import Cost
from tabes.decoding import Step

__all__ = ["Shares", "total"]

_COUNTS = ("forward_calls", "forward_tokens", "backward_calls", "backward_tokens", "head_rows")
_SHARED = tuple(f.name for f in fields(Cost) if f.name not in ("peak_bytes", "full_forward_flops"))


class Shares:
    """Every step's cost, split evenly between the items that were still being decoded."""

    def __init__(self, canvas: Canvas, full_forward_flops: float) -> None:
        self._live_B: NDArray[np.bool_] = canvas.masked_BL.any(1).cpu().numpy()
        self._steps_B: NDArray[np.int64] = np.zeros(len(self._live_B), dtype=np.int64)
        self._shares_BF: NDArray[np.float64] = np.zeros((len(self._live_B), len(_SHARED)))
        self._unit = full_forward_flops / len(self._live_B)
        self._peak: int | None = None

    def add(self, step: Step) -> None:
        """Account for one step of the batch."""
        cost_F = np.array([getattr(step.cost, name) for name in _SHARED])
        self._shares_BF[self._live_B] += cost_F / self._live_B.sum()
        self._steps_B += self._live_B
        self._live_B = ~step.done_B.cpu().numpy()
        if step.cost.peak_bytes is not None:
            self._peak = max(self._peak or 0, step.cost.peak_bytes)

    def steps(self, at: int) -> int:
        """In how many steps item `at` took part."""
        return int(self._steps_B[at])

    def cost(self, at: int) -> dict[str, float | None]:
        """The share of item `at`, by the names of `Cost`; `peak_bytes` is the batch's."""
        shares = dict(zip(_SHARED, self._shares_BF[at].tolist(), strict=True))
        return {**shares, "peak_bytes": self._peak, "full_forward_flops": self._unit}


def total(shares: Iterable[Mapping[str, float | None]]) -> Cost:
    """What the shares add up to: counts are whole again, and the unit is one full forward of every item."""
    costs = [Cost(**share) for share in shares]  # type: ignore[arg-type]  # shares of counts are fractions
    unit = sum(cost.full_forward_flops for cost in costs)
    summed = reduce(add, costs, Cost())
    counts = {name: round(getattr(summed, name)) for name in _COUNTS}
    return Cost(
        **counts, seconds=summed.seconds, peak_bytes=summed.peak_bytes, flops=summed.flops, full_forward_flops=unit
    )
