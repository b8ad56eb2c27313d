"""Every rule on the same items: what is right, how many steps it took, and the work.

    python -m benchmarks.rules_accuracy --out FILE [--items 1000] [--device cuda] SAMPLER [SAMPLER ...]
    python -m benchmarks.rules_accuracy --report [FILE]

Rows, a JSON object per line: task, seed, sampler, a string of 0 and 1 for the items in order, steps and work per item.
The report, docs/rules.md, compares each rule with confidence at one token a step, item by item. Nothing was tuned on
these items: settings are the authors' or a coarse grid, all of which is shown.
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
from tabes.catalogue import FAMILIES
from tabes.denoiser import Denoiser
from tabes.presets import preset_of

__all__ = ["main", "page"]

SUDOKU, SEED, BASE = "sudoku:clues=28", 202, "confidence"
ROWS = RESULTS / "rules_accuracy.jsonl"
PAGE = Path(__file__).parent.parent / "docs" / "rules.md"
HEADER = ("sampler", "right", "steps", "forward-equivalents", "points over confidence [95 %]", "won / lost")
OPENING = """# All rules on the same items

What every rule scores on two models, the whole answer right or not. Settings are the authors' or a coarse grid, and all
that was run is shown; nothing was tuned on these items (the `boe` presets were, on others). Differences to `confidence`
at one token a step are in points, with Bonett-Price 95 % intervals for paired shares; intervals are of single
comparisons, and with {rows} rows several would leave zero out by chance. Weights in float32 on one H200 (matrix
products in TF32); work is the ledger's, in forwards of the item.

Again: `python -m benchmarks.rules_accuracy --out rows.jsonl confidence entropy-bound ...` (for reactions `--model
rxnmapper --items 750 --task reactions:path=rxnmapper_example_rxns.csv:split=reporting:draws=1`), then `--report
rows.jsonl`.

What stands out:

{findings}
"""
TITLES = {
    "sudoku": "Sudoku: {items} puzzles with 28 clues (53 cells to fill), seed 202, the bundled model",
    "reactions": "Reactions: {items} reporting reactions, 70 % of the product masked, rxnmapper's published weights",
}
FINDINGS = """\
* Adaptive budgets are the bargain. `entropy-bound` at 0.01 ties with one token a step for a quarter of the work
  on Sudoku (+0.7 [-0.4, +1.8]) and for 44 % of it on reactions (-1.3 [-2.8, +0.2]). At their published settings
  `threshold`, `factor`, `klass` and `quota` dare too much for these models.
* Taking the least certain token back at every step, by the confidence it was written with (`remask`), gains on
  both models (+1.7 [+0.3, +3.1], +2.0 [+0.0, +4.0]) for no work at all, and so does planning anew (`p2`: +0.8
  [+0.1, +1.5], +1.3 [+0.1, +2.6]). By the confidence it has now, taking back gains nothing.
* The two together are the best buy found: `entropy-bound` at 0.01 with `reviser=least_certain`,
  `certainty=written` stands +1.2 [-0.2, +2.6] and +1.9 [-0.1, +3.8] above one token a step for 29 % and 50 % of
  its work.
* On 2,000 puzzles `remask` gains 0.95 [0.01, 1.89] and `boe` 1.4 [0.55, 2.25] (they differ by 0.45 [-0.63,
  1.53]; same device and run); on reactions steering ties. With this reviser steered rules hardly steer, as two
  rows are written a step, and score what `remask` scores.
* Whole forwards for lookahead buy little: `lookum` and `info-gain` cost two to three times the work and tie or
  lose. `beam` with two beams gains one to two points for twice the work; `lookahead`, which tries only where
  unsure and replays only masked rows, gains as much on Sudoku for 2 % more.
* What PC-Sampler calls ReMDM (`loop`) changed not one Sudoku and gains 1.6 points [0.6, 2.6] on reactions, for
  three times the work. `wino` and `llada2-edit` draft at thresholds made for other models and lose.
* Rules with coins (`mdlm`, `sedd`, `remdm`, `dfm`, ...), and all that draw, pay for every token drawn where the
  answer is one. Steps help those that revise (`remdm-cap` on Sudoku: 0.21, 0.25, 0.40 at 64, 128, 512), not the
  others. This says nothing of open text, which they are made for."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Append rows to a file, or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rules_accuracy", description=__doc__)
    parser.add_argument("samplers", nargs="*")
    parser.add_argument("--out", type=Path, default=ROWS)
    parser.add_argument("--model", default="sudoku")
    parser.add_argument("--task", default=SUDOKU)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--device", default=None)
    parser.add_argument("--report", nargs="?", type=Path, const=ROWS)
    chosen = parser.parse_args(arguments)
    if chosen.report is not None:
        rows = [json.loads(line) for line in chosen.report.read_text().splitlines()]
        PAGE.write_text(page(rows))
        return 0
    model = tabes.load(chosen.model, device=chosen.device)
    with chosen.out.open("a") as out:
        for text in chosen.samplers:
            row = _row(model, chosen.task, text, chosen.items)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{text}: {row['right'].count('1') / chosen.items:.3f}", file=sys.stderr, flush=True)
    return 0


def _row(model: Denoiser, task: str, text: str, items: int) -> dict[str, Any]:
    spec = parse_sampler(text)
    rows = list(run(model, parse_task(task), [spec], items=items, seed=SEED, batch_size=1000))
    headline = next(iter(rows[0].scores))
    work = fmean((row.cost["flops"] or 0.0) / (row.cost["full_forward_flops"] or 1.0) for row in rows)
    right = "".join(str(int(row.scores[headline] == 1.0)) for row in rows)
    steps = fmean(row.steps for row in rows)
    return {"task": task, "seed": SEED, "sampler": text, "right": right, "forward_equivalents": work, "steps": steps}


def page(rows: Sequence[dict[str, Any]]) -> str:
    """docs/rules.md."""
    parts = [OPENING.format(rows=len(rows), findings=FINDINGS)]
    for task, title in TITLES.items():
        mine = [row for row in rows if row["task"].startswith(task)]
        base = next(row for row in mine if row["sampler"] == BASE)
        parts.append("## " + title.format(items=len(base["right"])) + "\n")
        for family in FAMILIES:
            own = [row for row in mine if preset_of(_name(row)).family == family]
            parts.append(f"### {family.capitalize()}\n\n" + table(HEADER, list(_lines(own, base))) + "\n")
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
