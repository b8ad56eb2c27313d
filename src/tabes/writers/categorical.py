"""A draw from the (tempered, filtered) distribution by inverse CDF: one uniform number per row, from the row's stream.

Temperature first, then top-p (the token that crosses p is kept), then top-k, as Dream does. The limit temperature -> 0
is `argmax`. Sums over the vocabulary are in float64, the exponentials in float32.
Shapes: N rows, V vocabulary, K blocks of W tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from tabes.parts import WRITERS, Proposal, Writer
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["Categorical", "draw"]

_BLOCK = 512


@WRITERS.register("categorical")
@dataclass(frozen=True)
class Categorical(Writer):
    """token ~ softmax(logits / temperature), restricted to the `top_k` likeliest and the nucleus of mass `top_p`."""

    temperature: float = setting(1.0, "how flat the distribution is made before the draw", above=0, below=inf)
    top_p: float | None = setting(None, "draw from the most probable tokens that hold this share", above=0, most=1)
    top_k: int | None = setting(None, "draw from this many most probable tokens", least=1, whole=True)

    def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
        uniform_N = view.uniform("writer.categorical")[prediction.rows_BL]

        def reduce(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
            token_n = draw(self._weights(logits_nV), uniform_N[rows])
            return {"token": token_n, "logit": logits_nV.gather(1, token_n[:, None]).squeeze(1)}

        if len(prediction) == 0:
            return Proposal(prediction.top_token_BL, prediction.top_logit_BL)
        drawn = prediction.reduce(reduce)
        return Proposal(drawn["token"], drawn["logit"])

    def _weights(self, logits_nV: Tensor) -> Tensor:
        """Probabilities, 0 for the tokens that may not be drawn; what is left need not sum to 1."""
        p_nV = (logits_nV if self.temperature == 1.0 else logits_nV / self.temperature).softmax(-1)
        if self.top_p is not None and self.top_p < 1:
            p_nV = _nucleus(p_nV, self.top_p)
        if self.top_k is not None and self.top_k < p_nV.shape[1]:
            least_n1 = p_nV.topk(self.top_k).values[:, -1:]
            p_nV = p_nV.masked_fill(p_nV < least_n1, 0.0)
        return p_nV


def _nucleus(p_NV: Tensor, top_p: float) -> Tensor:
    """0 outside the smallest set of likeliest tokens whose mass reaches `top_p`, the lowest ids among equal ones."""
    sorted_NV = _descending(p_NV)
    last_N1 = _reach(*_blocks(sorted_NV), p_NV.new_full((len(p_NV), 1), top_p, dtype=torch.float64))
    last_N1 = last_N1.clamp(max=p_NV.shape[1] - 1)
    least_N1 = sorted_NV.gather(1, last_N1)
    kept_NV = p_NV >= least_N1
    next_N1 = (last_N1 + 1).clamp(max=p_NV.shape[1] - 1)
    tied_N = ((next_N1 > last_N1) & (sorted_NV.gather(1, next_N1) == least_N1)).squeeze(1)
    if bool(tied_N.any()):
        p_MV, least_M1 = p_NV[tied_N], least_N1[tied_N]
        above_MV, equal_MV = p_MV > least_M1, p_MV == least_M1
        room_M1 = last_N1[tied_N] + 1 - above_MV.sum(1, keepdim=True)
        kept_NV[tied_N] = above_MV | (equal_MV & (equal_MV.cumsum(1) <= room_M1))
    return p_NV * kept_NV


def _descending(p_NV: Tensor) -> Tensor:
    """Every row's values, the largest first. On a CPU numpy sorts thirty times faster than torch."""
    if p_NV.device.type == "cpu":
        return torch.from_numpy(np.sort((-p_NV).numpy(), axis=1)).neg_()
    return p_NV.sort(dim=1, descending=True).values


def draw(weights_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Tokens (N,) by inverse CDF."""
    blocked_NKW, ends_NK = _blocks(weights_NV)
    target_N1 = _below(uniform_N[:, None] * ends_NK[:, -1:], ends_NK[:, -1:])
    return _reach(blocked_NKW, ends_NK, target_N1, past=True).squeeze(1)


def _blocks(weights_NV: Tensor) -> tuple[Tensor, Tensor]:
    """The vocabulary in blocks of W, and the sum up to the end of each: no running sum over all of it."""
    blocked_NKW = pad(weights_NV, (0, -weights_NV.shape[1] % _BLOCK)).reshape(weights_NV.shape[0], -1, _BLOCK)
    return blocked_NKW, blocked_NKW.sum(-1, dtype=torch.float64).cumsum(1)


def _reach(blocked_NKW: Tensor, ends_NK: Tensor, target_N1: Tensor, *, past: bool = False) -> Tensor:
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
