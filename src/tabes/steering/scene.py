"""What steering looks at: a canvas, what was predicted and remembered for it, and copies of it in which one row
differs.

Shapes: B batch rows, L canvas rows, N copies (of all batch rows together), E embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, AnyMemory
from tabes.parts import Proposal
from tabes.prediction import Prediction
from tabes.view import View

__all__ = ["Copies", "Scene", "at_once"]

# Token rows of one batched replay: enough to fill a device, few enough for their attention to fit.
_ROWS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}


def at_once(device: torch.device, length: int) -> int:
    """How many canvases of this length go through the network together."""
    return max(1, _ROWS_AT_ONCE.get(device.type, 1 << 15) // length)


@dataclass(frozen=True)
class Scene:
    """A canvas, its remembered prediction, and the token that would be written on every row read.

    `denoiser` is a fresh one that keeps nothing from step to step. `next_time_B` is when what is tried would be read;
    None where the network knows no time.
    """

    canvas: Canvas
    denoiser: AnyDenoiser
    prediction: Prediction
    tokens_BL: Tensor
    next_time_B: Tensor | None = None

    @classmethod
    def of(cls, view: View, prediction: Prediction, proposal: Proposal) -> Scene:
        canvas, next_time_B = view.canvas, None
        if view.denoiser.base.network.timed:
            count_B = 1 if proposal.count_B is None else proposal.count_B
            next_time_B = canvas.time_with((canvas.masked_BL.sum(1) - count_B).clamp(min=0))
        return cls(canvas, view.denoiser.begin(), prediction, proposal.tokens_BL, next_time_B)

    @cached_property
    def before(self) -> Prediction:
        """What would be predicted next if nothing were written: with time a forward of its own, without the step's."""
        if self.next_time_B is None:
            return self.prediction
        # A row cache would take the scenes that were selected from one another for steps.
        return self.denoiser.begin().predict(
            self.canvas, self.prediction.rows_BL, statistics={"entropy"}, remember=True, time_B=self.next_time_B
        )

    @property
    def memory(self) -> AnyMemory:
        """What replays start from."""
        memory: AnyMemory = self.before.memory
        return memory

    @property
    def content_BL(self) -> Tensor:
        """Everything but padding."""
        return ~self.canvas.padding_BL

    def select(self, keep_B: Tensor) -> Scene:
        """The batch rows where `keep_B` is set."""
        if bool(keep_B.all()):
            return self
        return Scene(
            self.canvas.select(keep_B),
            self.denoiser,
            self.prediction.select(keep_B),
            self.tokens_BL[keep_B],
            None if self.next_time_B is None else self.next_time_B[keep_B],
        )


@dataclass(frozen=True)
class Copies:
    """Copies of batch rows: copy n is of batch row `batch_N[n]`, and canvas row `row_N[n]` is its own."""

    batch_N: Tensor
    row_N: Tensor

    @classmethod
    def of(cls, chosen_BL: Tensor) -> Copies:
        """A copy for every chosen row."""
        batch_N, row_N = chosen_BL.nonzero(as_tuple=True)
        return cls(batch_N, row_N)

    def __len__(self) -> int:
        return self.batch_N.shape[0]

    def chunks(self, length: int) -> Iterator[Copies]:
        """As many copies at a time as go through the network together."""
        if len(self) == 0:
            return  # torch splits nothing into one part of nothing
        size = at_once(self.row_N.device, length)
        for batch_n, row_n in zip(self.batch_N.split(size), self.row_N.split(size), strict=True):
            yield Copies(batch_n, row_n)

    def own(self, length: int) -> Tensor:
        """(N, L), True at every copy's own row."""
        return torch.arange(length, device=self.row_N.device) == self.row_N[:, None]

    def gather(self, value_BL: Tensor) -> Tensor:
        """(N, ...): values at every copy's own row."""
        return value_BL[self.batch_N, self.row_N]

    def spread(self, value_N: Tensor, like_BL: Tensor) -> Tensor:
        """(B, L): values back at the rows they belong to, 0 elsewhere."""
        return value_N.new_zeros(like_BL.shape).index_put((self.batch_N, self.row_N), value_N)
