"""What transformers' `generate` prepares and cannot mean anything to a canvas that is filled in any order.

Shapes: B batch rows, P prompt rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from tabes.errors import UsageError

__all__ = ["check", "check_positions"]

# What our writers do themselves, or what the end tokens and the length say anyway.
_KNOWN_PROCESSORS = frozenset({"TemperatureLogitsWarper", "TopKLogitsWarper", "TopPLogitsWarper"})
_KNOWN_CRITERIA = frozenset({"MaxLengthCriteria", "EosTokenCriteria"})
# Arguments of the forward that `generate` makes up itself.
_PREPARED = frozenset({"attention_mask", "position_ids", "use_cache", "past_key_values", "logits_to_keep"})


def check(
    config: GenerationConfig,
    processors: Sequence[Any],
    criteria: Sequence[Any],
    synced_gpus: bool,
    model_kwargs: dict[str, Any],
) -> None:
    """Raise for anything `generate` was asked for that we would not do."""
    mode = config.get_generation_mode().value
    if mode not in ("greedy_search", "sample"):
        raise _meaningless(f"the generation mode '{mode}'", "leave out what asks for it (beams, assistants, ...)")
    for one in processors:
        if type(one).__name__ not in _KNOWN_PROCESSORS:
            raise _meaningless(
                f"the logits processor {type(one).__name__}",
                "leave out what asks for it; suppress= and cfg_scale= are what there is",
            )
    for one in criteria:
        if type(one).__name__ not in _KNOWN_CRITERIA:
            raise _meaningless(f"the stopping criterion {type(one).__name__}", "give stop= (ids, or a tabes.stop.Stop)")
    for name in ("output_scores", "output_logits", "output_attentions", "output_hidden_states"):
        if getattr(config, name, None):
            raise _meaningless(name, "leave it out: the scores of every step are in return_dict_in_generate's steps")
    if synced_gpus:
        raise _meaningless("synced_gpus", "decode on one process")
    for name, value in model_kwargs.items():
        if name not in _PREPARED and value is not None:
            raise _meaningless(f"the model argument {name}", "leave it out")
    cache = model_kwargs.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise _meaningless("a filled past_key_values", "every row reads every other: leave it out (see tabes.RowCache)")


def check_positions(ids_BP: Tensor, attention_mask: Tensor | None, positions_BP: Tensor | None) -> None:
    """`generate` makes the same positions as we do; others are the caller's own."""
    if positions_BP is None:
        return
    content_BP = torch.ones_like(ids_BP) if attention_mask is None else attention_mask
    ours_BP = (content_BP.cumsum(1) - 1)[content_BP > 0]
    if not torch.equal(positions_BP.expand_as(ids_BP)[content_BP > 0], ours_BP):
        raise _meaningless(
            "position_ids of your own", "leave them out: rows are counted from the first that is no padding"
        )


def _meaningless(what: str, instead: str) -> UsageError:
    return UsageError(f"{what} means nothing where a canvas is filled in any order; {instead}")
