"""Inverse CDF without a running sum over the whole vocabulary: blocks of it first, then the place inside one.

Sums over the vocabulary are in float64. Shapes: N rows, V vocabulary, K blocks of W tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

__all__ = ["blocks", "draw", "reach", "split"]

_BLOCK = 512


def draw(weights_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens (N,) by inverse CDF. The weights need not sum to 1."""
    blocked_NKW, ends_NK = blocks(weights_NV)
    target_N1 = _below(uniform_N[:, None] * ends_NK[:, -1:], ends_NK[:, -1:])
    token_N = reach(blocked_NKW, ends_NK, target_N1, past=True).squeeze(1)
    # Only sums that are not finite lead past the end; whoever looks at the logits says so, not an index error.
    return token_N.clamp(max=weights_NV.shape[1] - 1)


def split(weights_NV: Tensor) -> Tensor:
    """The vocabulary in blocks of W, zeros behind its end."""
    return pad(weights_NV, (0, -weights_NV.shape[1] % _BLOCK)).reshape(weights_NV.shape[0], -1, _BLOCK)


def blocks(weights_NV: Tensor) -> tuple[Tensor, Tensor]:
    """The vocabulary in blocks, and the sum up to the end of each."""
    blocked_NKW = split(weights_NV)
    return blocked_NKW, blocked_NKW.sum(-1, dtype=torch.float64).cumsum(1)


def reach(blocked_NKW: Tensor, ends_NK: Tensor, target_N1: Tensor, *, past: bool = False) -> Tensor:
    """Where the running sum first reaches (or passes) the target (N, 1): the block first, then the place inside it."""
    N, K = ends_NK.shape
    block_N1 = torch.searchsorted(ends_NK, target_N1, right=past).clamp(max=K - 1)
    before_N1 = torch.where(block_N1 > 0, ends_NK.gather(1, (block_N1 - 1).clamp(min=0)), 0.0)
    cumulative_NW = blocked_NKW[torch.arange(N, device=ends_NK.device), block_N1[:, 0]].double().cumsum(1)
    rest_N1 = (target_N1 - before_N1).clamp(min=0.0)
    if past:
        rest_N1 = _below(rest_N1, cumulative_NW[:, -1:])
    return block_N1 * _BLOCK + torch.searchsorted(cumulative_NW, rest_N1, right=past).clamp(max=_BLOCK - 1)


def _below(target_N1: Tensor, end_N1: Tensor) -> Tensor:
    """Rounding may put the target on or past the end, where there is no token: the last with any weight is meant."""
    return torch.minimum(target_N1, torch.nextafter(end_N1, torch.zeros_like(end_N1)))
