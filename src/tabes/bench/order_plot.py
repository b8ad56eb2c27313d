"""A picture of the order in which rules fill the same Sudoku: one panel per rule. Needs matplotlib (extra `bench`).

Shapes: P cells (81) in reading order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from tabes.bench.rows import Row
from tabes.bench.tracing import Trace
from tabes.tasks import Item

__all__ = ["most_divided", "save_orders"]

Colour = tuple[float, ...]

_COLUMNS = 3
_GIVEN, _WRONG = "#ececea", "#e0202b"


def most_divided(rows: Sequence[Row]) -> Row:
    """A row of the item whose headline score differs most between samplers, the first among equals."""
    scores: dict[int, list[float]] = {}
    for row in rows:
        scores.setdefault(row.item, []).append(next(iter(row.scores.values())))
    chosen = min(scores, key=lambda item: abs(sum(scores[item]) - len(scores[item]) / 2))
    return next(row for row in rows if row.item == chosen)


def save_orders(path: Path, item: Item, traces: Sequence[Trace]) -> None:
    """A panel per trace of the same item, all on one colour scale."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = ceil(len(traces) / _COLUMNS)
    figure = Figure(figsize=(3.7 * _COLUMNS + 1.0, 3.75 * rows + 0.9), dpi=140, layout="constrained")
    axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    steps = max(int(trace.steps_L.max()) for trace in traces)
    scale = ScalarMappable(Normalize(1, steps), "viridis")
    palette = [tuple(rgba) for rgba in scale.to_rgba(np.arange(steps + 1)).tolist()]
    for axis, trace in zip(axes, traces, strict=False):
        _draw(axis, trace, item, palette)
    for axis in axes:
        axis.set_axis_off()
    figure.suptitle(
        "The order in which each rule fills the same Sudoku\n"
        "numbers: the step that filled the cell; grey: given; red frame: wrong digit",
        fontsize=12,
    )
    bar = figure.colorbar(scale, ax=list(axes), shrink=0.5, pad=0.02, label="step")
    bar.ax.invert_yaxis()
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(path)


def _draw(axis: Any, trace: Trace, item: Item, palette: Sequence[Colour]) -> None:
    # A text of another length has a cell that is no digit: every filled cell of it counts as wrong.
    aligned = len(trace.text) == len(item.answer)
    wrong = 0
    for cell, step in enumerate(trace.steps_L.tolist()):
        row, column = divmod(cell, 9)
        is_wrong = bool(step) and not (aligned and trace.text[cell] == item.answer[cell])
        wrong += is_wrong
        _draw_cell(axis, column, row, palette[step] if step else None, str(step or item.answer[cell]))
        if is_wrong:
            _draw_frame(axis, column, row)
    for line in range(10):
        style = {"color": "black", "linewidth": 1.8 if line % 3 == 0 else 0.4, "solid_capstyle": "projecting"}
        axis.plot([line, line], [0, 9], zorder=2, **style)
        axis.plot([0, 9], [line, line], zorder=2, **style)
    verdict = f"{wrong} cells wrong" if wrong else "solved"
    axis.set(xlim=(-0.1, 9.1), ylim=(9.1, -0.1), aspect="equal", title=f"{trace.sampler}: {verdict}")


def _draw_cell(axis: Any, column: int, row: int, colour: Colour | None, label: str) -> None:
    from matplotlib.patches import Rectangle

    axis.add_patch(Rectangle((column, row), 1, 1, facecolor=colour or _GIVEN, edgecolor="none", zorder=1))
    is_dark = colour is not None and 0.3 * colour[0] + 0.6 * colour[1] + 0.1 * colour[2] < 0.5
    ink = "#85857f" if colour is None else "white" if is_dark else "black"
    axis.text(column + 0.5, row + 0.53, label, ha="center", va="center", fontsize=8.5, color=ink, zorder=4)


def _draw_frame(axis: Any, column: int, row: int) -> None:
    from matplotlib.patches import Rectangle

    inset = 0.08
    side = 1 - 2 * inset
    frame = Rectangle((column + inset, row + inset), side, side, fill=False, edgecolor=_WRONG, linewidth=2.2, zorder=3)
    axis.add_patch(frame)
