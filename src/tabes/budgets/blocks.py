"""Steps shared out over blocks. Shapes: B batch rows, K blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.settings import setting

__all__ = ["BlockClock", "num_steps_setting"]


def num_steps_setting() -> Any:
    """The parameter of every budget that is given a number of steps."""
    return setting(None, "steps in all, shared evenly between blocks; none: one per token", least=1, whole=True)


@dataclass(frozen=True)
class BlockClock(Batched):
    """For every block: the masks it started with, the steps it is given, the steps it has taken."""

    masks_BK: Tensor
    steps_BK: Tensor
    taken_BK: Tensor

    @classmethod
    def create(cls, canvas: Canvas, num_steps: int | None, *, spare: bool = False) -> BlockClock:
        """`num_steps` split as evenly as it goes over the blocks that have masks (None: a step for every mask).

        A block is given no more steps than it has masks, unless some may be `spare`.
        """
        masked_BL = canvas.masked_BL
        K = int(canvas.block_BL.max()) + 1
        zeros_BK = torch.zeros(masked_BL.shape[0], max(K, 1), dtype=torch.int64, device=masked_BL.device)
        masks_BK = zeros_BK.scatter_add(1, canvas.block_BL.clamp(min=0), masked_BL.long())
        if num_steps is None:
            return cls(masks_BK, masks_BK, zeros_BK)
        used_BK = masks_BK > 0
        blocks_B1 = used_BK.sum(1, keepdim=True)
        if int(blocks_B1.max()) > num_steps:
            blocks = int(blocks_B1.max())
            raise UsageError(
                f"num_steps is {num_steps} but there are {blocks} blocks; give at least one step per block"
            )
        base_B1, extra_B1 = num_steps // blocks_B1.clamp(min=1), num_steps % blocks_B1.clamp(min=1)
        steps_BK = base_B1 + (used_BK.cumsum(1) <= extra_B1)
        most_BK = steps_BK if spare else torch.minimum(steps_BK, masks_BK)
        return cls(masks_BK, torch.where(used_BK, most_BK, 0), zeros_BK)

    def now(self, canvas: Canvas) -> tuple[Tensor, Tensor, Tensor]:
        """(masks at the start, steps given, steps taken) of the block every batch row works on."""
        k_B1 = self._index(canvas)
        masks_B, steps_B, taken_B = (
            x.gather(1, k_B1).squeeze(1) for x in (self.masks_BK, self.steps_BK, self.taken_BK)
        )
        return masks_B, steps_B, taken_B

    def progress(self, canvas: Canvas) -> Tensor:
        """The share (B,) of the current block's steps that will be behind after this one, in float64."""
        _, steps_B, taken_B = self.now(canvas)
        return ((taken_B + 1).double() / steps_B.clamp(min=1)).clamp(max=1.0)

    def tick(self, canvas: Canvas) -> BlockClock:
        """The clock after one more step in the current blocks."""
        k_B1 = self._index(canvas)
        return replace(self, taken_BK=self.taken_BK.scatter_add(1, k_B1, torch.ones_like(k_B1)))

    def _index(self, canvas: Canvas) -> Tensor:
        return canvas.block_B.clamp(max=self.masks_BK.shape[1] - 1)[:, None]
