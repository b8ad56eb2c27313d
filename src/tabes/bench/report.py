"""Rows in, numbers out: what each sampler scored and cost, and how it differs from the first one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tabes.bench.rows import Row
from tabes.bench.shares import total
from tabes.bench.statistics import Difference, paired_difference
from tabes.cost import Cost
from tabes.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Summary", "note", "summarise", "table"]


@dataclass(frozen=True)
class Summary:
    """One sampler: mean scores, cost of all items together, and the paired difference to the first sampler.

    `cost.forward_equivalents` is the work per item over that of one full forward of it. `differences` has every metric;
    it is empty for the first sampler.
    """

    sampler: str
    items: int
    scores: dict[str, float]
    steps: float
    cost: Cost
    differences: dict[str, Difference]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "sampler": self.sampler,
            "items": self.items,
            **self.scores,
            "steps": self.steps,
            "seconds": self.cost.seconds,
            "cost": self.cost.as_dict(),
            "difference_to_first": {metric: asdict(found) for metric, found in self.differences.items()} or None,
        }


def summarise(rows: Iterable[Row]) -> tuple[Summary, ...]:
    """A summary per sampler, in the order in which they appear."""
    by_sampler: dict[str, list[Row]] = {}
    for row in rows:
        by_sampler.setdefault(row.sampler, []).append(row)
    if not by_sampler:
        raise UsageError("there are no rows to report on; run something first")
    first = next(iter(by_sampler.values()))
    return tuple(_summary(sampler, own, first) for sampler, own in by_sampler.items())


def _summary(sampler: str, own: Sequence[Row], first: Sequence[Row]) -> Summary:
    metrics = tuple(first[0].scores)
    paired = {row.item: row for row in own}
    if len(paired) != len(own) or paired.keys() != {row.item for row in first}:
        raise UsageError(
            f"sampler '{sampler}' has other items than '{first[0].sampler}'; only equal items can be paired"
        )
    in_order = [paired[row.item] for row in first]
    differences = (
        {}
        if own is first
        else {
            metric: paired_difference([row.scores[metric] for row in first], [row.scores[metric] for row in in_order])
            for metric in metrics
        }
    )
    return Summary(
        sampler=sampler,
        items=len(own),
        scores={metric: fmean(row.scores[metric] for row in own) for metric in metrics},
        steps=fmean(row.steps for row in own),
        cost=total(row.cost for row in own),
        differences=differences,
    )


def table(summaries: Sequence[Summary]) -> Table:
    """For people, in 80 columns: scores, the difference in the headline metric, work and time. JSON has the rest."""
    from rich.table import Table

    headline = next(iter(summaries[0].scores))
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    shown.add_column("sampler", overflow="fold")
    columns = (*(metric.replace("_", "\n") for metric in summaries[0].scores), f"{headline}\nvs first")
    for column in (*columns, "won/\nlost", "forwards", "seconds"):
        shown.add_column(column, justify="right", no_wrap=True)
    for summary in summaries:
        shown.add_row(*_cells(summary, headline))
    return shown


def _cells(summary: Summary, headline: str) -> list[str]:
    scores = [f"{100 * score:.1f}" for score in summary.scores.values()]
    found = summary.differences.get(headline)
    against = ["", ""]
    if found is not None:
        gap, low, high = (f"{100 * value:+.1f}" for value in (found.difference, found.low, found.high))
        against = [f"{gap} [{low}, {high}]", f"{found.wins}/{found.losses}"]
    cost = summary.cost
    return [summary.sampler, *scores, *against, f"{cost.forward_equivalents:.1f}", f"{cost.seconds:.1f}"]


def note(summaries: Sequence[Summary]) -> str:
    """What the table's numbers mean, for below it."""
    text = f"{summaries[0].items} items; scores in per cent; forwards: work per item in full forwards of it."
    headline = next(iter(summaries[0].scores))
    for summary in summaries[1:2]:
        found = summary.differences[headline]
        text += f" vs first: points of {headline} on the same items [{found.level:.0%} interval, {found.method}]."
    return text
