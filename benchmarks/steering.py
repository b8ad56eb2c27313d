"""What a steered step costs: one whole step of `boe` and `lookahead` over one confidence step of the same canvas.

Shape: a bidirectional Llama of 6 layers of width 384 with random weights, 512 words (so that the head does not count:
with a real vocabulary every step gets dearer, the confidence step too), one canvas of 512 rows, float32, one thread. A
share of the rows, spread at random, is masked and one token is written. Every masked row is a candidate and a probe, so
the rows replayed are the masked ones. In the blocks case the last half of the canvas is masked, written in blocks of
32, and only the block at hand is watched.
* confidence, boe, boe-dense, lookahead (4 candidates): the first step of `tabes.decode`.
* boe at the mask: with expansion 0. boe where sure: the preset in a step in which nothing competes.
* forward: a plain forward that reads nothing. drops: lookahead without the main forward, its replays and entropies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

import tabes
from benchmarks.clock import interleaved
from benchmarks.memory import peak_rows
from benchmarks.models import denoiser, llama
from benchmarks.report import Verdict
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas
from tabes.decoding import Step
from tabes.sampling import Sampler
from tabes.steering import Lookahead, Scene
from tabes.steering.candidates import top

__all__ = ["MEMORY_JOBS", "report", "run"]

LENGTH, VOCABULARY, BLOCK, REPEATS = 512, 512, 32, 15
TRIED = 4
DENSE_ABOVE, LOOKAHEAD_SHARE, MEMORY_SHARE, CLAIMED = 3.0, 1 / 3, 0.45, 1.10
STEERED = ("boe", "boe at the mask")
SURE = "boe where sure"
# What a preset may some day choose by itself is said here: everything competes, nothing is spared.
ALL = {"rho": None, "delta": None, "candidates": None, "sure": None, "work": None}


@dataclass(frozen=True)
class Case:
    """A share of masked rows, what `boe` may cost there, and who else takes part."""

    percent: int
    at_most: float | None = None
    others: tuple[str, ...] = ()
    block: int | None = None

    @property
    def name(self) -> str:
        """As it stands in the rows."""
        return f"{self.percent} % masked" + (f", blocks of {self.block}" if self.block else "")

    def masked(self) -> Tensor:
        """(1, L): at random, or the end of the canvas where it is written in blocks."""
        order_L = torch.arange(LENGTH).flip(0)
        if self.block is None:
            order_L = torch.randperm(LENGTH, generator=torch.Generator().manual_seed(self.percent))
        count = max(2, LENGTH * self.percent // 100)  # a single mask leaves nothing to choose
        return torch.zeros(1, LENGTH, dtype=torch.bool).index_fill(1, order_L[:count], True)


QUARTER = Case(25, 1.75, ("boe-dense", SURE, "lookahead", "drops", "forward"))
HALF = Case(50, 2.35, ("boe-dense",))
BLOCKS = Case(50, 1.3, ("boe-dense",), block=BLOCK)
SHARES = (*(Case(percent) for percent in (2, 4, 6, 8, 12)), QUARTER, HALF)
CASES = (*SHARES, BLOCKS)


@dataclass
class Contest:
    """One model and the canvas of a case."""

    case: Case
    canvas: Canvas = field(init=False)

    def __post_init__(self) -> None:
        torch.set_num_threads(1)
        self.denoiser = denoiser(llama(vocab_size=VOCABULARY, width=384, layers=6, std=0.05))
        mask_id, masked_BL = self.denoiser.mask_id, self.case.masked()
        tokens_BL = torch.randint(0, mask_id, (1, LENGTH), generator=torch.Generator().manual_seed(0))
        tokens_BL = torch.where(masked_BL, mask_id, tokens_BL)
        self.canvas = Canvas.create(tokens_BL, mask_id=mask_id, block_length=self.case.block)

    def sampler(self, name: str) -> Sampler:
        """One token a step, every masked row active (of its block, where there are blocks)."""
        if name == "confidence":
            return tabes.sampler(name, tokens_per_step=1)
        if name == SURE:
            return tabes.sampler("boe", tokens_per_step=1, sure=0.0)
        probes = "masked" if self.case.block is None else "block"
        if name == "lookahead":
            return tabes.sampler(name, tokens_per_step=1, probes=probes, **ALL | {"candidates": TRIED})
        expansion, name = (0.0, "boe") if name == "boe at the mask" else (0.5, name)
        return tabes.sampler(name, tokens_per_step=1, probes=probes, expansion=expansion, **ALL)

    def jobs(self) -> dict[str, Callable[[], object]]:
        """Everyone who takes part."""
        own = {"forward": self.forward, "drops": self.drops()}
        names = ("confidence", *STEERED, *self.case.others)
        return {name: own[name] if name in own else partial(self.step, self.sampler(name)) for name in names}

    def step(self, sampler: Sampler) -> Step:
        """The first step of a decoding."""
        return next(tabes.decode(self.denoiser, self.canvas, sampler))

    @torch.no_grad()
    def forward(self) -> object:
        """The network alone."""
        return self.denoiser.predict(self.canvas, self.canvas.open_BL)

    @torch.no_grad()
    def drops(self) -> Callable[[], Tensor]:
        """What `lookahead` adds to its main forward."""
        canvas, read = self.canvas, ("confidence", "entropy", "top_token")
        prediction = self.denoiser.predict(canvas, canvas.masked_BL, statistics=read, remember=True)
        tried_BL = top(canvas.open_BL, prediction.confidence_BL, torch.tensor([TRIED]))
        scene = Scene(canvas, self.denoiser, prediction, prediction.top_token_BL)
        return torch.no_grad()(lambda: Lookahead().drops(scene, tried_BL))


def run() -> Iterator[Row]:
    """All measurements."""
    for case in CASES:
        contest = Contest(case)
        yield from interleaved(case.name, contest.jobs(), repeats=REPEATS)
        for name in ("confidence", *STEERED, *case.others):
            if name not in ("drops", "forward"):
                work = contest.step(contest.sampler(name)).cost.forward_equivalents
                yield Row(case.name, name, "forward_equivalents", 0, work)
    for name in MEMORY_JOBS:
        yield from peak_rows("steering", QUARTER.name, name, name)
    # The dense backward at its leanest: nothing remembered.
    yield from peak_rows("replay", QUARTER.name, "dense backward", "dense")


def _job(name: str) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        contest = Contest(QUARTER)
        contest.step(contest.sampler("confidence"))
        return contest.jobs()[name]

    return prepare


MEMORY_JOBS = {name: _job(name) for name in ("forward", "boe", "boe-dense")}


def report(rows: Rows) -> Iterator[Verdict]:
    """Everything over a confidence step; the floor is the same ratio of the ledger's work."""
    for case in CASES:
        for name in (*STEERED, *(other for other in case.others if other.startswith("boe"))):
            dense = name == "boe-dense"
            yield Verdict(
                f"{case.name}: {name} over confidence",
                _ratio(rows, case, name),
                at_least=DENSE_ABOVE if dense and case.block is None else None,
                at_most=None if dense else case.at_most,
                note=_note(rows, case, name),
            )
    share = _share_at(CLAIMED, [(case.percent, _ratio(rows, case, "boe")) for case in SHARES])
    yield Verdict(f"percent of rows active at which a boe step costs {CLAIMED:.2f} x", share, note="interpolated")
    yield from _of_lookahead(rows)
    yield from _of_memory(rows)


