"""Numbers for people: a table of the scores, and in words what became of the theorem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tabes.bench.fidelity.correlation import Estimate
from tabes.bench.fidelity.report import Fidelity
from tabes.bench.fidelity.theory import Corollary, Theory

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["note", "table", "theorem"]

_COLUMNS = (
    "spearman\nin a state [95 %]",
    "kendall\nin a state [95 %]",
    "spearman\npooled",
    "first\npick %",
    "is best\n%",
    "regret\nnats",
    "cost\nforwards",
)


def table(summaries: Sequence[Fidelity]) -> Table:
    """In 100 columns. JSON has the rest."""
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    shown.add_column("score", no_wrap=True)
    for column in _COLUMNS:
        shown.add_column(column, justify="right", no_wrap=True)
    for summary in summaries:
        shown.add_row(summary.score, *_cells(summary))
    return shown


def _cells(summary: Fidelity) -> tuple[str, ...]:
    found = summary.correlations
    return (
        _interval(found.spearman),
        _interval(found.kendall),
        _number(found.pooled_spearman.value, "+.2f"),
        _number(summary.share.value, ".1f", 100),
        _number(summary.best.value, ".0f", 100),
        _number(summary.regret.value, ".3f"),
        f"{summary.cost:.2f}",
    )


def _interval(found: Estimate) -> str:
    if found.value is None:
        return "-"
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _number(value: float | None, style: str, scale: float = 1.0) -> str:
    return "-" if value is None else format(scale * value, style)


def note(summaries: Sequence[Fidelity]) -> str:
    """What the table's numbers mean, for below it."""
    return (
        f"{summaries[0].states} states; correlations with the exact one-step drop, intervals by resampling states. "
        "first pick: its drops over the best ones; is best: how often it is the best; regret: what it misses; "
        "cost: work per state in full forwards, on top of the one every rule makes."
    )


def theorem(found: Theory) -> str:
    """The paragraph below the table."""
    tight = "undefined" if found.tightness is None else f"{100 * found.tightness:.2g} %"
    return (
        f"The theorem |relaxed drop - TIS| <= M/2 held for {_percent(found.holds)} of {found.candidates} candidates, M "
        "being the largest second difference on a grid, a lower bound of the true one: mean M "
        f"{found.mean_curvature:.3g}, mean error {found.mean_error:.3g} nats, {tight} of the mean bound (mean drop "
        f"{found.mean_drop:.3g} nats). The corollary (a gap of TIS above M orders a pair) {_bites(found.of_pair)} "
        f"of {found.pairs} pairs, with M of the whole state {_bites(found.of_state)}; over all pairs TIS is right in "
        f"{_percent(found.ordered)}. Spearman in a state: TIS with the relaxed drop "
        f"{_number(found.to_relaxed.spearman.value, '+.2f')}, relaxed with exact drop "
        f"{_number(found.to_exact.spearman.value, '+.3f')}."
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _bites(corollary: Corollary) -> str:
    if corollary.right is None:
        return "bites on none"
    return f"bites on {corollary.bites}, right in {_percent(corollary.right)} of them,"
