"""The one attention function and its mask function, registered with transformers under the name "tabes".

Outside a tape both are exactly transformers' own SDPA.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

from tabes.attention.tape import current
from tabes.errors import ModelError

__all__ = ["NAME", "attention", "mask", "register"]

NAME = "tabes"

# What a call may carry without changing the attention: windows are in the mask, the rest is about other kernels.
_HARMLESS = frozenset(
    {
        "cache_position",
        "deterministic",
        "is_causal",
        "layer_idx",
        "num_items_in_batch",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "seq_idx",
        "sliding_window",
        "use_cache",
    }
)


def register() -> None:
    """Make "tabes" an attention implementation. Without the mask function a padding mask would be silently dropped."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """SDPA over what the tape in use makes of the call. Queries (B, H, R, D) -> outputs (B, R, H, D)."""
    # LLaDA turns its queries and keys in float32: what attends, and is remembered, is in the dtype of the weights.
    query, key = query.to(value.dtype), key.to(value.dtype)
    tape = current()
    if tape is None:
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
        return output, None
    for name, argument in kwargs.items():
        if argument is not None and argument is not False and name not in _HARMLESS:
            raise ModelError(f"{type(module).__name__} gives its attention '{name}', which a replay does not know")
    key, value, attention_mask = tape.attend(query, key, value, attention_mask)
    # Never causal: causal networks are refused when they are loaded.
    with tape.saving():
        output, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=False
        )
    return output, None


def mask(*args: Any, **kwargs: Any) -> Tensor | None:
    """Transformers' SDPA mask, except where a tape can do with less: (B, 1, 1, L) for padding, none for a replay."""
    tape = current()
    if tape is None:
        return sdpa_mask(*args, **kwargs)
    if not tape.masks:
        return None
    padding = kwargs.get("attention_mask")
    plain = kwargs.get("mask_function") is bidirectional_mask_function and not args
    if plain and padding is not None and padding.shape == (kwargs["batch_size"], kwargs["kv_length"]):
        return None if bool(padding.all()) else padding.bool()[:, None, None, :]
    return sdpa_mask(*args, **kwargs)
