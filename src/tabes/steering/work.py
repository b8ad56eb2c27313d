"""A bank of work: what steering may spend over plain decoding, saved up in steps that need none.

Shapes: B batch rows, L canvas rows. All amounts are FLOPs of one batch row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.steering.candidates import top
from tabes.steering.scene import Scene

__all__ = ["Bank", "Price", "affordable", "before_flops", "paid", "replay_flops"]


@dataclass(frozen=True)
class Price:
    """What steering a batch row costs: once, and for each of its candidates."""

    once_B: Tensor
    each_B: Tensor


def replay_flops(scene: Scene, rows_BL: Tensor, *, backward: bool = False) -> Tensor:
    """(B,): a replay of these rows, read at all of them."""
    work, length = scene.denoiser.base.network.work, rows_BL.shape[1]
    flops = [work.replay(rows, length) + rows * work.head for rows in rows_BL.sum(1).tolist()]
    if backward:
        back = [work.backward(rows, length) + rows * work.head for rows in rows_BL.sum(1).tolist()]
        flops = [sum(both) for both in zip(flops, back, strict=True)]
    return torch.tensor(flops, dtype=torch.float64, device=rows_BL.device)


def before_flops(scene: Scene) -> Tensor:
    """(B,): the forward at the next time, 0 where the network knows no time."""
    work, (batch, length) = scene.denoiser.base.network.work, scene.canvas.tokens_BL.shape
    flops = work.layers(length, length) if scene.next_time_B is not None else 0.0
    return torch.full((batch,), flops, dtype=torch.float64, device=scene.tokens_BL.device)


@dataclass(frozen=True)
class Bank(Batched):
    """What every batch row has left to spend."""

    flops_B: Tensor

    @classmethod
    def empty(cls, canvas: Canvas) -> Bank:
        return cls(torch.zeros(canvas.tokens_BL.shape[0], dtype=torch.float64, device=canvas.tokens_BL.device))

    @staticmethod
    def check(work: float | None) -> None:
        if work is not None and not work > 0:
            raise UsageError(f"work is {work}; it must be above 0, such as 0.2 for 20 % over plain decoding")

    def earn(self, share: float, full_forward: float) -> Bank:
        """One more step's share of the work of plain decoding; `full_forward` is that of the whole batch."""
        return replace(self, flops_B=self.flops_B + share * full_forward / len(self.flops_B))


def affordable(candidates_BL: Tensor, confidence_BL: Tensor, price: Price, bank: Bank) -> Tensor:
    """The most confident candidates, as many as the bank pays for."""
    rest_B = bank.flops_B - price.once_B
    count_B = (rest_B / price.each_B.clamp(min=1e-9)).clamp(max=candidates_BL.shape[1]).floor()
    return top(candidates_BL, confidence_BL, torch.where(rest_B >= 0, count_B, 0).long())


def paid(bank: Bank, candidates_BL: Tensor, price: Price) -> Bank:
    """The bank after steering with these candidates."""
    count_B = candidates_BL.sum(1)
    cost_B = torch.where(count_B > 0, price.once_B + count_B * price.each_B, 0.0)
    return replace(bank, flops_B=bank.flops_B - cost_B)
