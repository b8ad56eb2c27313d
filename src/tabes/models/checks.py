"""What a backbone can do, by comparing two ways to compute the same hidden rows on a few tokens (B, L) = (2, 8)."""

from __future__ import annotations

import torch
from torch import Tensor

from tabes.attention import Memory, Slots
from tabes.attention.outputs import RecordOutputs, ReplayOutputs, Watch, using_outputs
from tabes.errors import ModelError
from tabes.models.backbone import Backbone
from tabes.models.transformer import RowNetwork

__all__ = ["embeds", "holds", "offset", "positions", "replays"]

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}  # rotary positions are float32 in every model
_COARSE = 0.1  # half precision


def positions(tokens_BL: Tensor) -> Tensor:
    """0, 1, 2, ... in every batch row."""
    return torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand_as(tokens_BL)


def embeds(backbone: Backbone, tokens_BL: Tensor, hidden_BLd: Tensor) -> bool:
    """Whether embeddings give what their tokens give."""
    return _same(backbone.run(None, backbone.embed(tokens_BL)), hidden_BLd)


def offset(backbone: Backbone, tokens_BL: Tensor, hidden_BLd: Tensor) -> int | None:
    """Where positions start: 0, or after the padding id as RoBERTa has it; None if they cannot be given."""
    if not backbone.takes_positions:
        return None
    errors: dict[int, float] = {}
    after = (backbone.padding_id if backbone.padding_id is not None else -1) + 1
    for start in sorted({0, after} if after < (backbone.limit or 0) - tokens_BL.shape[1] + 1 else {0}):
        backbone.offset = start
        errors[start] = _error(backbone.run(tokens_BL, positions_BL=positions(tokens_BL)), hidden_BLd)
    best = min(errors, key=lambda start: errors[start])
    return best if errors[best] <= _tolerance(hidden_BLd) else None


def replays(network: RowNetwork, tokens_BL: Tensor) -> bool:
    """Whether rows replayed alone, in any order, give what they gave in the canvas."""
    rows_BR = _some_rows(tokens_BL)
    try:
        hidden_BLd, memory = network.forward(
            tokens_BL, positions_BL=positions(tokens_BL), padding_BL=None, remember=True
        )
        assert memory is not None
        other_BRd, _ = network.replay(memory, rows_BR)
    except ModelError:
        return False
    return _same(other_BRd, hidden_BLd.take_along_dim(rows_BR[..., None], 1))


def holds(backbone: Backbone, tokens_BL: Tensor) -> bool:
    """Whether rows stay what they were, wherever attention reads them, when only other rows change.

    Row by row nothing may move at all, so the tolerance is far below any rounding of the model's own.
    """
    positions_BL = positions(tokens_BL)
    slots = Slots(_some_rows(tokens_BL), None, tokens_BL.shape[1])
    record = RecordOutputs()
    before = Watch(record)
    with using_outputs(before):
        hidden_BLd = backbone.run(tokens_BL, positions_BL=positions_BL)
    active_BL = slots.put(torch.zeros_like(tokens_BL), torch.ones_like(slots.rows_BR)).bool()
    after = Watch(ReplayOutputs(Memory(tuple(record.layers), positions_BL), active_BL))
    changed_BLE = backbone.embed(slots.put(tokens_BL, slots.take(tokens_BL.flip(1))))
    with using_outputs(after):
        other_BLd = backbone.run(None, changed_BLE, positions_BL=positions_BL)
    pairs = zip([*after.given, other_BLd], [*before.given, hidden_BLd], strict=True)
    return all(_error(slots.put(x, slots.take(y)), y) < 1e-6 for x, y in pairs)


def _some_rows(tokens_BL: Tensor) -> Tensor:
    return torch.tensor([[tokens_BL.shape[1] - 1, 1], [2, 0]], device=tokens_BL.device)


def _same(a_BLd: Tensor, b_BLd: Tensor) -> bool:
    return _error(a_BLd, b_BLd) <= _tolerance(b_BLd)


def _error(a_BLd: Tensor, b_BLd: Tensor) -> float:
    """How far apart, in units of how much hidden rows differ from each other."""
    a, b = a_BLd.double(), b_BLd.double()
    spread = (b - b.mean(dim=1, keepdim=True)).square().mean().sqrt()
    return float((a - b).square().mean().sqrt() / spread.clamp_min(1e-12))


def _tolerance(hidden_BLd: Tensor) -> float:
    return _TOLERANCE.get(hidden_BLd.dtype, _COARSE)
