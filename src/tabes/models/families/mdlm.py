"""MDLM (arXiv 2406.07524) in its Hugging Face format: kuleshov-group/mdlm-owt and whatever has its config.

Logits are of tokens, at the same row. Published models are not told the time (`time_conditioning` false): the noise's
embedding of 0 still moves every layer. What the paper calls SUBS is done by whoever reads the logits: the mask id is
impossible, and rows that are written are not asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tabes.errors import ModelError
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.dit_files import one_place, open_dit, sizes_of
from tabes.models.families.dit_network import DiTNetwork
from tabes.models.families.weights import Place

__all__ = ["open", "recognises"]

_SIZES = {
    "vocab": "vocab_size",
    "width": "hidden_dim",
    "cond": "cond_dim",
    "blocks": "n_blocks",
    "heads": "n_heads",
    "length": "model_length",
}


def recognises(config: Mapping[str, Any]) -> bool:
    """By its model type, which transformers does not know."""
    return config.get("model_type") == "mdlm"


def open(  # noqa: A001 (what every family offers)
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> DiTNetwork:
    """The network, complete and checked."""
    timed = checkpoint.config.get("time_conditioning")
    if not isinstance(timed, bool):
        raise ModelError(
            f"the config.json of {checkpoint.name} has time_conditioning {timed!r}; it must be true or false"
        )
    sizes = sizes_of(checkpoint, checkpoint.config, _SIZES)
    place = one_place(checkpoint, device, device_map)
    model = open_dit(checkpoint, sizes, prefix="backbone.", dtype=dtype, device=place)
    return DiTNetwork(checkpoint.name, model, timed=timed)
