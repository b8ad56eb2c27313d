"""The rows of `benchmarks.accuracy`, read: every rule against confidence at the same budget, item by item.

    python -m benchmarks.accuracy_report [FILE]

A rule behind a row cache is compared with confidence behind the same one. Writes docs/accuracy.md, the tables, and
docs/steering.png: what is right against the work it took.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import table
from benchmarks.rows import RESULTS
from tabes.bench.statistics import paired_difference

__all__ = ["Result", "main", "read", "tables"]

BASE = "confidence"
DOCS = Path(__file__).parent.parent / "docs"
HEADER = ("sampler", "right", "forward-equivalents", "points over confidence [95 %]", "won / lost")
TITLES = {"sudoku": "Sudoku, 28 clues", "reactions": "Reactions, 70 % of the product masked"}


PAGE = """# Accuracy, all tables

What [BoE steering](boe.md) is worth, preset by preset, on held-out items. Each table is one task at one budget, on the
same items; differences are in points (percent of the items), with Bonett-Price 95 % intervals for paired shares; won
and lost are items that only one of the two got right. A rule behind a row cache (`@cache=4`: a full forward every four
steps) is compared with confidence behind the same one, every other rule with plain confidence at the top. The presets
steer only where one token is written; `writes=none` makes them steer in any case.

* Sudoku: the bundled model, puzzles with 28 clues and one solution, seed 202. Right: the whole grid.
* Reactions: an ALBERT that others trained and published (rxnmapper 0.4.3), 750 reactions x 3 draws of masks on 70 % of
  the product's tokens. Right: the whole product.
* Parameters were chosen on puzzles of seed 101 and on the other 246 reactions, among some 200 settings tried there;
  `writes=1` was set after its loss on these very reactions had been seen. `sign=-1` is the reversed control. The
  intervals are of single comparisons: nothing is corrected for how many rows a table has.
* Weights in float32; most rows come from a GPU (matrix products in TF32), the others from a CPU.
* On puzzles decoded on both (confidence, four cells a step) 3 of 2,000 answers differ. On reactions nothing was decoded
  on both; at 4 and 8 steps `boe`, `boe-verify`, `lookahead`, `boe-paper` (and at 8 `compatible`) are CPU rows paired
  with GPU ones.
* Work is the ledger's, in forwards of the item.
* Not run, for want of time, all on reactions: `boe-paper` at 16 steps and at one token a step on all draws (on the
  first, 750 items: 0.624 against 0.645, -2.1 points [-4.3, +0.1]), `boe-dense` at one token a step and at 16 steps,
  and, steering with `writes=none`, `boe-verify` at 4 steps and `lookahead` at 8.

Again (`rxnmapper_example_rxns.csv` is in the examples of github.com/rxn4chemistry/rxnmapper):

    tabes models --fetch rxnmapper
    python -m benchmarks.accuracy --out rows.jsonl --items 2000 --per-step 1,4 confidence boe boe-verify boe@cache=4
    python -m benchmarks.accuracy --out rows.jsonl --model rxnmapper --items 2250 --seed 0 --steps 8,16 \\
        --task reactions:path=rxnmapper_example_rxns.csv:draws=3 confidence boe:writes=none
    python -m benchmarks.accuracy_report rows.jsonl
