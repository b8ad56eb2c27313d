"""Statistics of one row of logits, in as few passes over the vocabulary as they need.

Shapes: N rows, V vocabulary. Logits come in float32 with the mask id already impossible. Everything is in nats.
On a CPU the vocabulary passes cost as much as the head: softmax is torch's fastest exponential, a blocked maximum beats
`max(dim)` fourfold, and both want a few rows at a time so that they stay in the cache (`Prediction.reduce` sees to it).
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["IMPOSSIBLE", "STATISTICS", "summarise"]

STATISTICS = frozenset({"top_token", "top_logit", "log_normaliser", "confidence", "margin", "entropy"})
# exp() of it is exactly 0, and 0 times it is 0, where -inf would give NaN.
IMPOSSIBLE = -1e30
_BLOCK = 512


def summarise(logits_NV: Tensor, wanted: frozenset[str]) -> dict[str, Tensor]:
    """The wanted statistics, each of shape (N,)."""
    top_logit_N, top_token_N = _top(logits_NV)
    found = {"top_token": top_token_N, "top_logit": top_logit_N}
    if wanted - found.keys():
        p_NV = logits_NV.softmax(-1)
        confidence_N = p_NV.gather(1, top_token_N[:, None]).squeeze(1)
        found["confidence"] = confidence_N
        found["log_normaliser"] = top_logit_N - confidence_N.log()
    if "entropy" in wanted:
        # Rounding may leave a certain row a hair below zero.
        found["entropy"] = (found["log_normaliser"] - (p_NV * logits_NV).sum(-1)).clamp(min=0.0)
    if "margin" in wanted:
        second_N = p_NV.scatter(1, top_token_N[:, None], -1.0).amax(-1)
        found["margin"] = confidence_N - second_N.clamp(min=0.0)
    return {name: found[name] for name in wanted}


def _top(logits_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Largest logit and its id; the lowest id of equal ones."""
    N, V = logits_NV.shape
    blocks = V // _BLOCK
    if logits_NV.requires_grad or blocks < 16:
        logit_N, token_N = logits_NV.max(-1)
        return logit_N, token_N
    whole_NV, rest_NV = logits_NV[:, : blocks * _BLOCK], logits_NV[:, blocks * _BLOCK :]
    blocked_NKW = whole_NV.reshape(N, blocks, _BLOCK)
    block_N = blocked_NKW.amax(-1).argmax(-1)
    logit_N, inside_N = blocked_NKW[torch.arange(N, device=logits_NV.device), block_N].max(-1)
    token_N = block_N * _BLOCK + inside_N
    if rest_NV.shape[1]:
        rest_N, at_N = rest_NV.max(-1)
        token_N = torch.where(rest_N > logit_N, blocks * _BLOCK + at_N, token_N)
        logit_N = torch.maximum(rest_N, logit_N)
    return logit_N, token_N
