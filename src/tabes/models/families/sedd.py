"""SEDD with masks (arXiv 2310.16834): louaaron/sedd-small, sedd-medium, and whatever has their config.

The output is a log-score: at a masked row log p(v) - log(e^sigma - 1), up to what was learned, so a softmax over the
tokens is their distribution, and the sum of scores is what `scores="raw"` of the kernel reads. The token that stands in
a row has the log-score 0 by definition.

    logits(v) = output(v) - log(e^sigma - 1) - log(tokens),     logits(current token) = 0

Both need what a head is not told, so hidden rows have two more columns: the constant, and the token (-1: unknown).
Shapes: B batch rows, L rows, N any rows, d width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tabes.errors import ModelError
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.dit import DiT
from tabes.models.families.dit_files import one_place, open_dit, section, sizes_of
from tabes.models.families.dit_network import DiTNetwork
from tabes.models.families.weights import Place

__all__ = ["SEDDNetwork", "open", "recognises"]

_SIZES = {"width": "hidden_size", "cond": "cond_dim", "blocks": "n_blocks", "heads": "n_heads", "length": "length"}
# The reference's last time. At 0 scores are infinite.
_END = 1e-5


class SEDDNetwork(DiTNetwork):
    """Always told the time; `scaled` models are trained with the size of the scores taken out."""

    def __init__(self, name: str, model: DiT, *, scaled: bool) -> None:
        super().__init__(name, model, timed=True)
        self.scaled = scaled
        self.hidden_size += 2

    def head(self, hidden_Nd: Tensor) -> Tensor:
        rows_Nd, height_N1, token_N1 = hidden_Nd.split([self.model.sizes.width, 1, 1], -1)
        logits_NV: Tensor = self.model.head(rows_Nd.to(self.dtype)) + height_N1
        at_N1 = token_N1.long().clamp(min=0)
        own_N1 = torch.where(token_N1 < 0, logits_NV.gather(1, at_N1), 0.0)
        if logits_NV.requires_grad:
            return logits_NV.scatter(1, at_N1, own_N1)
        return logits_NV.scatter_(1, at_N1, own_N1)

    def _sigma(self, time_B: Tensor | None) -> Tensor:
        return super()._sigma(None if time_B is None else time_B.clamp(min=_END))

    def _finished(self, hidden_BLd: Tensor, sigma_B: Tensor, tokens_BL: Tensor | None) -> Tensor:
        exact, shape = self.model.exact, (*hidden_BLd.shape[:2], 1)
        height_B = -(sigma_B.expm1().log() + math.log(self.vocab_size - 1)) if self.scaled else 0 * sigma_B
        height_BL1 = height_B.to(exact)[:, None, None].expand(shape)
        token_BL1 = height_BL1.new_full(shape, -1.0) if tokens_BL is None else tokens_BL.to(exact)[..., None]
        return torch.cat([hidden_BLd.to(exact), height_BL1, token_BL1], -1)


def recognises(config: Mapping[str, Any]) -> bool:
    """By the tables of its training run: the config names no model type."""
    tables = (config.get(name) for name in ("graph", "model", "noise"))
    return "tokens" in config and "model_type" not in config and all(isinstance(table, Mapping) for table in tables)


def open(  # noqa: A001 (what every family offers)
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> SEDDNetwork:
    """The network, complete and checked."""
    _check_kind(checkpoint, "graph", "absorb", "only 'absorb' has masks")
    _check_kind(checkpoint, "noise", "loglinear", "the time of others is not known here")
    config = section(checkpoint, "model")
    scaled = config.get("scale_by_sigma")
    if not isinstance(scaled, bool):
        raise ModelError(
            f"the config.json of {checkpoint.name} has scale_by_sigma {scaled!r}; it must be true or false"
        )
    tokens = checkpoint.config["tokens"]
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ModelError(f"the config.json of {checkpoint.name} has tokens {tokens!r}; it must be a positive integer")
    sizes = sizes_of(checkpoint, config, _SIZES, vocab=tokens + 1)
    place = one_place(checkpoint, device, device_map)
    model = open_dit(checkpoint, sizes, prefix="", dtype=dtype, device=place)
    return SEDDNetwork(checkpoint.name, model, scaled=scaled)


def _check_kind(checkpoint: Checkpoint, table: str, kind: str, why: str) -> None:
    found = section(checkpoint, table).get("type")
    if found != kind:
        raise ModelError(f"{checkpoint.name} has the {table} '{found}' where '{kind}' is needed: {why}")
