"""Replays beside the canvas: shadow rows that read the remembered keys of all rows except the one they stand for.

A shadow has the position of its row and usually the mask token, so what is read off it is what the network would say
of that row without its token, all rows asked at once. Rows of the canvas never read shadows: the forward that is
replayed is the same with and without them. Shadows read each other. This is the verification of WINO (arXiv
2507.18578). What it is not: the other rows did read the token, so from the second layer on their keys know of it.
Limit: the shadow of a canvas of one row is that row masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tabes.attention.memory import Memory, Slots
from tabes.attention.tape import Call, Replay
from tabes.errors import ModelError

__all__ = ["Beside"]


class Beside(Replay):
    """The queries are those of shadows; their keys and values come after the remembered ones and replace none."""

    def __init__(self, memory: Memory, slots: Slots) -> None:
        super().__init__(memory, slots, remember=False)
        self._seen: dict[int, Tensor] = {}  # layers share masks

    def attend(self, query_BHRD: Tensor, key_BHRD: Tensor, value_BHRD: Tensor, mask: Tensor | None) -> Call:
        old = self._remembered()
        assert old.value is not None
        if id(old.mask) not in self._seen:
            self._seen[id(old.mask)] = self._mask(old.mask)
        key = torch.cat([self._picked(old.key), key_BHRD], 2)
        value = torch.cat([self._picked(old.value), value_BHRD], 2)
        return key, value, self._seen[id(old.mask)]

    def _picked(self, old_BHLD: Tensor) -> Tensor:
        batch_B = self._memory.batch_B
        return old_BHLD if batch_B is None else old_BHLD.index_select(0, batch_B.to(old_BHLD.device))

    def _mask(self, mask: Tensor | None) -> Tensor:
        """(B, h, R, L + R): the canvas as the rows themselves see it, less their own row; then the real shadows.

        One shadow reads another where the remembered mask lets the one row read the other (windows, padding). Every
        slot reads itself, so that none is left with nothing to read, which is NaN, and NaN spreads through any mask.
        """
        if mask is not None and mask.dtype != torch.bool:
            raise ModelError(f"rows cannot be replayed beside a canvas whose attention adds a {mask.dtype} mask")
        rows_BR = self._slots.rows_BR if mask is None else self._slots.rows_BR.to(mask.device)
        B, R = rows_BR.shape
        gathered = self._gathered(mask)
        seen_BhRL = rows_BR.new_ones(1, 1, 1, 1, dtype=torch.bool) if gathered is None else gathered
        seen_BhRL = seen_BhRL.expand(B, -1, R, self._slots.length)
        beside_BhRR = seen_BhRL.gather(3, rows_BR[:, None, None].expand(*seen_BhRL.shape[:3], R))
        if self._slots.valid_BR is not None:
            beside_BhRR = beside_BhRR & self._slots.valid_BR.to(rows_BR.device)[:, None, None]
        own_B1RL = torch.zeros_like(seen_BhRL[:, :1]).scatter(3, rows_BR[:, None, :, None], True)
        itself_RR = torch.eye(R, dtype=torch.bool, device=rows_BR.device)
        return torch.cat([seen_BhRL & ~own_B1RL, beside_BhRR | itself_RR], 3)
