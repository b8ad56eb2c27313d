"""What decoding allocates, step by step: the calls that `tabes.denoiser`, `tabes.prediction` and `tabes.steering` make,
in their order and with what they keep, on rows that are all in the same places.

They are written down once more because choosing rows needs numbers, and here are none. That nothing was forgotten is
what tests/planning measures, on a network with numbers.
Shapes: B batch rows, L canvas rows, M masked rows, R replayed rows, N rows read, E embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.attention import Memory
from tabes.models.network import Network
from tabes.prediction import _CACHED_ELEMENTS, _CHUNK_ELEMENTS
from tabes.statistics import summarise
from tabes.steering.scene import at_once

__all__ = ["Scene"]

_PLAIN = frozenset({"top_token", "top_logit", "log_normaliser", "confidence"})
_STEERED = _PLAIN | {"entropy"}
_ENTROPY = frozenset({"entropy"})


@dataclass(frozen=True)
class Scene:
    """A network without numbers and a canvas of which the last `masked` rows are masked and read.

    `candidates` compete in a steered step; `device` says how much is done at a time, as it does when decoding.
    """

    network: Network
    batch: int
    length: int
    masked: int
    candidates: int
    device: torch.device

    def plain(self) -> None:
        """A step of `confidence`."""
        hidden_Nd, _ = self._predict(remember=False)
        self._read(hidden_Nd, _PLAIN)

    def cached(self) -> None:
        """A step behind a row cache: the last one's memory is given up when the new one is complete."""
        _, memory = self._predict(remember=True)
        hidden_BRd, _new = self._replay(memory, self._rows(self.batch), remember=True)
        del memory
        self._read(hidden_BRd.flatten(0, 1), _PLAIN)

    def remembered(self) -> Memory:
        """The keys and values of one forward."""
        return self._predict(remember=True)[1]

    def lookahead(self) -> None:
        """A step in which every candidate is written in a copy and the masked rows are replayed."""
        hidden_Nd, memory = self._predict(remember=True)
        kept = self._read(hidden_Nd, _STEERED)
        before = None if kept is None else kept.clone()  # of the probes alone: the same rows here
        copies = torch.zeros(self.batch * self.candidates, dtype=torch.int64)
        worlds = []
        for part in copies.split(at_once(self.device, self.length)):
            hidden_BRd, _ = self._replay(memory.select(part), self._rows(len(part)))
            worlds.append(hidden_BRd.flatten(0, 1).clone())
        for world_Nd in worlds:
            self._read(world_Nd, _ENTROPY)
        del kept, before

    def steered(self) -> None:
        """A step of `boe`: the gradient of the masked rows' entropies, by a replay of these rows."""
        hidden_Nd, memory = self._predict(remember=True)
        kept = self._read(hidden_Nd, _STEERED)
        delta_BLE = self._soft_writes(hidden_Nd[: self.batch * self.candidates])
        moved_BLE = 0.0 * delta_BLE
        plain_BLE = self.network.embed(self._tokens)
        with torch.enable_grad():
            leaf_BLE = (plain_BLE + moved_BLE.to(plain_BLE.dtype)).detach().requires_grad_()
            rows_BR = self._rows(self.batch)
            index = rows_BR[..., None].expand(-1, -1, leaf_BLE.shape[2])
            hidden_BRd, _ = self._replay(memory, rows_BR, embeddings_BRE=leaf_BLE.gather(1, index))
            entropy_N, logits = self._entropy(hidden_BRd.flatten(0, 1).clone())
            del hidden_BRd
            (gradient_BLE,) = torch.autograd.grad(entropy_N.sum(), leaf_BLE)
        _ = -(gradient_BLE.to(delta_BLE.dtype) * delta_BLE).sum(-1)
        del kept, logits

    def forward(self) -> None:
        """One forward, nothing read."""
        self._predict(remember=False)

    def logits(self) -> None:
        """The passes over the vocabulary of a step of `confidence`, by themselves."""
        self._read(self._hidden(self.batch * self.masked), _PLAIN)

    @property
    def _tokens(self) -> Tensor:
        return torch.zeros(self.batch, self.length, dtype=torch.int64)

    def _rows(self, batch: int) -> Tensor:
        return torch.zeros(batch, self.masked, dtype=torch.int64)

    def _hidden(self, rows: int) -> Tensor:
        return torch.zeros(rows, self.network.hidden_size, dtype=self.network.dtype)

    def _predict(self, *, remember: bool) -> tuple[Tensor, Memory]:
        hidden_BLd, memory = self.network.forward(
            self._tokens,
            positions_BL=self._tokens,
            padding_BL=None,
            time_B=torch.zeros(self.batch) if self.network.timed else None,
            remember=remember,
        )
        hidden_Nd = hidden_BLd[:, : self.masked].flatten(0, 1).clone()
        return hidden_Nd, memory or Memory((), self._tokens)

    def _replay(
        self, memory: Memory, rows_BR: Tensor, embeddings_BRE: Tensor | None = None, *, remember: bool = False
    ) -> tuple[Tensor, Memory | None]:
        tokens_BR = rows_BR if embeddings_BRE is None else None
        return self.network.replay(
            memory, rows_BR, tokens_BR=tokens_BR, embeddings_BRE=embeddings_BRE, remember=remember
        )

    def _read(self, hidden_Nd: Tensor, statistics: frozenset[str]) -> Tensor | None:
        """One pass; the logits are kept where they are few."""
        kept = None
        for chunk_nd in self._chunks(hidden_Nd):
            if len(chunk_nd) == len(hidden_Nd):
                kept = self._logits(chunk_nd)
                for piece_nV in self._pieces(kept):
                    summarise(piece_nV, statistics)
            else:
                self._statistics(chunk_nd, statistics)
        return kept

    def _entropy(self, hidden_Nd: Tensor) -> tuple[Tensor, Tensor | None]:
        """With its graph; the logits too where they are few enough to be kept."""
        found = []
        for chunk_nd in self._chunks(hidden_Nd):
            logits_nV = self._logits(chunk_nd)
            found.append(summarise(logits_nV, _ENTROPY)["entropy"])
        return torch.cat(found), logits_nV if len(found) == 1 else None

    def _statistics(self, hidden_nd: Tensor, statistics: frozenset[str]) -> list[dict[str, Tensor]]:
        return [summarise(piece_nV, statistics) for piece_nV in self._pieces(self._logits(hidden_nd))]

    def _chunks(self, hidden_Nd: Tensor) -> Iterator[Tensor]:
        yield from hidden_Nd.split(max(1, _CHUNK_ELEMENTS // self.network.vocab_size))

    def _logits(self, hidden_nd: Tensor) -> Tensor:
        logits_nV = self.network.head(hidden_nd).float()
        ids = torch.zeros(1, dtype=torch.int64)
        impossible = logits_nV.index_fill if logits_nV.requires_grad else logits_nV.index_fill_
        return impossible(1, ids, -1.0)

    def _pieces(self, logits_nV: Tensor) -> Iterator[Tensor]:
        cached = self.device.type == "cpu" and not logits_nV.requires_grad
        size = max(1, _CACHED_ELEMENTS // self.network.vocab_size) if cached else len(logits_nV)
        yield from logits_nV.split(size)

    def _soft_writes(self, hidden_Nd: Tensor) -> Tensor:
        """(B, L, E) in float32."""
        table_VE = self.network.embedding_weight()
        for chunk_nd in self._chunks(hidden_Nd):
            for piece_nV in self._pieces(self._logits(chunk_nd)):
                _ = (piece_nV.softmax(-1).to(table_VE.dtype) @ table_VE - table_VE[0]).float()
        return torch.zeros(self.batch, self.length, table_VE.shape[1])
