"""The gradient of some rows' entropies: forward + replay of those rows, against forward + dense backward.

Shape: a bidirectional Llama of 6 layers of width 384 with random weights, 512 words (so that the head does not count),
one canvas of 512 masked and random tokens, float32, one thread. A share of the rows, spread at random, is active: their
embeddings are differentiated and their entropies summed; the head runs on the active rows only, for everyone.
* forward: a plain forward, no gradient. Times and memory are given relative to it.
* replay: a forward that remembers keys and values, then a replay of the active rows with gradient.
* dense: one forward with gradient through the input embeddings and its backward; parameters are frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.clock import interleaved
from benchmarks.memory import peak_rows
from benchmarks.models import denoiser, llama
from benchmarks.report import Verdict
from benchmarks.rows import Row, Rows
from tabes.canvas import Canvas

__all__ = ["MEMORY_JOBS", "report", "run"]

LENGTH, VOCABULARY, REPEATS = 512, 512, 15
TARGETS = {6: 1.3, 12: 1.5, 25: 1.7}
LARGEST = max(TARGETS)
DENSE_ABOVE, MEMORY_SHARE = 2.2, 0.45
CONTENDERS = ("forward", "replay", "dense")


class Contest:
    """One model, one canvas, a share of active rows."""

    def __init__(self, percent: int) -> None:
        torch.set_num_threads(1)
        self.denoiser = denoiser(llama(vocab_size=VOCABULARY, width=384, layers=6, std=0.05))
        generator = torch.Generator().manual_seed(percent)
        tokens_BL = torch.randint(0, VOCABULARY - 1, (1, LENGTH), generator=generator)
        order_L = torch.randperm(LENGTH, generator=generator)
        tokens_BL[0, order_L[: LENGTH // 2]] = self.denoiser.mask_id
        self.canvas = Canvas.create(tokens_BL, mask_id=self.denoiser.mask_id)
        self.active_BL = torch.zeros(1, LENGTH, dtype=torch.bool)
        self.active_BL[0, order_L[: LENGTH * percent // 100]] = True

    @torch.no_grad()
    def forward(self) -> Tensor:
        """Entropies, no gradient."""
        return self.denoiser.predict(self.canvas, self.active_BL, statistics=("entropy",)).entropy_BL

    @torch.no_grad()
    def replay(self) -> Tensor:
        """The gradient (active rows, E) by replay."""
        denoiser = self.denoiser
        prediction = denoiser.predict(self.canvas, self.active_BL, statistics=("entropy",), remember=True)
        prediction.entropy_BL  # noqa: B018  # a rule reads the forward's own prediction too
        with torch.enable_grad():
            embeddings_BLE = denoiser.network.embed(self.canvas.tokens_BL).detach().requires_grad_()
            replayed = denoiser.replay(
                prediction.memory, self.active_BL, embeddings_BLE=embeddings_BLE, statistics=("entropy",)
            )
            (gradient_BLE,) = torch.autograd.grad(replayed.entropy_BL.sum(), embeddings_BLE)
        return gradient_BLE[self.active_BL]

    def dense(self) -> Tensor:
        """The gradient (active rows, E) through the whole network."""
        network = self.denoiser.network
        embeddings_BLE = network.embed(self.canvas.tokens_BL).detach().requires_grad_()
        hidden_BLd, _ = network.forward(
            None, embeddings_BLE=embeddings_BLE, positions_BL=self.canvas.positions_BL, padding_BL=None
        )
        mask = torch.tensor([self.denoiser.mask_id])  # the mask is no token: tabes leaves it out of every distribution
        logits_NV = network.head(hidden_BLd[self.active_BL]).index_fill(1, mask, -1e30)
        log_p_NV = logits_NV.log_softmax(-1)
        (gradient_BLE,) = torch.autograd.grad(-(log_p_NV.exp() * log_p_NV).sum(), embeddings_BLE)
        return gradient_BLE[self.active_BL]


def _case(percent: int) -> str:
    return f"{percent} % active"


def run() -> Iterator[Row]:
    """All measurements."""
    for percent in TARGETS:
        contest = Contest(percent)
        jobs = {name: getattr(contest, name) for name in CONTENDERS}
        yield from interleaved(_case(percent), jobs, repeats=REPEATS)
    for name in CONTENDERS:
        yield from peak_rows("replay", _case(LARGEST), name, name)


def _job(name: str) -> Callable[[], Callable[[], object]]:
    def prepare() -> Callable[[], object]:
        contest = Contest(LARGEST)
        contest.forward()
        job: Callable[[], object] = getattr(contest, name)
        return job

    return prepare


MEMORY_JOBS = {name: _job(name) for name in CONTENDERS}


def report(rows: Rows) -> Iterator[Verdict]:
    """Everything over a plain forward."""
    for percent, target in TARGETS.items():
        forward, replay, dense = (rows.median(_case(percent), name, "seconds") for name in CONTENDERS)
        note = f"{forward * 1e3:.0f} ms and {replay * 1e3:.0f} ms"
        yield Verdict(f"{_case(percent)}: forward + replay over forward", replay / forward, at_most=target, note=note)
        note = f"{dense * 1e3:.0f} ms"
        yield Verdict(
            f"{_case(percent)}: forward + dense backward over forward", dense / forward, at_least=DENSE_ABOVE, note=note
        )
    for kind in ("tensors", "resident"):
        peaks = [rows.median(_case(LARGEST), name, f"{kind}_MiB") for name in CONTENDERS]
        yield Verdict(
            f"{_case(LARGEST)}: peak above a plain forward, replay over dense, {kind}",
            (peaks[1] - peaks[0]) / (peaks[2] - peaks[0]),
            at_most=MEMORY_SHARE,
            note="forward {:.0f}, replay {:.0f}, dense {:.0f} MiB".format(*peaks),
        )
