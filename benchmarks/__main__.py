"""`python -m benchmarks [names]`: run, write rows, report. `--report` only reads the rows of an earlier run."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from time import perf_counter

import torch

from benchmarks.report import verdicts_table
from benchmarks.rows import load, save

NAMES = ("vocabulary", "replay", "overhead", "rules", "rowcache", "drift", "steering")


def main() -> int:
    """Exit code 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=f"any of {', '.join(NAMES)}")
    parser.add_argument("--report", action="store_true", help="do not run: report the rows of an earlier run")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    missed = 0
    for name in arguments.names or NAMES:
        benchmark = import_module(f"benchmarks.{name}")
        start = perf_counter()
        if not arguments.report:
            path = save(name, list(benchmark.run()))
            print(
                f"{name}: ran {perf_counter() - start:.0f} s, rows in {path.parent.name}/{path.name}", file=sys.stderr
            )
        verdicts = list(benchmark.report(load(name)))
        print(f"\n## {name}\n\n{verdicts_table(verdicts)}", flush=True)
        missed += sum(verdict.passed is False for verdict in verdicts)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
