"""Soft writes: the mean embedding of the token a row would get, held constant.

    e~_i = stopgrad(sum_v p_i(v) E_v),   delta_i = e~_i - e_mask        (the mask's own probability is 0)

Shapes: B batch rows, L canvas rows, n rows of a chunk, V vocabulary, E embedding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tabes.models.network import Network
from tabes.steering.scene import Scene

__all__ = ["soft_deltas"]


@torch.no_grad()
def soft_deltas(scene: Scene, candidates_BL: Tensor) -> Tensor:
    """(B, L, E): where a full soft write moves each candidate's embedding; 0 at all other rows."""
    network, ledger = scene.denoiser.base.network, scene.denoiser.base.ledger
    table_VE = _table(network)
    mask_E = table_VE[scene.canvas.mask_id]
    dtype = torch.promote_types(table_VE.dtype, torch.float32)  # as logits are

    def reduce(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
        p_nV = logits_nV.softmax(-1)
        ledger.extra(2.0 * p_nV.shape[0] * table_VE.numel())
        return {"delta": (p_nV.to(table_VE.dtype) @ table_VE - mask_E).to(dtype)}

    at = scene.prediction.at(candidates_BL)
    if len(at) == 0:
        return table_VE.new_zeros(*candidates_BL.shape, table_VE.shape[1], dtype=dtype)
    return at.reduce(reduce)["delta"]


def _table(network: Network) -> Tensor:
    """What embedding a token gives: the table itself, unless the model scales what it looks up (as Gemma does)."""
    table_VE = network.embedding_weight()
    few = torch.arange(min(4, table_VE.shape[0]), device=table_VE.device)
    if torch.equal(network.embed(few[None])[0], table_VE[few]):
        return table_VE
    return network.embed(torch.arange(table_VE.shape[0], device=table_VE.device)[None])[0]
