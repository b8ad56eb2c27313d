"""The tidy file between running and reporting: one measurement per row, one file per benchmark."""

from __future__ import annotations

import csv
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import torch
import transformers

__all__ = ["Row", "Rows", "load", "save"]

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """`value` of `quantity` as measured for one contender in one case, the `repeat`-th time."""

    case: str
    contender: str
    quantity: str
    repeat: int
    value: float


class Rows(list[Row]):
    """Rows that can be asked."""

    def values(self, case: str, contender: str, quantity: str) -> list[float]:
        """All measurements of one thing, in order."""
        found = [r for r in self if (r.case, r.contender, r.quantity) == (case, contender, quantity)]
        return [row.value for row in sorted(found, key=lambda row: row.repeat)]

    def median(self, case: str, contender: str, quantity: str) -> float:
        """Their median."""
        return median(self.values(case, contender, quantity))

    def cases(self) -> tuple[str, ...]:
        """The cases in the order they were run."""
        return tuple(dict.fromkeys(row.case for row in self))

    def contenders(self, case: str) -> tuple[str, ...]:
        """Who took part in a case."""
        return tuple(dict.fromkeys(row.contender for row in self if row.case == case))


def save(name: str, rows: Iterable[Row]) -> Path:
    """Write the rows of one benchmark, and where they were measured."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow(asdict(row) | {"value": f"{row.value:.6g}"})
    _save_machine(name)
    return path


def load(name: str) -> Rows:
    """Read them back."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return Rows(
            Row(r["case"], r["contender"], r["quantity"], int(r["repeat"]), float(r["value"]))
            for r in csv.DictReader(file)
        )


def _save_machine(name: str) -> None:
    path = RESULTS / "machine.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    path.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
