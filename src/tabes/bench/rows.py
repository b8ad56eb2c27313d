"""One row per item and sampler: what a run writes and a report reads, a JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tabes.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Row", "read_lines", "read_rows", "write_rows"]

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """What one sampler made of one item.

    `cost` is the item's share of its batch: every step's cost is split evenly between the items still being decoded, so
    that sums over rows are what the ledger counted.
    """

    task: str
    model: str
    sampler: str
    item: int
    seed: int
    scores: dict[str, float]
    text: str
    steps: int
    cost: dict[str, float | None]

    @classmethod
    def from_dict(cls, values: Any) -> Row:
        """The row behind a JSON object; TypeError when it is something else."""
        if not isinstance(values, dict):
            raise TypeError("not an object")
        return cls(**values)


def write_rows(path: Path, rows: Iterable[DataclassInstance]) -> None:
    """One JSON object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")


def read_rows(path: Path) -> tuple[Row, ...]:
    """The rows of a file, or one sentence on the first line that is none."""
    return read_lines(path, Row.from_dict)


def read_lines(path: Path, from_dict: Callable[[Any], T]) -> tuple[T, ...]:
    """What `from_dict` makes of every line; it raises TypeError or ValueError for one that is no row."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            rows.append(from_dict(json.loads(line)))
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path}, line {number}: no row of a run ({error})") from None
    return tuple(rows)
