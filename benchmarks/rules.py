"""What a step of every named sampler costs: its seconds over those of a plain step on the very same canvas.

A plain step is one forward, the head on the rows the sampler read, the maximum and the log of the sum of each of them.
Each sampler decodes by itself; at some of its steps canvas, state and randomness are kept, and its step (with what it
does to the canvas) and the plain one are run again in turns, so nothing but the rule differs. Ratio: seconds of all
kept steps over the plain ones, median of the rounds. Beside it the same ratio of the ledger's work.
* sudoku: the bundled model, 8 puzzles of 28 clues at once, its own defaults, the first 24 steps with a forward.
* words: a bidirectional Llama of 2 layers of width 256 with random weights and 126,464 words, batch 1, 32 given and
  64 masked rows, the first six steps of 8 where the sampler can be told (8 rows a step; one where it looks ahead).
float32, one thread. Targets: rules that look at rows and adaptive budgets 1.15, revising 1.3, drawing 2; steered rules
and those that look ahead cost what their replays say, so there the work is what to compare with.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from operator import or_
from statistics import median
from typing import Any

import torch
from torch import Tensor

import tabes
from benchmarks.clock import timed
from benchmarks.models import denoiser, llama
from benchmarks.report import Verdict
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.catalogue import PRESETS
from tabes.denoiser import Denoiser
from tabes.parts import BUDGETS
from tabes.prediction import Prediction
from tabes.presets import settings_of
from tabes.sampling import PartSampler, Sampler
from tabes.tasks.sudoku import puzzles
from tabes.view import View
from tabes.writers import Argmax

__all__ = ["report", "run"]

PUZZLES, CLUES, SEED = 8, 28, 20_261_119
VOCABULARY, PROMPT, NEW, STEPS = 126_464, 32, 64, 8
FIRST, KEPT, REPEATS = 24, 3, 5
LOCAL, REVISING, DRAWING = 1.15, 1.3, 2.0
AHEAD = ("steered", "lookahead")
# Draws where nothing else differs from a rule that is held to 1.15.
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "confidence drawn at 0.7": ("confidence", {"temperature": 0.7}),
    "confidence drawn at 0.7, top-p 0.9": ("confidence", {"temperature": 0.7, "top_p": 0.9}),
}


@dataclass
class Kept:
    """All that a step saw."""

    canvas: Canvas
    state: Any
    view: View


@dataclass
class Recorder:
    """A sampler that keeps what its steps saw, of the steps in `wanted` only (None: all)."""

    sampler: Sampler
    wanted: frozenset[int] | None = None
    kept: list[Kept] = field(default_factory=list)

    @property
    def revises(self) -> bool:
        """As the sampler."""
        return self.sampler.revises

    def init(self, canvas: Canvas) -> Any:
        """As the sampler."""
        return self.sampler.init(canvas)

    def step(self, view: View, state: Any) -> Any:
        """As the sampler."""
        if self.wanted is None or view.step in self.wanted:
            self.kept.append(Kept(view.canvas, state, view))
        return self.sampler.step(view, state)


class Watching(View):
    """A view that knows which rows were read."""

    def predict(self, rows_BL: Tensor, **arguments: Any) -> Prediction:
        """As any view."""
        self.read = [*getattr(self, "read", []), rows_BL]
        return super().predict(rows_BL, **arguments)


@dataclass
class Contest:
    """A kept step, as the sampler takes it and as plain decoding would."""

    model: Denoiser
    sampler: Sampler
    kept: Kept

    def __post_init__(self) -> None:
        view = self._view(Watching)
        self.sampler.step(view, self.kept.state)
        read = getattr(view, "read", [])
        self.rows_BL = reduce(or_, read) if read else self.kept.canvas.open_BL

    def rule(self) -> Canvas:
        """The sampler's step."""
        move, _ = self.sampler.step(self._view(View), self.kept.state)
        return self.kept.canvas.apply(move)

    def plain(self) -> tuple[Tensor, Tensor]:
        """The plain step."""
        wanted = ("top_token", "log_normaliser")
        prediction = self.model.predict(self.kept.canvas, self.rows_BL, statistics=wanted)
        return prediction.top_token_BL, prediction.log_normaliser_BL

    def flops(self, job: Callable[[], object]) -> float:
        """What the ledger says of it."""
        with self.model.ledger.measure(self.model.device, 1.0) as costs:
            job()
        return costs[0].flops

    def _view(self, kind: type[View]) -> View:
        seen = self.kept.view
        return kind(seen.canvas, self.model, seen.step, seen.randomness)


