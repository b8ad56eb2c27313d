"""Does steering pay? Every preset on the same held-out items: what is right, and the work it took.

    python -m benchmarks.accuracy --out FILE [--task sudoku] [--items 1000] [--per-step 1,2,4,8] SAMPLER [SAMPLER ...]

Rows, a JSON object per line: task, tokens (or steps) per step, sampler, a string of 0 and 1 for the items in order,
and the work in forward-equivalents. `python -m benchmarks.accuracy_report` reads them. Tuned on puzzles of seed 101,
reported on those of seed 202, both from the test split; runs on a GPU with --device cuda.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import tabes
from tabes.bench import parse_sampler, parse_task, run, summarise
from tabes.bench.specs import SamplerSpec
from tabes.denoiser import Denoiser
from tabes.steering import NoSignalWarning, Verifier
from tabes.tasks import Item, Task
from tabes.tasks.sudoku_rules import expected_violations

__all__ = ["main"]

# A verifier is a function, which no command line can spell; these stand for one.
OBJECTIVES = {
    "rules": Verifier(expected_violations),
    "rules+entropy": Verifier(expected_violations, entropy_weight=1.0),
}


class _ByLength:
    """A task whose items come shortest first, so that a batch is not mostly padding. Equal for all samplers."""

    def __init__(self, task: Task) -> None:
        self.name, self.metrics = task.name, task.metrics
        self.max_new_tokens, self.stop, self.score = task.max_new_tokens, task.stop, task.score
        self._task = task

    def items(self, count: int, seed: int) -> Sequence[Item]:
        return sorted(self._task.items(count, seed), key=lambda item: len(item.prompt))


def main(arguments: Sequence[str] | None = None) -> int:
    """Append rows to a file, a line for every setting as soon as it is done."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("samplers", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", default="sudoku")
    parser.add_argument("--task", default="sudoku:clues=28")
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=202)
    parser.add_argument("--per-step", default="1,2,4,8")
    parser.add_argument("--steps", default="", help="numbers of steps instead, such as 4,8,16")
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--device", default=None)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore", NoSignalWarning)
    model, task = tabes.load(chosen.model, device=chosen.device), _ByLength(parse_task(chosen.task))
    budgets = [("num_steps", int(n)) for n in chosen.steps.split(",") if n]
    budgets = budgets or [("tokens_per_step", int(k)) for k in chosen.per_step.split(",")]
    with chosen.out.open("a") as out:
        for name, value in budgets:
            for text in chosen.samplers:
                row = _row(model, task, text, {name: value}, chosen)
                out.write(json.dumps({"task": chosen.task, "seed": chosen.seed, **row}) + "\n")
                out.flush()
    return 0


def _row(model: Denoiser, task: Task, text: str, shared: dict[str, int], chosen: Any) -> dict[str, Any]:
    start = perf_counter()
    spec = _with_objective(parse_sampler(text, shared))
    rows = list(run(model, task, [spec], items=chosen.items, seed=chosen.seed, batch_size=chosen.batch))
    (found,) = summarise(rows)
    headline = next(iter(found.scores))
    right = "".join("1" if row.scores[headline] == 1.0 else "0" for row in rows)
    work = found.cost.forward_equivalents
    rate = right.count("1") / len(right)
    print(f"{shared} {text}: {rate:.4f}, work {work:.1f}, {perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    return {**shared, "sampler": text, "right": right, "work": round(work, 3), "fallbacks": found.cost.fallbacks}


def _with_objective(spec: SamplerSpec) -> SamplerSpec:
    objective = OBJECTIVES.get(str(spec.parameters.get("objective")))
    return spec if objective is None else replace(spec, parameters={**spec.parameters, "objective": objective})


if __name__ == "__main__":
    sys.exit(main())
