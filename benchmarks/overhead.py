"""What a step costs outside the network: its time minus the time inside `network.forward`, `replay` and `head`.

Shape: a bidirectional Llama with 10 million parameters (7 layers of width 320, 4,096 words, tied head), random
weights, batch 8, prompts of 56 tokens and 200 masks (L = 256), float32, one thread. Decoding runs 8 tokens a step;
the canvas is rebuilt when it is full. Every ranking that replays nothing, with the most probable token, is held to
the target; confidence with drawn tokens is shown beside it: a draw is work on the vocabulary, not on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import process_time
from typing import Any

import torch

import tabes
from benchmarks.models import denoiser, llama
from benchmarks.report import Verdict
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.catalogue import PRESETS, Preset
from tabes.decoding import Step
from tabes.denoiser import Denoiser
from tabes.parts import RANKINGS

__all__ = ["report", "run"]

BATCH, LENGTH, PROMPT, VOCABULARY, STEPS = 8, 256, 56, 4096, 9
SHARE = 0.05
WRITERS: dict[str, dict[str, Any]] = {
    "most probable": {},
    "drawn at 0.7": {"temperature": 0.7},
    "drawn at 0.7, top-p 0.9": {"temperature": 0.7, "top_p": 0.9},
}


class Inside:
    """Seconds spent in calls of the network."""

    def __init__(self, denoiser: Denoiser) -> None:
        self.seconds = 0.0
        for name in ("forward", "replay", "head"):
            setattr(denoiser.network, name, self._clocked(getattr(denoiser.network, name)))

    def _clocked(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*args: Any, **kwargs: Any) -> Any:
            start = process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += process_time() - start

        return clocked


def run() -> Iterator[Row]:
    """Seconds of every step, and of the network in it; samplers take turns, one step each."""
    torch.set_num_threads(1)
    model = denoiser(llama(vocab_size=VOCABULARY, width=320, layers=7, std=0.1, tied=True))
    parameters = sum(p.numel() for p in model.network.backbone.model.parameters())  # type: ignore[attr-defined]
    inside = Inside(model)
    decodings = {case: _decoding(model, *case) for case in _cases()}
    for repeat in range(-1, STEPS):
        for (ranking, writer), decoding in decodings.items():
            inside.seconds, start = 0.0, process_time()
            next(decoding)
            whole = process_time() - start
            if repeat >= 0:
                yield Row(ranking, writer, "step_seconds", repeat, whole)
                yield Row(ranking, writer, "network_seconds", repeat, inside.seconds)
    yield Row("model", "", "parameters", 0, parameters)


def _cases() -> list[tuple[str, str]]:
    local = [name for name, preset in PRESETS.items() if preset.ranking is not None and _is_plain(preset)]
    rankings = [(name, "most probable") for name in sorted(local)]
    return rankings + [("confidence", writer) for writer in WRITERS if writer != "most probable"]


def _is_plain(preset: Preset) -> bool:
    """Whether it differs from confidence in its order only."""
    assert preset.ranking is not None
    remembers = RANKINGS.find(preset.ranking).remembers
    draws = preset.parameters.get("temperature", 0.0) > 0
    return not remembers and not draws and preset.budget == "even" and preset.reviser is None


def _decoding(model: Denoiser, ranking: str, writer: str) -> Iterator[Step]:
    prompt_BP = torch.randint(0, model.mask_id, (BATCH, PROMPT), generator=torch.Generator().manual_seed(2))
    canvas = Canvas.create(prompt_BP, mask_id=model.mask_id, max_new_tokens=LENGTH - PROMPT)
    sampler = tabes.sampler(ranking, tokens_per_step=8, **WRITERS[writer])
    while True:
        # The last steps have little left to read; they would hide what a step costs.
        yield from islice(tabes.decode(model, canvas, sampler, seed=0), 12)


def report(rows: Rows) -> Iterator[Verdict]:
    """The median share, sampler by sampler."""
    millions = rows.median("model", "", "parameters") / 1e6
    for ranking in (case for case in rows.cases() if case != "model"):
        for writer in rows.contenders(ranking):
            whole = rows.values(ranking, writer, "step_seconds")
            network = rows.values(ranking, writer, "network_seconds")
            shares = sorted((w - n) / w for w, n in zip(whole, network, strict=True))
            outside = sorted(w - n for w, n in zip(whole, network, strict=True))[len(whole) // 2]
            note = f"{outside * 1e3:.1f} ms of {rows.median(ranking, writer, 'step_seconds') * 1e3:.0f} ms"
            yield Verdict(
                f"{ranking}, {writer}: outside the network, {millions:.1f}M parameters",
                shares[len(shares) // 2],
                at_most=SHARE if writer == "most probable" else None,
                note=note,
            )
