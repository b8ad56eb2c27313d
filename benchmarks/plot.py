"""A picture of curves with intervals, every point named where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Curve", "Point", "save_curves"]

_COLOURS, _MARKERS = ("#0b6e99", "#c4541c"), ("o", "s")


class Point(NamedTuple):
    """One setting: its work, its rate, and the rate's interval."""

    label: str
    work: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """Settings of one kind."""

    title: str
    points: Sequence[Point]


def save_curves(path: Path, curves: Sequence[Curve], *, x_label: str, y_label: str) -> None:
    """Labels of the first curve stand above its bars, of the second below, so that they do not meet."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter, StrMethodFormatter

    figure = Figure(figsize=(7.2, 4.6), dpi=200, layout="constrained")
    axis = figure.subplots()
    for index, curve in enumerate(curves):
        work, rate = [p.work for p in curve.points], [p.rate for p in curve.points]
        errors = [[p.rate - p.low for p in curve.points], [p.high - p.rate for p in curve.points]]
        style: dict[str, Any] = {"color": _COLOURS[index], "marker": _MARKERS[index], "markersize": 5.5}
        _, caps, bars = axis.errorbar(
            work, rate, yerr=errors, label=curve.title, linewidth=1.6, elinewidth=0.9, capsize=2.5, **style
        )
        for faint in (*caps, *bars):
            faint.set_alpha(0.5)
        _name(axis, curve, _COLOURS[index], above=index == 0)
    axis.set(xscale="log", xlabel=x_label, ylabel=y_label)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.grid(axis="y", color="#dddddd", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right", fontsize=9)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def _name(axis: Any, curve: Curve, colour: str, *, above: bool) -> None:
    for point in curve.points:
        axis.annotate(
            point.label,
            (point.work, point.high if above else point.low),
            xytext=(0, 4 if above else -4),
            textcoords="offset points",
            ha="center",
            va="bottom" if above else "top",
            fontsize=8.5,
            color=colour,
        )
