"""A denoiser in closed form: hidden rows are a fixed mixture of embeddings, logits a matrix product of those.

    logits_j = U (b_j + sum_k A_jk e_k)

So logits are linear in every embedding, writing one row moves another by A_jk alone, and replays are exact. A timed
one mixes by (1 + 2t) A and has the bias (1 - t) b.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tabes.attention.memory import Layer, Memory, Slots
from tabes.denoiser import Denoiser
from tabes.models import Work


@dataclass(frozen=True)
class Mixer:
    """The `Network` protocol. Canvases that begin with the token `poison` have NaN in their replays: in the gradient
    alone, or in the logits. `told` is the time of every forward."""

    table_VE: Tensor
    mix_LL: Tensor
    bias_LE: Tensor
    head_EV: Tensor
    scale: float = 1.0
    poison: int | None = None
    poisoned: str = "gradient"
    name: str = "mixer"
    replays: bool = True
    timed: bool = False
    shifted: bool = False
    told: list[list[float] | None] = field(default_factory=list, compare=False)
    work: Work = field(default_factory=lambda: Work(linear=100.0, attention=2.0, head=30.0))

    @property
    def vocab_size(self) -> int:
        return self.head_EV.shape[1]

    @property
    def hidden_size(self) -> int:
        return self.table_VE.shape[1]

    @property
    def max_length(self) -> int:
        return self.mix_LL.shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.table_VE.dtype

    @property
    def device(self) -> torch.device:
        return self.table_VE.device

    def embedding_weight(self) -> Tensor:
        return self.table_VE

    def embed(self, tokens_BL: Tensor) -> Tensor:
        return self.scale * self.table_VE[tokens_BL]

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
        if embeddings_BLE is None:
            assert tokens_BL is not None
            embeddings_BLE = self.embed(tokens_BL)
        self.told.append(None if time_B is None else time_B.tolist())
        memory = Memory((Layer(embeddings_BLE.detach()),), positions_BL, padding_BL, tokens_BL, time_B=time_B)
        return self._mixed(embeddings_BLE, positions_BL, padding_BL, time_B), memory if remember else None

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
        assert not beside, "the mixer has no shadows"
        slots = Slots(rows_BR, valid_BR, memory.length)
        if embeddings_BRE is None:
            assert tokens_BR is not None
            embeddings_BRE = self.embed(tokens_BR)
        merged_BLE = slots.put(memory.layers[0].key, embeddings_BRE, memory.batch_B)
        hidden_BRE = slots.take(self._mixed(merged_BLE, memory.positions_BL, memory.padding_BL, memory.time_B))
        updated = memory.updated((Layer(merged_BLE.detach()),), slots, tokens_BR=tokens_BR) if remember else None
        return self._poisoned(memory, hidden_BRE), updated

    def head(self, hidden_Nd: Tensor) -> Tensor:
        return hidden_Nd @ self.head_EV

    def to(self, dtype: torch.dtype) -> Mixer:
        parts = {name: value.to(dtype) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **parts)  # type: ignore[arg-type]

    def _mixed(
        self, embeddings_BLE: Tensor, positions_BL: Tensor, padding_BL: Tensor | None, time_B: Tensor | None
    ) -> Tensor:
        assert self.timed == (time_B is not None)
        mix_BLL = self.mix_LL[positions_BL[:, :, None], positions_BL[:, None, :]]
        if padding_BL is not None:
            mix_BLL = mix_BLL * ~padding_BL[:, None, :]
        bias_BLE = self.bias_LE[positions_BL]
        if time_B is not None:
            time_B11 = time_B[:, None, None].to(self.dtype)
            bias_BLE, mix_BLL = (1 - time_B11) * bias_BLE, (1 + 2 * time_B11) * mix_BLL
        return bias_BLE + mix_BLL @ embeddings_BLE

    def _poisoned(self, memory: Memory, hidden_BRE: Tensor) -> Tensor:
        if self.poison is None or memory.tokens_BL is None:
            return hidden_BRE
        ill_N = (memory.tokens_BL[:, 0] == self.poison).nonzero().squeeze(1)
        ill_NRE = hidden_BRE[ill_N]
        # The square root of zero is zero and has no derivative there.
        harm_NRE = (0 * ill_NRE).sqrt() if self.poisoned == "gradient" else ill_NRE * torch.nan
        return hidden_BRE.index_put((ill_N,), ill_NRE + harm_NRE)


def mixer(length: int, vocab: int, width: int, *, seed: int = 0, coupling: float = 1.0) -> Mixer:
    """A random one; the mask id is the last of the vocabulary."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Mixer(normal(vocab, width), coupling * normal(length, length), normal(length, width), normal(width, vocab))


def coupled(pairs: dict[tuple[int, int], float], length: int, vocab: int = 6, *, seed: int = 0) -> Mixer:
    """Row j is moved by row k exactly where (j, k) is in `pairs`."""
    mix_LL = torch.zeros(length, length, dtype=torch.float64)
    for (j, k), strength in pairs.items():
        mix_LL[j, k] = strength
    return replace(mixer(length, vocab, 4, seed=seed), mix_LL=mix_LL)


def denoiser(network: Mixer) -> Denoiser:
    return Denoiser(network, None, mask_id=network.vocab_size - 1)
