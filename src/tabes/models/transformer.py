"""Networks made of a transformers model: one that replays rows alone, and what they share.

Shapes: B batch rows, L rows, R replayed rows, E embedding width, d hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from tabes.attention import Beside, Memory, Plain, Record, Replay, Slots, using
from tabes.errors import ModelError, UsageError
from tabes.models.backbone import Backbone
from tabes.models.network import Work

__all__ = ["RowNetwork", "TransformerNetwork"]


class TransformerNetwork:
    """A network that cannot remember, and what all of them share."""

    replays = False
    timed = False
    shifted = False

    def __init__(self, name: str, backbone: Backbone, work: Work, *, vocab_size: int, hidden_size: int) -> None:
        self.name, self.backbone, self.work = name, backbone, work
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.refusal = f"{name} cannot replay rows"
        self.max_length = backbone.limit and backbone.limit - (backbone.offset or 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, vocab_size={self.vocab_size}, max_length={self.max_length})"

    @property
    def dtype(self) -> torch.dtype:
        return self.backbone.model.dtype

    @property
    def device(self) -> torch.device:
        return self.backbone.model.device

    @property
    def config(self) -> PreTrainedConfig:
        """The model's own, for its token ids."""
        return self.backbone.model.config

    def embedding_weight(self) -> Tensor:
        return self.backbone.embedding_weight()

    def embed(self, tokens_BL: Tensor) -> Tensor:
        return self.backbone.embed(tokens_BL)

    def head(self, hidden_Nd: Tensor) -> Tensor:
        if hidden_Nd.shape[0] == 0:
            return hidden_Nd.new_zeros(0, self.vocab_size)
        return self.backbone.head(hidden_Nd)

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
        self._check_inputs(tokens_BL, embeddings_BLE)
        if remember:
            return self._remember(tokens_BL, positions_BL, padding_BL, embeddings_BLE)
        return self._run(tokens_BL, positions_BL, padding_BL, embeddings_BLE), None

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
        if beside and remember:
            raise UsageError("rows replayed beside the canvas are in no memory; ask without remember=True")
        if rows_BR.shape[1] == 0:
            hidden_BRd = self.embedding_weight().new_zeros(*rows_BR.shape, self.hidden_size)
            return hidden_BRd, memory if remember else None
        slots = Slots(rows_BR, valid_BR, memory.length)
        if tokens_BR is None and embeddings_BRE is None and memory.tokens_BL is not None:
            tokens_BR = slots.take(memory.tokens_BL)
        self._check_inputs(tokens_BR, embeddings_BRE)
        if beside:
            return self._beside(memory, slots, tokens_BR, embeddings_BRE), None
        return self._replay(memory, slots, tokens_BR, embeddings_BRE, remember)

    def _check_inputs(self, tokens: Tensor | None, embeddings: Tensor | None) -> None:
        if tokens is None and embeddings is None:
            raise UsageError("this forward or replay was given neither tokens nor embeddings, and none are remembered")
        if embeddings is not None and not self.backbone.embeddable:
            raise ModelError(
                f"{self.name} cannot run from embeddings: its own treatment of tokens (such as ESM's token_dropout) "
                "gives something else, so use a sampler without gradients and replays, such as 'confidence'"
            )

    def _run(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> Tensor:
        return self.backbone.run(tokens_BL, embeddings_BLE, positions_BL=positions_BL, padding_BL=padding_BL)

    def _remember(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> tuple[Tensor, Memory]:
        raise ModelError(self.refusal)

    def _replay(
        self, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None, remember: bool
    ) -> tuple[Tensor, Memory | None]:
        raise ModelError(self.refusal)

    def _beside(self, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None) -> Tensor:
        raise ModelError(f"{self.name} cannot replay rows beside the canvas: every replay computes the whole canvas")


class RowNetwork(TransformerNetwork):
    """Replays chosen rows alone: its model calls the attention function we registered."""

    replays = True

    def _run(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> Tensor:
        with using(Plain()):
            return super()._run(tokens_BL, positions_BL, padding_BL, embeddings_BLE)

    def _remember(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> tuple[Tensor, Memory]:
        tape = Record()
        with using(tape):
            hidden_BLd = super()._run(tokens_BL, positions_BL, padding_BL, embeddings_BLE)
        return hidden_BLd, Memory(tuple(tape.layers), positions_BL, padding_BL, tokens_BL)

    def _replay(
        self, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None, remember: bool
    ) -> tuple[Tensor, Memory | None]:
        tape = Replay(memory, slots, remember=remember)
        hidden_BRd = self._on(tape, memory, slots, tokens_BR, embeddings_BRE)
        return hidden_BRd, memory.updated(tuple(tape.layers), slots, tokens_BR=tokens_BR) if remember else None

    def _beside(self, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None) -> Tensor:
        return self._on(Beside(memory, slots), memory, slots, tokens_BR, embeddings_BRE)

    def _on(
        self, tape: Replay, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None
    ) -> Tensor:
        with using(tape):
            hidden_BRd = self.backbone.run(tokens_BR, embeddings_BRE, positions_BL=slots.take(memory.positions_BL))
        tape.finish()
        return hidden_BRd