"""


@dataclass(frozen=True)
class Result:
    """One rule at one budget."""

    task: str
    budget: str
    sampler: str
    right: str
    work: float
    fallbacks: int

    @property
    def rate(self) -> float:
        """The share of items that came out right."""
        return self.right.count("1") / len(self.right)


def read(lines: Iterable[str]) -> list[Result]:
    """A result per line; one rule at one budget counts once, the last time it was measured."""
    found = {}
    for line in lines:
        row: dict[str, Any] = json.loads(line)
        budget = _budget(row)
        task = row["task"].partition(":")[0]
        result = Result(task, budget, row["sampler"], row["right"], row["work"], row["fallbacks"])
        found[task, budget, result.sampler] = result
    return list(found.values())


def _budget(row: dict[str, Any]) -> str:
    if "num_steps" in row:
        return f"{row['num_steps']} steps"
    tokens = row["tokens_per_step"]
    return "1 token a step" if tokens == 1 else f"{tokens} tokens a step"


def tables(results: Sequence[Result]) -> str:
    """A table per task and budget, the dearest budget first; plain confidence on top of each."""
    plain = [result for result in results if result.sampler == BASE]
    parts = []
    for base in sorted(plain, key=lambda result: (result.task, -result.work)):
        own = {r.sampler: r for r in results if (r.task, r.budget) == (base.task, base.budget)}
        lines = [_line(own[name], own) for name in sorted(own, key=lambda name: (name != BASE, name))]
        title = f"### {TITLES[base.task]}: {base.budget} ({len(base.right)} items)"
        parts.append(f"{title}\n\n{table(HEADER, lines)}")
    return "\n\n".join(parts)


def _line(result: Result, own: Mapping[str, Result]) -> tuple[str, ...]:
    cells = f"`{result.sampler}`", f"{result.rate:.4f}", f"{result.work:.1f}"
    if result.sampler == BASE:
        return *cells, "", ""
    _, at, cache = result.sampler.partition("@")
    base = own.get(BASE + at + cache, own[BASE])
    base = own[BASE] if base is result else base
    gap = paired_difference(_numbers(base), _numbers(result))
    return (
        *cells,
        f"{100 * gap.difference:+.2f} [{100 * gap.low:+.2f}, {100 * gap.high:+.2f}]",
        f"{gap.wins} / {gap.losses}",
    )


def _numbers(result: Result) -> list[float]:
    return [float(digit) for digit in result.right]


def draw(results: Sequence[Result], path: Path) -> None:
    """A panel per task: plain and cached confidence as a line, every steered rule as a point."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter, StrMethodFormatter

    tasks = tuple(dict.fromkeys(result.task for result in results))
    figure = Figure(figsize=(6.4 * len(tasks), 5.0), dpi=150, layout="constrained")
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        own = [result for result in results if result.task == task]
        for kind, style in STYLES.items():
            points = sorted((r.work, r.rate) for r in own if _kind(r.sampler) == kind)
            axis.plot(*zip(*points, strict=True), label=kind, **style) if points else None
        axis.set(xscale="log", title=TITLES[task], xlabel="forward-equivalents per item", ylabel="right")
        axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_minor_locator(NullLocator())
        axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.yaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10]))
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axis.grid(color="#e5e5e5", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8.5, loc="lower right")
    figure.savefig(path)


STYLES: dict[str, dict[str, Any]] = {
    "confidence": {"color": "#555555", "marker": "o", "linewidth": 1.4},
    "confidence, row cache": {"color": "#0b6e99", "marker": "o", "linewidth": 1.4},
    "compatible": {"color": "#3a8f3a", "marker": "D", "linewidth": 0},
    "lookahead": {"color": "#c4541c", "marker": "^", "linewidth": 0},
    "boe-verify": {"color": "#a0309a", "marker": "v", "linewidth": 0},
    "boe": {"color": "#d8a200", "marker": "s", "linewidth": 0},
    "boe as the paper has it": {"color": "#999999", "marker": "x", "linewidth": 0},
}


def _kind(sampler: str) -> str | None:
    """Which line or cloud of points a sampler belongs to; None for controls and other baselines."""
    name = sampler.partition("@")[0].partition(":")[0]
    if "sign=-1" in sampler or name in ("margin", "entropy", "boe-dense"):
        return None
    if "compatible" in sampler:
        return "compatible"
    if name == BASE:
        return "confidence, row cache" if "@cache" in sampler else "confidence"
    return "boe as the paper has it" if name in ("boe-paper", "boe-literal") else name


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, draw the picture."""
    (path,) = (arguments if arguments is not None else sys.argv[1:]) or [str(RESULTS / "accuracy.jsonl")]
    results = read(Path(path).read_text().splitlines())
    (DOCS / "accuracy.md").write_text(f"{PAGE}\n{tables(results)}\n")
    draw(results, DOCS / "steering.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
