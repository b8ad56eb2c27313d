"""What decoding asks of a network: pure compute, nothing counted, nothing hidden.

Shapes: B batch rows, L rows, R replayed rows, N any rows, E embedding width, d hidden width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tabes.attention.memory import Memory

__all__ = ["Network", "Work"]


@dataclass(frozen=True)
class Work:
    """FLOPs of one batch row, so that costs of different kinds can be added.

    Attributes:
        linear: Of the backbone's matrix products, per row; shared layers count each time they run.
        attention: Per pair of a query and a key, summed over layers; windows are computed dense and counted so.
        head: Of the vocabulary head, per row.
        saves: Whether a replay computes only its rows. False: it costs what the whole canvas costs.
    """

    linear: float
    attention: float
    head: float
    saves: bool = True

    def layers(self, queries: int, keys: int) -> float:
        """The backbone on `queries` rows that read `keys` rows."""
        return queries * (self.linear + self.attention * keys)

    def replay(self, queries: int, keys: int) -> float:
        """A replay of `queries` rows of a canvas of `keys` rows."""
        return self.layers(queries if self.saves else keys, keys)

    def backward(self, queries: int, keys: int) -> float:
        """The gradient of a replay with respect to its input: one product per frozen linear, two per attention one."""
        rows = queries if self.saves else keys
        return rows * (self.linear + 2 * self.attention * keys)


@runtime_checkable
class Network(Protocol):
    """A backbone and its vocabulary head.

    Attributes:
        name: For people: the checkpoint's name or folder.
        vocab_size: Columns of the logits, V.
        hidden_size: Width of the backbone's output, d.
        max_length: The longest canvas the positions allow; None without limit.
        replays: Whether a replay computes only its rows.
        timed: Whether what it predicts depends on the time. Others are never told it.
        shifted: Whether the output of row j predicts row j + 1 (Dream, DiffuLLaMA), not row j.
        work: What a call costs.
    """

    name: str
    vocab_size: int
    hidden_size: int
    max_length: int | None
    replays: bool
    timed: bool
    shifted: bool
    work: Work

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def device(self) -> torch.device: ...

    def embedding_weight(self) -> Tensor:
        """The input embedding table (V, E)."""
        ...

    def embed(self, tokens_BL: Tensor) -> Tensor:
        """Input embeddings (B, L, E), before positions are added."""
        ...

    def forward(
        self,
        tokens_BL: Tensor | None,
        *,
        positions_BL: Tensor,
        padding_BL: Tensor | None,
        embeddings_BLE: Tensor | None = None,
        time_B: Tensor | None = None,
        remember: bool = False,
    ) -> tuple[Tensor, Memory | None]:
        """Hidden rows (B, L, d) after the backbone's final norm, and what a replay needs if `remember`.

        A timed network is told `time_B`, 1 where everything is masked and 0 where nothing is, and remembers it.
        """
        ...

    def replay(
        self,
        memory: Memory,
        rows_BR: Tensor,
        *,
        valid_BR: Tensor | None = None,
        tokens_BR: Tensor | None = None,
        embeddings_BRE: Tensor | None = None,
        remember: bool = False,
        beside: bool = False,
    ) -> tuple[Tensor, Memory | None]:
        """Hidden rows (B, R, d) of these rows alone; every other key and value is the remembered constant.

        Rows are distinct within a batch row. Slots that are not valid only pad a ragged set: what comes back there
        means nothing. Without tokens and embeddings the remembered tokens are read again.

        With `beside` they replace nothing: they are shadows at the positions of these rows, which read each other and
        every remembered key but that of the row they stand for. Shadows are never remembered.
        """
        ...

    def head(self, hidden_Nd: Tensor) -> Tensor:
        """Logits (N, V) of any hidden rows."""
        ...
