"""The transformer of MDLM and SEDD (a DiT, arXiv 2212.09748): bidirectional, rotary, and moved by the noise level.

    sigma -> c;   x + gate * attention((1 + scale) norm(x) + shift), the same with an MLP; shift, scale and gate from c

Precision: matrix products are in the dtype of the weights. Norms, rotations, the residual stream and the noise's
embedding are in float32 at least, as in the reference, which runs under autocast.

Shapes: B batch rows, L rows, E = d width, H heads, D head width, c width of the noise's embedding, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tabes.attention.registered import attention

__all__ = ["DiT", "Sizes", "at_least_float32", "inverse_frequencies"]

_FEATURES = 256
_BASE = 10_000


@dataclass(frozen=True)
class Sizes:
    """What the weights' shapes follow from; `length` is the longest sequence it was trained on."""

    vocab: int
    width: int
    cond: int
    blocks: int
    heads: int
    length: int

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """The dtype itself, or float32 where it is a smaller one."""
    return torch.promote_types(dtype, torch.float32)


def inverse_frequencies(head_width: int) -> Tensor:
    """Of the rotations (D/2,), in float32, as checkpoints have them."""
    exponent = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
    return 1.0 / (_BASE**exponent)


class DiT(nn.Module):
    """From embeddings to hidden rows that need only `head`: the last layer's modulation is behind them."""

    def __init__(self, sizes: Sizes, dtype: torch.dtype) -> None:
        super().__init__()
        self.sizes, self.dtype, self.exact = sizes, dtype, at_least_float32(dtype)
        self.embedding = nn.Parameter(torch.empty(sizes.vocab, sizes.width, dtype=dtype))
        self.noise = nn.Sequential(
            nn.Linear(_FEATURES, sizes.cond, dtype=self.exact),
            nn.SiLU(),
            nn.Linear(sizes.cond, sizes.cond, dtype=self.exact),
        )
        self.blocks = nn.ModuleList(_Block(sizes, dtype) for _ in range(sizes.blocks))
        self.norm = _Norm(sizes.width, self.exact)
        self.modulation = nn.Linear(sizes.cond, 2 * sizes.width, dtype=dtype)
        self.head = nn.Linear(sizes.width, sizes.vocab, dtype=dtype)

    def forward(self, embeddings_BLd: Tensor, positions_BL: Tensor, sigma_B: Tensor, mask: Tensor | None) -> Tensor:
        """Hidden rows (B, L, d) in the dtype of the weights. `mask` is True where a key may be read."""
        x_BLd = embeddings_BLd.to(self.exact)
        cond_Bc = functional.silu(self.noise(_features(sigma_B.to(self.exact)))).to(self.dtype)
        angles = self._angles(positions_BL)
        for block in self.blocks:
            x_BLd = block(x_BLd, cond_Bc, angles, mask)
        shift_B1d, scale_B1d = self.modulation(cond_Bc)[:, None].chunk(2, -1)
        return _modulated(self.norm(x_BLd), shift_B1d, scale_B1d).to(self.dtype)

    def _angles(self, positions_BL: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, L, 1, D/2)."""
        frequencies = inverse_frequencies(self.sizes.head_width).to(positions_BL.device, self.exact)
        angles_BL1F = (positions_BL[..., None] * frequencies)[:, :, None]
        return angles_BL1F.cos(), angles_BL1F.sin()


class _Block(nn.Module):
    def __init__(self, sizes: Sizes, dtype: torch.dtype) -> None:
        super().__init__()
        width, exact = sizes.width, at_least_float32(dtype)
        self.heads, self.dtype = sizes.heads, dtype
        self.modulation = nn.Linear(sizes.cond, 6 * width, dtype=dtype)
        self.norm1, self.norm2 = _Norm(width, exact), _Norm(width, exact)
        self.attn_qkv = nn.Linear(width, 3 * width, bias=False, dtype=dtype)
        self.attn_out = nn.Linear(width, width, bias=False, dtype=dtype)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width, dtype=dtype),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * width, width, dtype=dtype),
        )

    def forward(self, x_BLd: Tensor, cond_Bc: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        parts = self.modulation(cond_Bc)[:, None].chunk(6, -1)
        shift_B1d, scale_B1d, gate_B1d = parts[:3]
        read_BLd = _modulated(self.norm1(x_BLd), shift_B1d, scale_B1d).to(self.dtype)
        x_BLd = x_BLd + gate_B1d * self._attended(read_BLd, angles, mask)
        shift_B1d, scale_B1d, gate_B1d = parts[3:]
        read_BLd = _modulated(self.norm2(x_BLd), shift_B1d, scale_B1d).to(self.dtype)
        written_BLd: Tensor = gate_B1d * self.mlp(read_BLd)
        return x_BLd + written_BLd

    def _attended(self, x_BLd: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        query, key, value = self.attn_qkv(x_BLd).unflatten(-1, (3, self.heads, -1)).unbind(2)
        query, key = (_turned(part, angles).transpose(1, 2) for part in (query, key))
        # A view of all three would keep them all alive in a memory that needs the values only.
        out_BLHD, _ = attention(self, query, key, value.contiguous().transpose(1, 2), mask)
        out_BLd: Tensor = self.attn_out(out_BLHD.flatten(2))
        return out_BLd


class _Norm(nn.Module):
    """A layer norm without bias."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, dtype=dtype))

    def forward(self, x_BLd: Tensor) -> Tensor:
        return functional.layer_norm(x_BLd, self.weight.shape, self.weight, eps=1e-5)


def _modulated(x_BLd: Tensor, shift_B1d: Tensor, scale_B1d: Tensor) -> Tensor:
    return x_BLd * (1 + scale_B1d) + shift_B1d


def _turned(x_BLHD: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Component j is turned together with component j + D/2."""
    cos, sin = angles
    first, second = x_BLHD.to(cos.dtype).chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).to(x_BLHD.dtype)


def _features(sigma_B: Tensor) -> Tensor:
    """Cosines, then sines, of sigma at frequencies from 1 down to almost 1 / 10,000: (B, 256)."""
    half = _FEATURES // 2
    steps_F = torch.arange(half, device=sigma_B.device, dtype=sigma_B.dtype) / half
    angles_BF = sigma_B[:, None] * (-math.log(_BASE) * steps_F).exp()
    return torch.cat([angles_BF.cos(), angles_BF.sin()], -1)
