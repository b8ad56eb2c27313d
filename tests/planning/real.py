"""What a bidirectional Llama of 100 million parameters with random weights really takes, for `test_plan` (JSON out).

    python -m tests.planning.real FOLDER      (FOLDER/config.json has its sizes)

`tensors` are live storages as `tabes.planning.Live` counts them, of steps of the real `decode`; `resident` is what the
kernel saw (VmHWM, reset before, above VmRSS before), as in benchmarks/memory.py. Linux only.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, LlamaForCausalLM

import tabes
from tabes.planning import Live

BATCH, LENGTH, MASKED = 2, 384, 96
MASK = 11
RESIDENT = ("forward", "row_cache", "boe")


def model(folder: str) -> tabes.Denoiser:
    torch.manual_seed(0)
    return tabes.load(LlamaForCausalLM(AutoConfig.from_pretrained(folder)), mask_token_id=MASK)


def canvas() -> tabes.Canvas:
    ids_BP = torch.randint(20, 500, (BATCH, LENGTH - MASKED), generator=torch.Generator().manual_seed(1))
    return tabes.Canvas.create(ids_BP, mask_id=MASK, max_new_tokens=MASKED)


def steps(denoiser: Any, count: int, name: str, **parameters: Any) -> Callable[[], None]:
    """The first steps of a decoding."""

    def run() -> None:
        running = tabes.decode(denoiser, canvas(), tabes.sampler(name, **parameters), seed=0)
        for _ in range(count):
            next(running)

    return run


def forward(denoiser: tabes.Denoiser) -> Callable[[], None]:
    there = canvas()

    @torch.no_grad()
    def run() -> None:
        denoiser.predict(there, there.masked_BL)

    return run


def tensors(denoiser: tabes.Denoiser, job: Callable[[], None]) -> int:
    inside: Any = denoiser.network
    weights = inside.backbone.model
    live = Live([*weights.parameters(), *weights.buffers()])
    with live:
        job()
    return live.peak


def resident(job: Callable[[], None]) -> int:
    """Of a job that ran before: what libraries set aside at their first call is no part of it."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    job()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def main(folder: str) -> None:
    torch.set_num_threads(1)
    denoiser = model(folder)
    weights = denoiser.network.backbone.model  # type: ignore[attr-defined]
    cached = tabes.RowCache(denoiser, every=8)
    jobs = {
        "forward": forward(denoiser),
        "plain": steps(denoiser, 1, "confidence"),
        "row_cache": steps(cached, 2, "confidence"),
        "lookahead": steps(denoiser, 1, "lookahead"),
        "boe": steps(denoiser, 1, "boe"),
    }
    found: dict[str, Any] = {
        "weights": sum(x.untyped_storage().nbytes() for x in [*weights.parameters(), *weights.buffers()])
    }
    found["tensors"] = {name: tensors(denoiser, job) for name, job in jobs.items()}
    found["resident"] = {name: resident(jobs[name]) for name in RESIDENT}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
