"""Row-cached decoding on the bundled Sudoku model: puzzles solved against work done. Writes docs/row_cache.png too.

256 test puzzles with one solution and 28 clues (a seed used nowhere else), confidence, most probable digit.
* row cache: one cell a step, a full forward every n = 1, 2, 4, 8, 16 steps or only at the first one;
* no cache: 1, 2, 3, 4, 6, 8 cells a step, a full forward each.
Work is in forward-equivalents, the ledger's estimate over one full forward of the same puzzles. Rates have Wilson's
95 % interval; a setting is also compared puzzle by puzzle with the first one (one cell a step, exact).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

import tabes
from benchmarks.plot import Curve, Point, save_curves
from benchmarks.report import Verdict, table
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.tasks.sudoku import puzzles

__all__ = ["report", "run"]

PUZZLES, BATCH, CLUES, SEED = 256, 64, 28, 20_261_118
NEVER = 1_000_000
EVERY, TOKENS = (1, 2, 4, 8, 16, NEVER), (1, 2, 3, 4, 6, 8)
CACHED, PLAIN = "row cache", "no cache"
PICTURE = Path(__file__).parent.parent / "docs" / "row_cache.png"


def run() -> Iterator[Row]:
    """Every puzzle under every setting."""
    model = tabes.load("sudoku")
    task = puzzles(PUZZLES, CLUES, SEED, split="test")
    givens_NP = torch.from_numpy(task.givens).long()
    tokens_NP = torch.where(givens_NP == 0, model.mask_id, givens_NP)  # a digit's id is the digit
    solutions_NP = torch.from_numpy(task.solutions).long()
    for n in EVERY:
        cached = model if n == 1 else tabes.RowCache(model, every=n)
        yield from _setting(model, cached, 1, tokens_NP, solutions_NP, CACHED, _label(n))
    for k in TOKENS[1:]:
        yield from _setting(model, model, k, tokens_NP, solutions_NP, PLAIN, str(k))


def _label(every: int) -> str:
    return "never" if every == NEVER else str(every)


def _setting(
    base: Denoiser, model: AnyDenoiser, tokens: int, tokens_NP: Tensor, solutions_NP: Tensor, case: str, contender: str
) -> Iterator[Row]:
    sampler = tabes.sampler("confidence", tokens_per_step=tokens)
    flops = unit = 0.0
    for start in range(0, PUZZLES, BATCH):
        canvas = Canvas.create(tokens_NP[start : start + BATCH], mask_id=base.mask_id)
        last = canvas
        for step in tabes.decode(model, canvas, sampler):
            flops += step.cost.flops
            last = step.canvas
        unit += base.full_forward_flops(canvas)
        solved_B = (last.tokens_BL == solutions_NP[start : start + BATCH]).all(1)
        for puzzle, solved in enumerate(solved_B.tolist(), start):
            yield Row(case, contender, "solved", puzzle, float(solved))
    yield Row(case, contender, "forward_equivalents", 0, flops / unit)


def report(rows: Rows) -> Iterator[Verdict]:
    """The curve as a Markdown table and a picture; there is no target."""
    curves = {case: _points(rows, case) for case in (CACHED, PLAIN)}
    # One cell a step without cache is the row cache at n = 1.
    curves[PLAIN] = [Point("1", *curves[CACHED][0][1:]), *curves[PLAIN]]
    exact = rows.values(CACHED, "1", "solved")
    lines = []
    for case, points in curves.items():
        for point in points[0 if case == CACHED else 1 :]:
            against = _against(exact, rows.values(case, point.label, "solved"))
            rate = f"{point.rate:.3f} [{point.low:.3f}, {point.high:.3f}]"
            every = point.label if case == CACHED else "1"
            cells = "1" if case == CACHED else point.label
            lines.append((cells, every, f"{point.work:.1f}", rate, *against))
    header = (
        "cells a step",
        "full forward every",
        "forward-equivalents",
        "solved [95 %]",
        "vs exact [95 %]",
        "won / lost",
    )
    print(f"\n{table(header, lines)}\n\n{len(exact)} puzzles with {CLUES} clues.")
    save_curves(
        PICTURE,
        [
            Curve("row cache: one cell a step, a full forward every n steps (n above)", curves[CACHED]),
            Curve("no cache: k cells a step (k below)", curves[PLAIN]),
        ],
        x_label="forward-equivalents per puzzle",
        y_label=f"puzzles solved ({CLUES} clues, {len(exact)} puzzles)",
    )
    best = {
        case: min(p.work for p in points if p.rate >= curves[CACHED][0].rate - 0.02) for case, points in curves.items()
    }
    yield Verdict("least work within 2 points of exact, row cache", best[CACHED], note="forward-equivalents")
    yield Verdict("least work within 2 points of exact, no cache", best[PLAIN], note="forward-equivalents")


def _points(rows: Rows, case: str) -> list[Point]:
    points = []
    for label in rows.contenders(case):
        solved = rows.values(case, label, "solved")
        low, high = _wilson(sum(solved), len(solved))
        work = rows.median(case, label, "forward_equivalents")
        points.append(Point(label, work, sum(solved) / len(solved), low, high))
    return points


def _wilson(successes: float, n: int, z: float = 1.96) -> tuple[float, float]:
    rate = successes / n
    centre, scale = rate + z * z / (2 * n), 1 + z * z / n
    spread = z * sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return (centre - spread) / scale, (centre + spread) / scale


def _against(exact: list[float], other: list[float]) -> tuple[str, str]:
    """The paired difference with its normal interval, and the puzzles only one of the two solved."""
    differences = [b - a for a, b in zip(exact, other, strict=True)]
    n, mean = len(differences), sum(differences) / len(differences)
    spread = 1.96 * sqrt(sum((d - mean) ** 2 for d in differences) / (n * (n - 1)))
    won, lost = differences.count(1.0), differences.count(-1.0)
    if not won + lost:
        return "0", "0 / 0"
    return f"{mean:+.3f} [{mean - spread:+.3f}, {mean + spread:+.3f}]", f"{won} / {lost}"