@torch.no_grad()
def run() -> Iterator[Row]:
    """Every sampler on both models."""
    torch.set_num_threads(1)
    cases: tuple[Callable[[], tuple[Denoiser, Canvas]], ...] = (_sudoku, _words)
    for case in cases:
        model, canvas = case()
        for contender in (*PRESETS, *MORE):
            short = case is _words
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield from _measured(case.__name__.strip("_"), contender, model, canvas, short=short)


def _sudoku() -> tuple[Denoiser, Canvas]:
    model = tabes.load("sudoku")
    givens_BL = torch.from_numpy(puzzles(PUZZLES, CLUES, SEED, split="test").givens).long()
    tokens_BL = torch.where(givens_BL == 0, model.mask_id, givens_BL)  # a digit's id is the digit
    return model, Canvas.create(tokens_BL, mask_id=model.mask_id)


def _words() -> tuple[Denoiser, Canvas]:
    model = denoiser(llama(vocab_size=VOCABULARY, width=256, layers=2, std=0.3))
    generator = torch.Generator().manual_seed(1)
    prompt_1P = torch.randint(0, model.mask_id, (1, PROMPT), generator=generator)
    return model, Canvas.create(prompt_1P, mask_id=model.mask_id, max_new_tokens=NEW)


def built(contender: str, num_steps: int | None = None) -> Sampler:
    """The sampler, in so many steps where it can be told."""
    name, parameters = MORE.get(contender, (contender, {}))
    preset = PRESETS[name]
    if preset.kernel is not None:
        takes_steps = "num_steps" in {one.name for one in settings_of(name)}
    else:
        takes_steps = "num_steps" in BUDGETS.parameters(preset.budget)
    return tabes.sampler(name, num_steps=num_steps if takes_steps else None, **parameters)


def _steps(contender: str) -> int:
    """Rules that look ahead are made for one row at a step; some do nothing where there are more."""
    return NEW if PRESETS[MORE.get(contender, (contender, {}))[0]].family in AHEAD else STEPS


def _measured(case: str, contender: str, model: Denoiser, canvas: Canvas, *, short: bool) -> Iterator[Row]:
    sampler = built(contender, _steps(contender) if short else None)
    # The first step is not like the others for a rule that remembers.
    recorder = Recorder(sampler, frozenset(range(1, 2 * KEPT, 2)) if short else None)
    decoding = tabes.decode(model, canvas, recorder, seed=0)
    # Steps in which a kernel's coins changed nothing need no forward; there is no plain step like them.
    working = (step.index for step in decoding if step.cost.flops > 0)
    taken = set(islice(working, 2 * KEPT if short else FIRST))
    decoding.close()  # type: ignore[attr-defined]
    contests = [Contest(model, sampler, kept) for kept in _spread(recorder.kept, taken)]
    for what in ("rule", "plain"):
        yield Row(
            case, contender, f"{what}_flops", 0, sum(contest.flops(getattr(contest, what)) for contest in contests)
        )
    for repeat in range(REPEATS):
        gc.collect()
        seconds = {"rule": 0.0, "plain": 0.0}
        for contest in contests:
            for what in ("rule", "plain") if repeat % 2 else ("plain", "rule"):
                seconds[what] += timed(getattr(contest, what))
        for what, value in seconds.items():
            yield Row(case, contender, f"{what}_seconds", repeat, value / len(contests))


def _spread(kept: list[Kept], taken: set[int]) -> list[Kept]:
    """A few of the steps that were taken, spread over all of them."""
    kept = [one for one in kept if one.view.step in taken]
    if len(kept) <= KEPT:
        return kept
    return [kept[(2 * k + 1) * len(kept) // (2 * KEPT)] for k in range(KEPT)]


def target(contender: str) -> float | None:
    """What the sampler is held to; None for those that replay to look ahead."""
    preset = PRESETS[MORE.get(contender, (contender, {}))[0]]
    if preset.family in AHEAD:
        return None
    sampler = built(contender)
    if isinstance(sampler, PartSampler):
        draws = not isinstance(sampler.writer, Argmax)
    else:
        draws = getattr(sampler, "temperature", 0.0) > 0
    return max(LOCAL, DRAWING if draws else 0.0, REVISING if sampler.revises else 0.0)


def report(rows: Rows) -> Iterator[Verdict]:
    """The ratios, sampler by sampler."""
    for case in rows.cases():
        for contender in rows.contenders(case):
            rule, plain = (rows.values(case, contender, f"{what}_seconds") for what in ("rule", "plain"))
            ratio = median(one / other for one, other in zip(rule, plain, strict=True))
            flops = [rows.median(case, contender, f"{what}_flops") for what in ("rule", "plain")]
            work = flops[0] / flops[1]
            note = f"work {work:.2f}, seconds over work {ratio / work:.2f}; plain {median(plain) * 1e3:.1f} ms"
            yield Verdict(f"{case}, {contender}", ratio, at_most=target(contender), note=note)
