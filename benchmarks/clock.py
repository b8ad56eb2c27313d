"""Timing on a machine that others use too: contenders take turns, so that a slow minute hits all of them.

Seconds are processor seconds of this process (user and system): on one thread of an idle machine that is wall time, and
waiting for a busy core does not count.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from time import process_time

from benchmarks.rows import Row

__all__ = ["interleaved", "timed"]


def timed(job: Callable[[], object]) -> float:
    """Processor seconds one call takes."""
    start = process_time()
    job()
    return process_time() - start


def interleaved(case: str, jobs: Mapping[str, Callable[[], object]], *, repeats: int, warm: int = 1) -> Iterator[Row]:
    """Every job once per round; the first `warm` rounds do not count. Every other round runs backwards."""
    for repeat in range(-warm, repeats):
        gc.collect()
        for name in list(jobs) if repeat % 2 else reversed(list(jobs)):
            seconds = timed(jobs[name])
            if repeat >= 0:
                yield Row(case, name, "seconds", repeat, seconds)
