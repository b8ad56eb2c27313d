"""What a forward leaves behind.

Shapes: B batch rows, L rows of the canvas, R replayed rows, H key/value heads, D head width, E embedding width,
d hidden width. A `Memory` never changes; whoever replays with `remember=True` gets a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Layer", "Memory", "Slots"]


class Layer(NamedTuple):
    """One attention call. `value` and `mask` are None where whole attention outputs are remembered, not keys."""

    key: Tensor  # (B, H, L, D); outputs: (B, L, d)
    value: Tensor | None = None  # (B, H, L, D)
    mask: Tensor | None = None  # broadcasts to (B, H, L, L); True or 0 where a key may be read


@dataclass(frozen=True)
class Memory:
    """Remembered attention calls of one forward, and the canvas they were remembered for.

    Attributes:
        layers: One `Layer` per attention call, in call order, for the *stored* batch rows.
        positions_BL: Position of every row, content counted from 0.
        padding_BL: True where a row is padding; None without padding.
        tokens_BL: None when the network was run from embeddings.
        batch_B: Which stored batch row each batch row is; None when they are the same.
        embeddings_BLE: Input embeddings, remembered only by networks that cannot replay rows alone.
        time_B: The time a network that is conditioned on it was told; a replay is told the same.
    """

    layers: tuple[Layer, ...]
    positions_BL: Tensor
    padding_BL: Tensor | None = None
    tokens_BL: Tensor | None = None
    batch_B: Tensor | None = None
    embeddings_BLE: Tensor | None = None
    time_B: Tensor | None = None

    @property
    def batch_size(self) -> int:
        return self.positions_BL.shape[0]

    @property
    def length(self) -> int:
        return self.positions_BL.shape[1]

    def select(self, batch: Tensor) -> Memory:
        """Batch rows by index (int64, repeats allowed; or a bool mask).

        The layers are not copied: they are gathered when replayed.
        """
        if batch.dtype == torch.bool:
            batch = batch.nonzero().flatten()
        return replace(
            self,
            positions_BL=self.positions_BL[batch],
            padding_BL=_pick(self.padding_BL, batch),
            tokens_BL=_pick(self.tokens_BL, batch),
            embeddings_BLE=_pick(self.embeddings_BLE, batch),
            time_B=_pick(self.time_B, batch),
            batch_B=batch if self.batch_B is None else self.batch_B[batch],
        )

    def with_time(self, time_B: Tensor) -> Memory:
        """The same memory for replays at another time."""
        return replace(self, time_B=time_B)

    def expand(self, k: int) -> Memory:
        """Every batch row `k` times: row 0 `k` times, then row 1, and so on."""
        batch = torch.arange(self.batch_size, device=self.positions_BL.device)
        return self.select(batch.repeat_interleave(k))

    def updated(
        self,
        layers: tuple[Layer, ...],
        slots: Slots,
        *,
        tokens_BR: Tensor | None,
        embeddings_BRE: Tensor | None = None,
    ) -> Memory:
        """A memory in which the rows of `slots` were replaced; `layers` hold them already, for this memory's batch.

        The tokens become None when rows were replayed from embeddings that belong to no token.
        """
        tokens_BL, embeddings_BLE = self.tokens_BL, self.embeddings_BLE
        if tokens_BL is not None:
            tokens_BL = None if tokens_BR is None else slots.put(tokens_BL, tokens_BR)
        if embeddings_BLE is not None and embeddings_BRE is not None:
            embeddings_BLE = slots.put(embeddings_BLE, embeddings_BRE.detach())
        return replace(self, layers=layers, batch_B=None, tokens_BL=tokens_BL, embeddings_BLE=embeddings_BLE)


class Slots:
    """R slots per batch row that hold the rows of a replay: distinct indices, and which slots are real.

    A slot that only pads a ragged set is not `valid`: whatever is computed there replaces nothing.
    """

    def __init__(self, rows_BR: Tensor, valid_BR: Tensor | None, length: int) -> None:
        self.rows_BR, self.valid_BR, self.length = rows_BR, valid_BR, length
        starts_B = torch.arange(rows_BR.shape[0], device=rows_BR.device) * length
        self.flat_N = (rows_BR + starts_B[:, None]).flatten()

    def take(self, x_BL: Tensor) -> Tensor:
        """`x[b, rows[b]]`, with shape (B, R, ...)."""
        taken_N = x_BL.flatten(0, 1).index_select(0, self.flat_N.to(x_BL.device))
        return taken_N.view(*self.rows_BR.shape, *x_BL.shape[2:])

    def put(self, x_BL: Tensor, new_BR: Tensor, batch_B: Tensor | None = None) -> Tensor:
        """A copy of `x` (of its batch rows `batch_B`) in which the valid rows are `new`; differentiable in `new`."""
        fresh = batch_B is not None
        if batch_B is not None:
            x_BL = x_BL.index_select(0, batch_B.to(x_BL.device))
        flat_N = self.flat_N.to(x_BL.device)
        base = x_BL.flatten(0, 1)
        new = new_BR.flatten(0, 1)
        if self.valid_BR is not None:
            valid_N = self.valid_BR.flatten().to(x_BL.device).view(-1, *[1] * (new.ndim - 1))
            new = torch.where(valid_N, new, base.index_select(0, flat_N))
        # A selected memory was copied just now, so it can be written in place: one copy, not two.
        written = base.index_copy_(0, flat_N, new) if fresh else base.index_copy(0, flat_N, new)
        return written.view(x_BL.shape)


def _pick(x: Tensor | None, batch: Tensor) -> Tensor | None:
    return None if x is None else x[batch]