def _ratio(rows: Rows, case: Case, name: str) -> float:
    return rows.median(case.name, name, "seconds") / rows.median(case.name, "confidence", "seconds")


def _note(rows: Rows, case: Case, name: str) -> str:
    times = [rows.median(case.name, who, "seconds") * 1e3 for who in ("confidence", name)]
    work = [rows.median(case.name, who, "forward_equivalents") for who in ("confidence", name)]
    return f"{times[0]:.0f} and {times[1]:.0f} ms; floor {work[1] / work[0]:.2f}, {work[1]:.2f} forwards"


def _share_at(ratio: float, found: list[tuple[int, float]]) -> float:
    """The share at which a line through the measured points, and 1 at none, first reaches `ratio`."""
    (low, below), *_ = points = [(0, 1.0), *found]
    for share, value in points:
        if value >= ratio:
            return low + (share - low) * (ratio - below) / (value - below)
        low, below = share, value
    return low


def _of_lookahead(rows: Rows) -> Iterator[Verdict]:
    forward, drops, step = (rows.median(QUARTER.name, who, "seconds") for who in ("forward", "drops", "lookahead"))
    note = f"{TRIED} x {forward * 1e3:.0f} ms and {drops * 1e3:.0f} ms"
    what = f"{QUARTER.name}: lookahead's replay of {TRIED} candidates over {TRIED} forwards"
    yield Verdict(what, drops / forward / TRIED, at_most=LOOKAHEAD_SHARE, note=note)
    work = rows.median(QUARTER.name, "lookahead", "forward_equivalents")
    note = f"{step * 1e3:.0f} ms; floor {work / TRIED:.2f}"
    yield Verdict(f"{QUARTER.name}: lookahead step over {TRIED} forwards", step / forward / TRIED, note=note)


def _of_memory(rows: Rows) -> Iterator[Verdict]:
    for dense in ("dense backward", "boe-dense"):
        for kind in ("tensors", "resident"):
            peaks = [rows.median(QUARTER.name, who, f"{kind}_MiB") for who in ("forward", "boe", dense)]
            yield Verdict(
                f"{QUARTER.name}: peak above a plain forward, boe over {dense}, {kind}",
                (peaks[1] - peaks[0]) / (peaks[2] - peaks[0]),
                at_most=MEMORY_SHARE,
                note="forward {:.0f}, boe {:.0f}, dense {:.0f} MiB".format(*peaks),
            )
