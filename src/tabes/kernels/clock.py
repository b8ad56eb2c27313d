"""A kernel's own clock: where it is among the blocks, how many steps it took there, which times come next.

Shapes: B batch rows, L canvas rows, K blocks, N different numbers of steps, S times of the longest grid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.errors import UsageError

__all__ = ["KernelClock"]


@dataclass(frozen=True)
class KernelClock(Batched):
    """Where every batch row is: its place among the blocks that have masks, the steps taken there, the times to go.

    Unlike the canvas's own block this one stays until its steps are over, whether or not anything is masked. The first
    `extra_B` blocks have one step more than the others; `grid_B2S` are the times of the others and of those.
    """

    blocks_BK: Tensor
    place_B: Tensor
    taken_B: Tensor
    extra_B: Tensor
    length_B2: Tensor
    grid_B2S: Tensor

    @classmethod
    def create(cls, canvas: Canvas, num_steps: int, grid: Callable[[int], Tensor]) -> KernelClock:
        """`num_steps` in all, shared out over the blocks; `grid(n)` are the times of n steps, falling from 1."""
        blocks_BK = _used_blocks(canvas)
        number_B = (blocks_BK >= 0).sum(1)
        most = int(number_B.max())
        if most > num_steps:
            raise UsageError(f"num_steps is {num_steps} but there are {most} blocks; give at least one step per block")
        number_B = number_B.clamp(min=1)
        steps_B, extra_B = num_steps // number_B, num_steps % number_B
        length_B2, grid_B2S = _grids(torch.stack([steps_B, steps_B + (extra_B > 0)], 1), grid)
        zeros_B = torch.zeros_like(steps_B)
        return cls(blocks_BK, zeros_B, zeros_B, extra_B, length_B2, grid_B2S)

    @property
    def block_B(self) -> Tensor:
        """The block being worked on; -1 behind the last."""
        return self.blocks_BK.gather(1, self.place_B[:, None]).squeeze(1)

    @property
    def time_B(self) -> Tensor:
        """The time now, in float64."""
        return self._time(self.taken_B)

    @property
    def next_time_B(self) -> Tensor:
        """The time after this step."""
        return self._time(self.taken_B + 1)

    @property
    def over_B(self) -> Tensor:
        """Whether all steps of the block were taken, so that what is still masked has to be filled at once."""
        return self.taken_B >= self.steps_B

    @property
    def last_B(self) -> Tensor:
        """Whether this is the last of the block's steps."""
        return self.taken_B == self.steps_B - 1

    def area(self, canvas: Canvas) -> Tensor:
        """The writable rows (B, L) of the block."""
        return canvas.writable_BL & (canvas.block_BL == self.block_B[:, None])

    def tick(self, leave_B: Tensor) -> KernelClock:
        """The clock after a step; `leave_B` are the batch rows that go on to their next block."""
        place_B = (self.place_B + leave_B).clamp(max=self.blocks_BK.shape[1] - 1)
        return replace(self, place_B=place_B, taken_B=torch.where(leave_B, 0, self.taken_B + 1))

    def done(self) -> Tensor:
        """Whether the last block was left."""
        return self.block_B < 0

    @property
    def _which_B1(self) -> Tensor:
        return (self.place_B < self.extra_B).long()[:, None]

    @property
    def steps_B(self) -> Tensor:
        """How many steps the block is given."""
        return self.length_B2.gather(1, self._which_B1).squeeze(1)

    def _time(self, index_B: Tensor) -> Tensor:
        index_B1 = torch.minimum(index_B, self.steps_B)[:, None]
        grid_B1S = self.grid_B2S.gather(1, self._which_B1[..., None].expand(-1, -1, self.grid_B2S.shape[2]))
        return grid_B1S.squeeze(1).gather(1, index_B1).squeeze(1)


def _used_blocks(canvas: Canvas) -> Tensor:
    """The blocks with masks in their order, and -1 behind the last."""
    masked_BL = canvas.masked_BL
    K = max(int(canvas.block_BL.max()) + 1, 1)
    counts_BK = torch.zeros(masked_BL.shape[0], K, dtype=torch.int64, device=masked_BL.device)
    used_BK = counts_BK.scatter_add(1, canvas.block_BL.clamp(min=0), masked_BL.long()) > 0
    order_BK = (~used_BK).long().argsort(dim=1, stable=True)
    places_K = torch.arange(K, device=used_BK.device)
    blocks_BK = torch.where(places_K < used_BK.sum(1, keepdim=True), order_BK, -1)
    return torch.cat([blocks_BK, torch.full_like(blocks_BK[:, :1], -1)], 1)


def _grids(steps_B2: Tensor, grid: Callable[[int], Tensor]) -> tuple[Tensor, Tensor]:
    """How many steps the grids for so many steps really have, and their times: one grid per different number."""
    grids = {n: grid(n) for n in sorted(set(steps_B2.flatten().tolist()))}
    longest = max(len(times) for times in grids.values())
    table_NS = torch.stack([torch.cat([times, times.new_zeros(longest - len(times))]) for times in grids.values()])
    length_N = torch.tensor([len(times) - 1 for times in grids.values()])
    which_B2 = torch.searchsorted(torch.tensor(list(grids)), steps_B2.cpu())
    return length_N[which_B2].to(steps_B2.device), table_NS[which_B2].to(steps_B2.device)
