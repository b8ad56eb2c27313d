"""A ragged choice of canvas rows, packed for the network.

Shapes: B batch rows, L canvas rows, R the longest choice of any batch row.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Rows", "read_from", "rows_before"]


@dataclass(frozen=True)
class Rows:
    """The chosen rows of every batch row in ascending order, shorter choices filled up with rows *not* chosen.

    The fill is marked in `valid_BR` (None when there is none). Because every index of a batch row is distinct, a replay
    can scatter its keys and values without one slot overwriting another.
    """

    index_BR: Tensor
    valid_BR: Tensor | None

    @classmethod
    def of(cls, chosen_BL: Tensor) -> Rows:
        counts_B = chosen_BL.sum(1)
        longest, shortest = (int(n) for n in torch.stack([counts_B.max(), counts_B.min()]).tolist())
        index_BR = torch.argsort(~chosen_BL, dim=1, stable=True)[:, :longest]
        if longest == shortest:
            return cls(index_BR, None)
        slots_R = torch.arange(longest, device=chosen_BL.device)
        return cls(index_BR, slots_R < counts_B[:, None])

    @property
    def count(self) -> int:
        """R, the slots computed for every batch row."""
        return self.index_BR.shape[1]

    def gather(self, value_BL: Tensor) -> Tensor:
        """Values at the chosen rows: (B, L, ...) -> (B, R, ...)."""
        index = self.index_BR.reshape(self.index_BR.shape + (1,) * (value_BL.dim() - 2))
        return value_BL.gather(1, index.expand(-1, -1, *value_BL.shape[2:]))

    def at(self, value_BR: Tensor, batch_N: Tensor, row_N: Tensor, length: int) -> Tensor:
        """Values of chosen rows by batch row and row: (B, R, ...) -> (N, ...)."""
        slots_BR = torch.arange(self.count, device=row_N.device).expand_as(self.index_BR)
        slot_BL = slots_BR.new_zeros(len(self.index_BR), length).scatter(1, self.index_BR, slots_BR)
        return value_BR[batch_N, slot_BL[batch_N, row_N]]

    def pick(self, value_BR: Tensor, read_BL: Tensor) -> Tensor:
        """Values of those chosen rows that are in `read_BL` too, flat and in order: (B, R, ...) -> (N, ...)."""
        read_BR = self.gather(read_BL)
        return value_BR[read_BR if self.valid_BR is None else read_BR & self.valid_BR]


def read_from(read_BL: Tensor, padding_BL: Tensor | None) -> tuple[Tensor, Tensor]:
    """Batch row and row (N,) of the output that predicts each row in `read_BL`, where models predict the next row.

    The first row has none before it and is read from itself, as in DiffuLLaMA and Dream.
    """
    has_before_BL = torch.ones_like(read_BL)
    has_before_BL[:, 0] = False
    if padding_BL is not None:
        has_before_BL[:, 1:] &= ~padding_BL[:, :-1]
    batch_N, row_N = read_BL.nonzero(as_tuple=True)
    return batch_N, row_N - has_before_BL[batch_N, row_N].long()


def rows_before(read_BL: Tensor, padding_BL: Tensor | None) -> Tensor:
    """(B, L): the rows that `read_from` reads."""
    return torch.zeros_like(read_BL).index_put(
        read_from(read_BL, padding_BL), torch.tensor(True, device=read_BL.device)
    )
