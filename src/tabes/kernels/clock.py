"""A kernel's own clock: where it is among the blocks, how many steps it took there, which times come next.

Shapes: B batch rows, L canvas rows, K blocks, N different numbers of steps, S times of the grid.
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

    Unlike the canvas's own block this one stays until its steps are over, whether or not anything is masked.
    """

    blocks_BK: Tensor
    place_B: Tensor
    taken_B: Tensor
    steps_B: Tensor
    grid_BS: Tensor

    @classmethod
    def create(cls, canvas: Canvas, num_steps: int, grid: Callable[[int], Tensor]) -> KernelClock:
        """`num_steps` in all, so many of them for each block; `grid(n)` are the times of n steps, falling from 1."""
        masked_BL = canvas.masked_BL
        K = max(int(canvas.block_BL.max()) + 1, 1)
        used_BK = torch.zeros(masked_BL.shape[0], K, dtype=torch.bool, device=masked_BL.device)
        used_BK = used_BK.scatter_reduce(1, canvas.block_BL.clamp(min=0), masked_BL, "amax")
        number_B = used_BK.sum(1)
        if int(number_B.max()) > num_steps:
            raise UsageError(
                f"num_steps is {num_steps} but there are {int(number_B.max())} blocks; give at least one step per block"
            )
        steps_B = num_steps // number_B.clamp(min=1)
        zeros_B = torch.zeros_like(steps_B)
        # The used blocks first, in their order, and -1 behind the last.
        order_BK = (~used_BK).long().argsort(dim=1, stable=True)
        blocks_BK = torch.where(torch.arange(K, device=used_BK.device) < number_B[:, None], order_BK, -1)
        blocks_BK = torch.cat([blocks_BK, torch.full_like(blocks_BK[:, :1], -1)], 1)
        grids = {n: grid(n).to(used_BK.device) for n in sorted(set(steps_B.tolist()))}
        longest = max(len(times) for times in grids.values())
        table_NS = torch.stack([torch.cat([g, g.new_zeros(longest - len(g))]) for g in grids.values()])
        which_B = torch.searchsorted(torch.tensor(list(grids), device=steps_B.device), steps_B)
        lengths_N = torch.tensor([len(g) - 1 for g in grids.values()], device=steps_B.device)
        return cls(blocks_BK, zeros_B, zeros_B, lengths_N[which_B], table_NS[which_B])

    @property
    def block_B(self) -> Tensor:
        """The block being worked on; -1 behind the last."""
        return self.blocks_BK.gather(1, self.place_B[:, None]).squeeze(1)

    @property
    def time_B(self) -> Tensor:
        """The time now."""
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

    def _time(self, index_B: Tensor) -> Tensor:
        index_B1 = torch.minimum(index_B, self.steps_B)[:, None]
        return self.grid_BS.gather(1, index_B1).squeeze(1)
