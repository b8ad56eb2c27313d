"""The confidence sampler with logits only where tokens may be written, against the loop the field runs (field.py).

Shape: a bidirectional Llama of 2 layers of width 256 with random weights, 126,464 words, head not tied; batch 1,
prompt 32, 256 new tokens in 64 steps, float32, one thread.
* Temperature 0: one whole decode each, step by step in turns, tokens asserted equal after every step.
* All cases: median of 7 rounds. A round has one step of the field's loop (its work is always the same) and eight of
  tabes, whose work falls with the masks that may be written: one step from every eighth of the decode, each a place
  later in it. On average that is the mean step of the whole canvas, and it is every step of a block of 32 once.
* Memory: the first step, which is the largest, each in a process of its own.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor

import tabes
from benchmarks.clock import timed
from benchmarks.field import field_step
from benchmarks.memory import peak_rows
from benchmarks.models import denoiser, llama
from benchmarks.report import Verdict
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.sampling import Sampler

__all__ = ["MEMORY_JOBS", "report", "run"]

VOCABULARY, PROMPT, NEW, STEPS, REPEATS = 126_464, 32, 256, 64, 7
COUNT = NEW // STEPS
EIGHTHS = 8


@dataclass(frozen=True)
class Case:
    """One setting, and how many times faster than the field's loop tabes is to be."""

    block: int
    temperature: float
    faster: float

    @property
    def name(self) -> str:
        """As it stands in the rows."""
        where = "whole canvas" if self.block == NEW else f"blocks of {self.block}"
        return f"temperature {self.temperature:g}, {where}"

    def sampler(self) -> Sampler:
        """The confidence sampler of tabes."""
        return tabes.sampler("confidence", tokens_per_step=COUNT, temperature=self.temperature)


CASES = (Case(NEW, 0.0, 1.9), Case(32, 0.0, 8.0), Case(NEW, 0.7, 4.0), Case(32, 0.7, 15.0))


class Contest:
    """Both contenders with equal weights."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        # Weights of .3 make random rows disagree clearly, so that equal tokens do not hang on the last bit.
        self.plain = llama(vocab_size=VOCABULARY, width=256, layers=2, std=0.3)
        self.plain.lm_head.weight[-1] = 0.0  # as a trained model, it never proposes the mask
        self.ours = denoiser(deepcopy(self.plain))
        self.mask_id = self.ours.mask_id

    def canvas(self, case: Case, prompt: int = PROMPT, new: int = NEW) -> Canvas:
        """Prompt and masks."""
        generator = torch.Generator().manual_seed(1)
        prompt_1P = torch.randint(0, self.mask_id, (1, prompt), generator=generator)
        return Canvas.create(prompt_1P, mask_id=self.mask_id, max_new_tokens=new, block_length=case.block)

    def field(self, case: Case, canvas: Canvas) -> Tensor:
        """One step of the field's loop."""
        end = int(torch.where(canvas.open_BL, torch.arange(canvas.tokens_BL.shape[1]), 0).max()) + 1
        return field_step(
            self.plain,
            canvas.tokens_BL,
            mask_id=self.mask_id,
            end=end,
            count=COUNT,
            temperature=case.temperature,
        )

    def tabes(self, case: Case, canvas: Canvas) -> Canvas:
        """One step of ours."""
        return next(tabes.decode(self.ours, canvas, case.sampler(), seed=0)).canvas


def run() -> Iterator[Row]:
    """All measurements."""
    contest = Contest()
    torch.manual_seed(0)
    for case in CASES:
        states = [contest.canvas(case)]
        states += [step.canvas for step in tabes.decode(contest.ours, states[0], case.sampler(), seed=0)]
        if case.temperature == 0:
            yield from _whole(contest, case, states)
        yield from _rounds(contest, case, states)
    del contest, states
    for case in CASES:
        for contender in ("field", "tabes"):
            yield from peak_rows("vocabulary", case.name, contender, f"{contender}, {case.name}")


def _whole(contest: Contest, case: Case, states: list[Canvas]) -> Iterator[Row]:
    seconds = {"field": 0.0, "tabes": 0.0}
    for before, after in pairwise(states):
        found: list[Tensor] = []
        seconds["tabes"] += timed(lambda: contest.tabes(case, before))  # noqa: B023
        seconds["field"] += timed(lambda: found.append(contest.field(case, before)))  # noqa: B023
        if not torch.equal(found[0], after.tokens_BL):
            raise AssertionError(f"{case.name}: the field's loop wrote other tokens")
    for contender, total in seconds.items():
        yield Row(case.name, contender, "decode_seconds", 0, total)


def _rounds(contest: Contest, case: Case, states: list[Canvas]) -> Iterator[Row]:
    eighths = [states[_at(k)] for k in range(EIGHTHS)]
    for repeat in range(-1, REPEATS):
        gc.collect()
        state = eighths[repeat % EIGHTHS]
        theirs = timed(lambda: contest.field(case, state))  # noqa: B023
        ours = [timed(lambda: contest.tabes(case, state)) for state in eighths]  # noqa: B023
        if repeat >= 0:
            yield Row(case.name, "field", "step_seconds", repeat, theirs)
            for k, seconds in enumerate(ours):
                yield Row(case.name, "tabes", f"step_{_at(k)}_seconds", repeat, seconds)


def _at(k: int) -> int:
    """The k-th place in the k-th eighth."""
    return k * STEPS // EIGHTHS + k * (STEPS // EIGHTHS - 1) // (EIGHTHS - 1)


def _job(contender: str, case: Case) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        contest = Contest()
        if contender == "field":
            contest.ours = None  # type: ignore[assignment]
        else:
            contest.plain = None  # type: ignore[assignment]
        step = getattr(contest, contender)
        step(case, contest.canvas(case, prompt=4, new=4))
        canvas = contest.canvas(case)
        return lambda: step(case, canvas)

    return prepare


MEMORY_JOBS = {f"{who}, {case.name}": _job(who, case) for case in CASES for who in ("field", "tabes")}


def report(rows: Rows) -> Iterator[Verdict]:
    """Ratios against the targets."""
    for case in CASES:
        theirs = rows.median(case.name, "field", "step_seconds")
        ours = sum(rows.median(case.name, "tabes", f"step_{_at(k)}_seconds") for k in range(EIGHTHS)) / EIGHTHS
        note = f"{theirs * STEPS:.1f} s and {ours * STEPS:.1f} s for {STEPS} steps"
        yield Verdict(f"{case.name}: faster than the field's loop", theirs / ours, at_least=case.faster, note=note)
    for case in CASES:
        if whole := rows.values(case.name, "field", "decode_seconds"):
            ratio = median(whole) / rows.median(case.name, "tabes", "decode_seconds")
            yield Verdict(f"{case.name}: one whole decode, same tokens", ratio, at_least=case.faster)
    for case in CASES:
        for kind in ("resident", "tensors"):
            theirs, ours = (rows.median(case.name, who, f"{kind}_MiB") for who in ("field", "tabes"))
            note = f"{theirs:.0f} and {ours:.0f} MiB"
            yield Verdict(f"{case.name}: peak memory, {kind}", ours / theirs, at_most=1 / 3, note=note)
