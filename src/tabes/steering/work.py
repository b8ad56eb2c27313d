"""A bank of work: what steering may spend over plain decoding, saved up in steps that need none.

Plain decoding asks for the open rows and nothing else; behind a row cache most of its steps are small replays.
Shapes: B batch rows, L canvas rows. All amounts are FLOPs of one batch row by itself, so padding is no part of them;
guidance doubles what is earned and what is paid alike, so it is left out of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.steering.candidates import top
from tabes.steering.scene import Scene

__all__ = ["Bank", "Price", "affordable", "before_flops", "plain_flops", "replay_flops", "write_flops"]


@dataclass(frozen=True)
class Price:
    """What steering a batch row costs: once, and for each of its candidates."""

    once_B: Tensor
    each_B: Tensor

    def of(self, candidates_BL: Tensor) -> Tensor:
        """(B,), 0 where nothing competes."""
        count_B = candidates_BL.sum(1)
        return torch.where(count_B > 0, self.once_B + count_B * self.each_B, 0.0)


def replay_flops(scene: Scene, rows_B: Tensor, read_B: Tensor, *, backward: bool = False) -> Tensor:
    """(B,): a replay of so many rows, the head on `read_B` of them, with its gradient if `backward`."""
    work = scene.denoiser.base.network.work
    flops = []
    for rows, read, length in zip(rows_B.tolist(), read_B.tolist(), scene.content_BL.sum(1).tolist(), strict=True):
        there = work.replay(rows, length) + read * work.head
        back = work.backward(rows, length) + read * work.head if backward else 0.0
        flops.append(there + back if rows > 0 else 0.0)
    return torch.tensor(flops, dtype=torch.float64, device=rows_B.device)


def before_flops(scene: Scene, read_B: Tensor) -> Tensor:
    """(B,): the forward at the next time, 0 where the network knows no time."""
    if scene.next_time_B is None:
        return torch.zeros(len(read_B), dtype=torch.float64, device=read_B.device)
    return replay_flops(scene, scene.content_BL.sum(1), read_B)


def write_flops(scene: Scene) -> Tensor:
    """(B,): the soft write of one row, and another run of the head where its logits were not kept."""
    network, kept_B = scene.denoiser.base.network, scene.prediction.kept_B
    mean = 2.0 * network.embedding_weight().numel()
    return torch.where(kept_B, mean, mean + network.work.head).double()


def plain_flops(scene: Scene, wanted_BL: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) each: this step's prediction as plain decoding would have it, and what rows `wanted_BL` for steering add.

    An offer that a cache took counts as the replay it saved, so that a bank does not hang on the rest of the batch.
    """
    computed_B, rows_BL = scene.prediction.computed_B, scene.prediction.rows_BL
    read_B, extra_B = rows_BL.sum(1), (wanted_BL & rows_BL & ~scene.canvas.open_BL).sum(1)
    whole_B = computed_B == scene.content_BL.sum(1)
    plain_B = replay_flops(scene, torch.where(whole_B, computed_B, computed_B - extra_B), read_B - extra_B)
    return plain_B, replay_flops(scene, computed_B, read_B) - plain_B


@dataclass(frozen=True)
class Bank(Batched):
    """What every batch row has left to spend."""

    flops_B: Tensor

    @classmethod
    def empty(cls, canvas: Canvas) -> Bank:
        return cls(torch.zeros(canvas.tokens_BL.shape[0], dtype=torch.float64, device=canvas.tokens_BL.device))

    def earn(self, share: float, plain_B: Tensor, more_B: Tensor | float = 0.0) -> Bank:
        """One more step's share of the work of plain decoding, less what was spent already: maybe a debt."""
        return replace(self, flops_B=self.flops_B + share * plain_B - more_B)

    def pay(self, flops_B: Tensor) -> Bank:
        return replace(self, flops_B=self.flops_B - flops_B)


def affordable(candidates_BL: Tensor, confidence_BL: Tensor, price: Price, bank: Bank) -> Tensor:
    """The most confident candidates, as many as the bank pays for."""
    rest_B = bank.flops_B - price.once_B
    count_B = (rest_B / price.each_B.clamp(min=1e-9)).clamp(max=candidates_BL.shape[1]).floor()
    return top(candidates_BL, confidence_BL, torch.where(rest_B >= 0, count_B, 0).long())
