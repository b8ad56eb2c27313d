"""One row per state: what was true of its candidates, and what each score said. A JSON object per line in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabes.bench.rows import read_lines

__all__ = ["Curve", "StateRow", "read_states"]


@dataclass(frozen=True)
class Curve:
    """The theorem's quantities for each candidate: first-order drop, drop of the relaxed path, largest curvature."""

    first_order: list[float]
    relaxed: list[float]
    curvature: list[float]


@dataclass(frozen=True)
class StateRow:
    """One state and its candidates; every list has one entry for each of them, in canvas order.

    `truth` is the exact drop in the objective's units, `cost` what a score took per state in full forwards, on top of
    the one that every rule makes. `seed` is that of the stopping point, `curve` None where it was not asked for.
    """

    task: str
    model: str
    objective: str
    item: int
    seed: int
    masked: int
    share_masked: float
    candidates: list[int]
    truth: list[float]
    scores: dict[str, list[float]]
    cost: dict[str, float]
    curve: Curve | None

    @classmethod
    def from_dict(cls, values: Any) -> StateRow:
        """The row behind a JSON object; TypeError when it is something else."""
        if not isinstance(values, dict):
            raise TypeError("not an object")
        curve = values.get("curve")
        return cls(**{**values, "curve": None if curve is None else Curve(**curve)})


def read_states(path: Path) -> tuple[StateRow, ...]:
    """The rows of a file, or one sentence on the first line that is none."""
    return read_lines(path, StateRow.from_dict)
