"""Peak memory of one job above what was there once its model had been loaded and run once on a small input.

Each job has a process of its own. `resident`: the highest resident set the kernel saw (VmHWM, reset before the job)
above the resident set before it; it includes scratch space of the matrix library. `tensors`: the highest sum of live
tensor allocations, from torch's memory profiler. Resident sets are Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.rows import Row

__all__ = ["peak_rows"]

MiB = 1 << 20


def peak_rows(benchmark: str, case: str, contender: str, job: str) -> Iterator[Row]:
    """Rows of both peaks of `MEMORY_JOBS[job]` in a benchmark's module, in MiB."""
    command = [sys.executable, "-m", "benchmarks.memory", benchmark, job]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    for kind, peak in json.loads(done.stdout).items():
        yield Row(case, contender, f"{kind}_MiB", 0, peak)


def _measure(benchmark: str, name: str) -> dict[str, float]:
    torch.set_num_threads(1)
    prepare: Callable[[], Callable[[], object]] = import_module(f"benchmarks.{benchmark}").MEMORY_JOBS[name]
    job = prepare()
    resident = _resident(job)
    return {"resident": resident / MiB, "tensors": _tensors(job) / MiB}


def _resident(job: Callable[[], object]) -> int:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    job()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def _tensors(job: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        job()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], sys.argv[2])))
