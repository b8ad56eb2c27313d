"""A DiT as a network: remembers, replays, and is told the time.

Shapes: B batch rows, L rows, R replayed rows, N any rows, E = d width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tabes.attention import Beside, Memory, Plain, Record, Replay, Slots, Tape, using
from tabes.errors import UsageError
from tabes.models.families.dit import DiT
from tabes.models.network import Work
from tabes.schedules import LogLinearSchedule

__all__ = ["DiTNetwork", "Ids"]

_END_OF_GPT2 = 50256


@dataclass(frozen=True)
class Ids:
    """Special tokens, named as in a config of transformers. The mask has the last row, behind GPT-2's own."""

    mask_token_id: int
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    @classmethod
    def of(cls, vocab_size: int) -> Ids:
        mask = vocab_size - 1
        return cls(mask, _END_OF_GPT2 if mask == _END_OF_GPT2 + 1 else None)


class DiTNetwork:
    """Hidden rows are those behind the last modulation, so that the head needs no time."""

    replays = True
    shifted = False

    def __init__(self, name: str, model: DiT, *, timed: bool) -> None:
        self.name, self.model, self.timed = name, model.train(False), timed
        sizes = model.sizes
        self.vocab_size, self.hidden_size = sizes.vocab, sizes.width
        self.max_length: int | None = sizes.length
        self.config = Ids.of(sizes.vocab)
        self.usual_tokenizer = None if self.config.eos_token_id is None else "openai-community/gpt2"
        # The modulation is one product per batch row, less than a tenth of one row's work: it is not counted.
        per_block = 2.0 * 12 * sizes.width**2
        self.work = Work(sizes.blocks * per_block, 4.0 * sizes.width * sizes.blocks, 2.0 * sizes.width * sizes.vocab)
        self._schedule = LogLinearSchedule()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, vocab_size={self.vocab_size}, max_length={self.max_length})"

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.embedding.device

    def embedding_weight(self) -> Tensor:
        return self.model.embedding

    def embed(self, tokens_BL: Tensor) -> Tensor:
        return functional.embedding(tokens_BL, self.model.embedding)

    def head(self, hidden_Nd: Tensor) -> Tensor:
        logits_NV: Tensor = self.model.head(hidden_Nd)
        return logits_NV

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
        time_B = time_B if self.timed else None
        mask = None if padding_BL is None else ~padding_BL[:, None, None, :]
        record = Record()
        tape: Tape = record if remember else Plain()
        hidden_BLd = self._run(tape, tokens_BL, embeddings_BLE, positions_BL, time_B, mask)
        if not remember:
            return hidden_BLd, None
        return hidden_BLd, Memory(tuple(record.layers), positions_BL, padding_BL, tokens_BL, time_B=time_B)

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
        tape = Beside(memory, slots) if beside else Replay(memory, slots, remember=remember)
        positions_BR = slots.take(memory.positions_BL)
        hidden_BRd = self._run(tape, tokens_BR, embeddings_BRE, positions_BR, memory.time_B, None)
        tape.finish()
        return hidden_BRd, memory.updated(tuple(tape.layers), slots, tokens_BR=tokens_BR) if remember else None

    def _run(
        self,
        tape: Tape,
        tokens_BL: Tensor | None,
        embeddings_BLE: Tensor | None,
        positions_BL: Tensor,
        time_B: Tensor | None,
        mask: Tensor | None,
    ) -> Tensor:
        if embeddings_BLE is None:
            if tokens_BL is None:
                raise UsageError(
                    "this forward or replay was given neither tokens nor embeddings, and none are remembered"
                )
            embeddings_BLE = self.embed(tokens_BL)
        sigma_B = self._sigma(time_B)
        with using(tape):
            hidden_BLd: Tensor = self.model(embeddings_BLE, positions_BL, sigma_B, mask)
        return self._finished(hidden_BLd, sigma_B, tokens_BL)

    def _sigma(self, time_B: Tensor | None) -> Tensor:
        """The noise in float64. Who does not know the time was trained at 0, which still moves every layer."""
        if not self.timed:
            return torch.zeros(1, dtype=torch.float64, device=self.device)
        if time_B is None:
            raise UsageError(f"{self.name} is conditioned on time: give time_B, from 1 (all masked) to 0")
        return self._schedule.sigma(time_B.to(self.device, torch.float64))

    def _finished(self, hidden_BLd: Tensor, sigma_B: Tensor, tokens_BL: Tensor | None) -> Tensor:
        """What the head is given."""
        return hidden_BLd
