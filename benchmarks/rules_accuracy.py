"""Every rule on the same Sudokus: what is right, how many steps it took, and the work.

    python -m benchmarks.rules_accuracy --out FILE [--items 1000] [--device cuda] SAMPLER [SAMPLER ...]
    python -m benchmarks.rules_accuracy --report [FILE]

Rows, a JSON object per line: task, seed, sampler, a string of 0 and 1 for the items in order, steps and work per item.
The report, docs/rules.md, compares each rule with confidence at one token a step, item by item. Nothing was tuned on
these puzzles: settings are the authors' or a coarse grid, all of which is shown.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import tabes
from benchmarks.report import table
from benchmarks.rows import RESULTS
from tabes.bench import parse_sampler, parse_task, run
from tabes.bench.statistics import paired_difference
from tabes.denoiser import Denoiser
from tabes.presets import preset_of

__all__ = ["main", "page"]

TASK, SEED, BASE = "sudoku:clues=28", 202, "confidence"
ROWS = RESULTS / "rules_accuracy.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "rules.md"
HEADER = ("sampler", "right", "steps", "forward-equivalents", "points over confidence [95 %]", "won / lost")
OPENING = """# All rules on Sudokus

What every rule scores on the bundled model: {items} puzzles with 28 clues (53 cells to fill), seed 202, the whole grid
right or not. Settings are the authors' or a coarse grid, and all that was run is shown; nothing was tuned on these
puzzles (the `boe` presets were, on others). Differences to `confidence` at one token a step are in points, with
Bonett-Price 95 % intervals for paired shares; intervals are of single comparisons, and with {rows} rows two or three
would leave zero out by chance. One trained model of one kind of puzzle: its answers are unique, so every rule that
draws its tokens pays for it, which says nothing about open text. Weights in float32 on one H200 (matrix products in
TF32); work is the ledger's, in forwards of the item.

Again: `python -m benchmarks.rules_accuracy --out rows.jsonl confidence entropy-bound ...`, then `--report rows.jsonl`.

What stands out:

{findings}
"""
FINDINGS = """* Adaptive budgets are the bargain. `entropy-bound` at 0.01 does as well as one token a step
  (+0.7 [-0.4, +1.8]) with a quarter of the work; behind a row cache with a sixth. `threshold` at 0.99 and `factor`
  at 0.1 lose about a point with a fifth of it. At their published settings `threshold`, `factor` and `klass` dare too
  much here.
* Taking the least certain token back at every step (`remask`, by the confidence it was written with) gains as much as
  steering does (+1.7 [+0.3, +3.1]) for no work at all, and `p2` about half of that. Nobody had asked it to compete with
  `boe` (+0.9 here; +1.6 [+0.8, +2.4] on 2,000 puzzles, accuracy.md), `boe-verify` (+2.0) and `lookahead` (+1.6). The
  ranking and the revision do not add up: `boe` with `least_certain` or `remdm` gains nothing.
* Whole forwards for lookahead buy nothing here: `lookum` and `info-gain` cost two to three times the work and tie.
  `beam` gains a point for two to four times the work; `lookahead`, which tries only where unsure and replays only
  masked rows, gains that for 2 % more.
* `wino` and `llada2-edit` draft at thresholds made for other models and lose; what PC-Sampler calls ReMDM (`loop`)
  changed not one answer.
* Rules with coins (`mdlm`, `sedd`, `remdm`, `dfm`, ...) draw tokens that do not know of each other, and a Sudoku
  punishes every one. Steps help those that revise (`remdm-cap`: 0.21, 0.25, 0.40 at 64, 128, 512), not the others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Append rows to a file, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules_accuracy", description=__doc__)
    parser.add_argument("samplers", nargs="*")
    parser.add_argument("--out", type=Path, default=ROWS)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--device", default=None)
    parser.add_argument("--report", nargs="?", type=Path, const=ROWS)
    chosen = parser.parse_args(arguments)
    if chosen.report is not None:
        rows = [json.loads(line) for line in chosen.report.read_text().splitlines()]
        PAGE.write_text(page(rows))
        return 0
    model = tabes.load("sudoku", device=chosen.device)
    with chosen.out.open("a") as out:
        for text in chosen.samplers:
            row = _row(model, text, chosen.items)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{text}: {row['right'].count('1') / chosen.items:.3f}", file=sys.stderr, flush=True)
    return 0


def _row(model: Denoiser, text: str, items: int) -> dict[str, Any]:
    spec = parse_sampler(text)
    rows = list(run(model, parse_task(TASK), [spec], items=items, seed=SEED, batch_size=1000))
    work = fmean((row.cost["flops"] or 0.0) / (row.cost["full_forward_flops"] or 1.0) for row in rows)
    right = "".join(str(int(row.scores["solved"])) for row in rows)
    steps = fmean(row.steps for row in rows)
    return {"task": TASK, "seed": SEED, "sampler": text, "right": right, "forward_equivalents": work, "steps": steps}


def page(rows: Sequence[dict[str, Any]]) -> str:
    """docs/rules.md."""
    base = next(row for row in rows if row["sampler"] == BASE)
    opening = OPENING.format(items=len(base["right"]), rows=len(rows), findings=FINDINGS)
    parts = [opening]
    for family in ("local", "adaptive", "steered", "lookahead", "revising", "ancestral"):
        own = [row for row in rows if preset_of(_name(row)).family == family]
        parts.append(f"## {family.capitalize()}\n\n" + table(HEADER, list(_lines(own, base))) + "\n")
    return "\n".join(parts)


def _lines(rows: Sequence[dict[str, Any]], base: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    for row in sorted(rows, key=lambda row: (_name(row), row["forward_equivalents"])):
        mine, theirs = ([float(digit) for digit in one["right"]] for one in (row, base))
        found = paired_difference(theirs, mine)
        points = f"{100 * found.difference:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
        against = ("", "") if row is base else (points, f"{found.wins} / {found.losses}")
        steps, work = f"{row['steps']:.1f}", f"{row['forward_equivalents']:.1f}"
        yield (f"`{row['sampler']}`", f"{fmean(mine):.3f}", steps, work, *against)


def _name(row: dict[str, Any]) -> str:
    return str(row["sampler"]).split(":")[0].split("@")[0]


if __name__ == "__main__":
    sys.exit(main())
