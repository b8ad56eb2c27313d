"""A picture of score against truth: one panel per score, a point per candidate. Needs matplotlib (extra `bench`)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from tabes.bench.fidelity.report import Fidelity
from tabes.bench.fidelity.rows import StateRow

__all__ = ["save_fidelity"]

_COLUMNS = 4
# Scores have outliers that would squeeze all others into a line: what lies half a span beyond these quantiles is drawn
# at the edge.
_TAIL = 0.01
_INK, _FAINT = "#33332f", "#d5d5d0"


def save_fidelity(path: Path, rows: Sequence[StateRow], summaries: Sequence[Fidelity]) -> None:
    """Panels share the axis of the truth, and points the colour of how much was still masked."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    columns = min(_COLUMNS, len(summaries))
    lines = ceil(len(summaries) / columns)
    figure = Figure(figsize=(2.75 * columns + 1.2, 2.6 * lines + 1.0), dpi=110, layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True)
    scale = ScalarMappable(Normalize(0, 1), "viridis_r")
    for axis, summary in zip(axes.ravel(), summaries, strict=False):
        _draw(axis, rows, summary, scale)
    for axis in axes.ravel()[len(summaries) :]:
        axis.set_axis_off()
    figure.suptitle(f"Each score against the exact drop of the {_left(rows)}", fontsize=12)
    figure.supylabel("exact drop when the candidate is written (nats)", fontsize=10)
    figure.supxlabel("score (far outliers drawn at the edge)", fontsize=10)
    bar = figure.colorbar(scale, ax=axes, shrink=0.6, pad=0.015, aspect=30, label="still masked")
    bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _left(rows: Sequence[StateRow]) -> str:
    return "remaining entropy" if rows[0].objective == "entropy" else f"objective '{rows[0].objective}'"


def _draw(axis: Any, rows: Sequence[StateRow], summary: Fidelity, scale: Any) -> None:
    score_N = np.concatenate([row.scores[summary.score] for row in rows])
    truth_N = np.concatenate([row.truth for row in rows])
    share_N = np.repeat([row.share_masked for row in rows], [len(row.truth) for row in rows])
    # Few masked last, so that they do not vanish under the many.
    order_N = np.argsort(-share_N, kind="stable")
    axis.axhline(0, color=_FAINT, linewidth=0.8, zorder=0)
    low, high = np.quantile(score_N, [_TAIL, 1 - _TAIL])
    low, high = low - (high - low) / 2, high + (high - low) / 2
    axis.scatter(
        score_N[order_N].clip(low, high),
        truth_N[order_N],
        c=share_N[order_N],
        cmap=scale.cmap,
        norm=scale.norm,
        s=9,
        alpha=0.75,
        linewidths=0,
    )
    axis.set_title(summary.score, fontsize=10, fontweight="bold", color=_INK, loc="left", pad=17)
    axis.text(0, 1.03, _label(summary), transform=axis.transAxes, va="bottom", fontsize=8, color=_INK)
    axis.tick_params(labelsize=8, color=_FAINT, labelcolor=_INK)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(_FAINT)


def _label(summary: Fidelity) -> str:
    inside, pooled = summary.correlations.spearman.value, summary.correlations.pooled_spearman.value
    if inside is None or pooled is None:
        return "no correlation defined"
    return f"Spearman {inside:+.2f} in a state, {pooled:+.2f} pooled"
