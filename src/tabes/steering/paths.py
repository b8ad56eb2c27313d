"""Paths: sets of rows that might be written together, of which one is chosen after all were tried.

Shapes: B batch rows, L canvas rows, K paths of a batch row, T sets drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from tabes.steering.candidates import top
from tabes.view import View

__all__ = ["Paths", "drawn", "gumbel", "nearest"]


@dataclass(frozen=True)
class Paths:
    """Path k of batch row b writes the rows in `write_BKL[b, k]`, if `valid_BK` says that there is such a path."""

    write_BKL: Tensor
    valid_BK: Tensor

    @classmethod
    def of(cls, write_BKL: Tensor) -> Self:
        """Every set that writes anything."""
        return cls(write_BKL, write_BKL.any(2))

    @property
    def count_B(self) -> Tensor:
        """How many paths there are."""
        return self.valid_BK.sum(1)

    def then(self, others: Paths) -> Paths:
        """These, and the others behind them."""
        return Paths(torch.cat([self.write_BKL, others.write_BKL], 1), torch.cat([self.valid_BK, others.valid_BK], 1))

    def distinct(self, most: int) -> Paths:
        """The first `most` that differ."""
        sets_BKL = (self.write_BKL & self.valid_BK[..., None]).float()
        size_BK = sets_BKL.sum(2)
        shared_BKK = sets_BKL @ sets_BKL.transpose(1, 2)
        same_BKK = (shared_BKK == size_BK[:, :, None]) & (shared_BKK == size_BK[:, None, :])
        earlier_BKK = (same_BKK & self.valid_BK[:, None, :]).tril(-1)
        new_BK = self.valid_BK & ~earlier_BKK.any(2)
        return replace(self, valid_BK=new_BK & (new_BK.cumsum(1) <= most))

    def at(self, index_B: Tensor) -> Tensor:
        """(B, L): the rows of one path of each batch row, none where it is not valid."""
        at_B = torch.arange(len(index_B), device=index_B.device)
        return self.write_BKL[at_B, index_B] & self.valid_BK[at_B, index_B][:, None]


def nearest(open_BL: Tensor, value_BL: Tensor, count_B: Tensor, paths: int) -> Paths:
    """The `count_B` best open rows, then the same with the last of them exchanged for the next ones.

    With one row to write these are the best, the second best, and so on.
    """
    rank_BL = torch.where(open_BL, value_BL, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    rank_B1L, count_B11 = rank_BL[:, None], torch.minimum(count_B, open_BL.sum(1))[:, None, None]
    last_BK1 = count_B11 - 1 + torch.arange(paths, device=count_B.device)[:, None]
    write_BKL = ((rank_B1L < count_B11 - 1) | (rank_B1L == last_BK1)) & open_BL[:, None] & (count_B11 > 0)
    return Paths(write_BKL, write_BKL.any(2) & (last_BK1 < open_BL.sum(1)[:, None, None]).squeeze(2))


def drawn(open_BL: Tensor, key_BTL: Tensor, count_B: Tensor) -> Paths:
    """For each set of keys the `count_B` open rows of the largest."""
    B, T, L = key_BTL.shape
    sets_NL = top(open_BL[:, None].expand(B, T, L).reshape(-1, L), key_BTL.reshape(-1, L), count_B.repeat_interleave(T))
    return Paths.of(sets_NL.view(B, T, L))


def gumbel(view: View, purpose: str, draws: int) -> Tensor:
    """(B, T, L) in float64; the rows of the largest log w + gumbel are a draw by the weights w without replacement."""
    uniform = [view.uniform(f"{purpose}.{draw}") for draw in range(draws)]
    return -(-torch.stack(uniform, 1).log()).log()
