"""The distribution a writer draws from, and what rankings read of it: temperature first, then top-p, then top-k.

That is Dream's order (2508.15487); the token that crosses p is kept. Exponentials are in float32.
Shapes: N rows, V vocabulary, K blocks of W tokens.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tabes.prediction import Prediction
from tabes.suppression import end_ids
from tabes.view import View
from tabes.writers.inverse import blocks, reach, split

__all__ = ["Reader", "distribution", "nucleus"]


def distribution(
    logits_NV: Tensor, temperature: float, top_p: float | None, top_k: int | None, *, crossing: bool = True
) -> Tensor:
    """Weights, 0 for the tokens that may not be drawn; what is left need not sum to 1."""
    p_NV = (logits_NV if temperature == 1.0 else logits_NV / temperature).softmax(-1)
    if top_p is not None and top_p < 1:
        p_NV = nucleus(p_NV, top_p, crossing=crossing)
    if top_k is not None and top_k < p_NV.shape[1]:
        least_N1 = p_NV.topk(top_k).values[:, -1:]
        p_NV = p_NV.masked_fill(p_NV < least_N1, 0.0)
    return p_NV


def nucleus(p_NV: Tensor, top_p: float, *, crossing: bool = True) -> Tensor:
    """0 outside the smallest set of likeliest tokens whose mass reaches `top_p`, the lowest ids among equal ones.

    Without `crossing` (ReMDM's runs, 2503.00307) the token that crosses `top_p` is out too, unless it is the likeliest.
    """
    sorted_NV = _descending(p_NV)
    target_N1 = p_NV.new_full((len(p_NV), 1), top_p, dtype=torch.float64)
    last_N1 = reach(*blocks(sorted_NV), target_N1, past=not crossing) - int(not crossing)
    last_N1 = last_N1.clamp(min=0, max=p_NV.shape[1] - 1)
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


class Reader:
    """What a ranking reads (names as in `Ranking.reads`), found chunk by chunk in the writer's own pass."""

    def __init__(self, view: View, reads: frozenset[str]) -> None:
        self.reads = reads
        self._ends = end_ids(view.denoiser.base, "leave ends_last out") if "ends" in reads else ()

    @property
    def wants_distribution(self) -> bool:
        """Whether anything is read of the distribution itself."""
        return bool(self.reads - {"ends"})

    def found(self, logits_NV: Tensor, weights_NV: Tensor | None, token_N: Tensor | None = None) -> dict[str, Tensor]:
        """The statistics of one chunk, under names that no statistic of the prediction has.

        Without weights nothing of the distribution; without a token the most probable one is meant.
        """
        found = {}
        if "ends" in self.reads:
            found["ends"] = logits_NV[:, list(self._ends)].logsumexp(-1)
        if weights_NV is not None:
            found |= _described(weights_NV, token_N, self.reads)
        return {f"drawn {name}": value_N for name, value_N in found.items()}

    def nothing(self, prediction: Prediction) -> dict[str, Tensor]:
        """`Proposal.drawn_from` where nothing was predicted."""
        return {name: torch.zeros(prediction.rows_BL.shape, device=prediction.rows_BL.device) for name in self.reads}

    def taken(self, results: dict[str, Tensor]) -> dict[str, Tensor]:
        """`Proposal.drawn_from`, from what the pass brought back."""
        return {name: results[f"drawn {name}"] for name in self.reads}


def _described(weights_NV: Tensor, token_N: Tensor | None, reads: frozenset[str]) -> dict[str, Tensor]:
    total_N1, found = weights_NV.sum(-1, keepdim=True), {}
    total_N = total_N1.squeeze(1)
    if "confidence" in reads:
        chosen_N = weights_NV.amax(-1) if token_N is None else weights_NV.gather(1, token_N[:, None]).squeeze(1)
        found["confidence"] = chosen_N / total_N
    if "margin" in reads:
        first_N, second_N = _top_two(weights_NV).unbind(1)
        found["margin"] = (first_N - second_N) / total_N
    if "entropy" in reads:
        found["entropy"] = torch.special.entr(weights_NV / total_N1).sum(-1)
    return found


def _top_two(weights_NV: Tensor) -> Tensor:
    """The two largest (N, 2): they are in the two blocks with the largest maxima, which saves a sort."""
    blocked_NKW = split(weights_NV)
    which_Nk = blocked_NKW.amax(-1).topk(min(2, blocked_NKW.shape[1])).indices
    rows_N1 = torch.arange(len(weights_NV), device=weights_NV.device)[:, None]
    return blocked_NKW[rows_N1, which_Nk].flatten(1).topk(2).values
