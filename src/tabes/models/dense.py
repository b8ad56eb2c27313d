"""The network for models that do not let us replace their attention: the same answers, no work saved."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from tabes.attention.memory import Memory, Slots
from tabes.attention.outputs import RecordOutputs, ReplayOutputs, using_outputs
from tabes.models.transformer import TransformerNetwork

__all__ = ["DenseNetwork", "DenseReplayWarning"]


class DenseReplayWarning(UserWarning):
    """Replays on this model compute the whole canvas."""


class DenseNetwork(TransformerNetwork):
    """Replays by computing the whole canvas with the other rows' attention outputs held constant.

    Attributes:
        reason: Why rows cannot be replayed alone; the user is told once.
    """

    reason = "its attention cannot be replaced"
    _told = False

    def _remember(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> tuple[Tensor, Memory]:
        tape = RecordOutputs()
        with using_outputs(tape):
            hidden_BLd = self._run(tokens_BL, positions_BL, padding_BL, embeddings_BLE)
        if embeddings_BLE is None:
            assert tokens_BL is not None
            embeddings_BLE = self.embed(tokens_BL)
        memory = Memory(tuple(tape.layers), positions_BL, padding_BL, tokens_BL, embeddings_BLE=embeddings_BLE.detach())
        return hidden_BLd, memory

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
        if not beside and not self._told:
            self._told = True
            text = f"replays save no work on {self.name}: {self.reason}, so each computes the whole canvas"
            warnings.warn(text, DenseReplayWarning, stacklevel=2)
        return super().replay(
            memory,
            rows_BR,
            valid_BR=valid_BR,
            tokens_BR=tokens_BR,
            embeddings_BRE=embeddings_BRE,
            remember=remember,
            beside=beside,
        )

    def _replay(
        self, memory: Memory, slots: Slots, tokens_BR: Tensor | None, embeddings_BRE: Tensor | None, remember: bool
    ) -> tuple[Tensor, Memory | None]:
        if embeddings_BRE is None:
            assert tokens_BR is not None
            embeddings_BRE = self.embed(tokens_BR)
        assert memory.embeddings_BLE is not None
        embeddings_BLE = slots.put(memory.embeddings_BLE, embeddings_BRE)
        tape = ReplayOutputs(memory, self._active(memory, slots))
        with using_outputs(tape):
            hidden_BLd = self._run(None, memory.positions_BL, memory.padding_BL, embeddings_BLE)
        updated = memory.updated(tuple(tape.layers), slots, tokens_BR=tokens_BR, embeddings_BRE=embeddings_BRE)
        return slots.take(hidden_BLd), updated if remember else None

    def _run(
        self, tokens_BL: Tensor | None, positions_BL: Tensor, padding_BL: Tensor | None, embeddings_BLE: Tensor | None
    ) -> Tensor:
        order_BL = self._order(padding_BL)
        if order_BL is None:
            return super()._run(tokens_BL, positions_BL, padding_BL, embeddings_BLE)
        assert padding_BL is not None
        if embeddings_BLE is not None:
            embeddings_BLE = embeddings_BLE.take_along_dim(order_BL[..., None], 1)
        if tokens_BL is not None:
            tokens_BL = tokens_BL.take_along_dim(order_BL, 1)
        hidden_BLd = super()._run(tokens_BL, positions_BL, padding_BL.take_along_dim(order_BL, 1), embeddings_BLE)
        return hidden_BLd.take_along_dim(order_BL.argsort(1)[..., None], 1)

    def _order(self, padding_BL: Tensor | None) -> Tensor | None:
        """A backbone that counts positions itself, from the left edge, gets its padding on the right."""
        if padding_BL is None or self.backbone.offset is not None:
            return None
        return padding_BL.to(torch.uint8).argsort(dim=1, stable=True)

    def _active(self, memory: Memory, slots: Slots) -> Tensor:
        """Which rows are replayed (B, L), in the order the backbone sees them."""
        active_BL = torch.zeros_like(memory.positions_BL, dtype=torch.bool)
        active_BL = slots.put(active_BL, torch.ones_like(slots.rows_BR, dtype=torch.bool))
        order_BL = self._order(memory.padding_BL)
        return active_BL if order_BL is None else active_BL.take_along_dim(order_BL, 1)
