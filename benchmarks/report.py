"""Measured values against their targets, as a table that reads well in a terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Verdict", "table", "verdicts_table"]


@dataclass(frozen=True)
class Verdict:
    """One measured number and the bound it is held to (neither bound: for information)."""

    what: str
    measured: float
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def passed(self) -> bool | None:
        """None when there is no target."""
        if self.at_least is not None:
            return self.measured >= self.at_least
        return None if self.at_most is None else self.measured <= self.at_most

    def cells(self) -> tuple[str, ...]:
        """For a table."""
        target = f">= {self.at_least:.3g}" if self.at_least is not None else ""
        target = f"<= {self.at_most:.3g}" if self.at_most is not None else target
        verdict = {True: "pass", False: "MISS", None: ""}[self.passed]
        return self.what, f"{self.measured:.3g}", target, verdict, self.note


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(line[i]) for line in (header, *lines)) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |"
        for line in (header, rule, *lines)
    )


def verdicts_table(verdicts: Sequence[Verdict]) -> str:
    """All verdicts of a benchmark."""
    return table(("measured", "value", "target", "verdict", "how"), [verdict.cells() for verdict in verdicts])
