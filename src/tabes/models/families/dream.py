"""Dream (arXiv 2508.15487), Dream-Coder and DiffuCoder: a Qwen2 that reads in both directions, keys as in Qwen2.

The output of row j predicts row j + 1: `shifted` tells whoever reads rows, and nothing else here knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from tabes.models.families import configs, native
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.weights import Place
from tabes.models.transformer import RowNetwork

__all__ = ["open", "open_tokenizer", "recognises"]

# What a Dream config can ask for and is not computed here. Absent keys are as here.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "rope_scaling": (None,),
    "use_sliding_window": (False, None),
    "use_mrope": (False, None),
    "tie_word_embeddings": (False, None),
}


def recognises(config: Mapping[str, Any]) -> bool:
    """By its model type, which transformers does not know."""
    return str(config.get("model_type")).lower() == "dream"


def open(  # noqa: A001 (what every family offers)
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> RowNetwork:
    """The network, complete and checked."""
    configs.require(checkpoint, _KNOWN)
    rotation: Any = Qwen2RotaryEmbedding
    network = native.open_native(
        checkpoint,
        Qwen2ForCausalLM,
        _config(checkpoint),
        str,
        rotation=rotation,
        dtype=dtype,
        device=device,
        device_map=device_map,
    )
    network.shifted = True
    return network


def open_tokenizer(name: str, revision: str) -> PreTrainedTokenizerBase:
    """Qwen2's, from its word list: the published folder names a class of its own that adds nothing to it."""
    tokenizer: PreTrainedTokenizerBase = Qwen2Tokenizer.from_pretrained(name, revision=revision)
    return tokenizer


def _config(checkpoint: Checkpoint) -> PreTrainedConfig:
    width, heads, key_heads = configs.heads(checkpoint, "hidden_size", "num_attention_heads", "num_key_value_heads")
    vocab_size = configs.size(checkpoint, "vocab_size")
    return Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=configs.size(checkpoint, "intermediate_size"),
        num_hidden_layers=configs.size(checkpoint, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=configs.size(checkpoint, "max_position_embeddings"),
        rms_norm_eps=configs.number(checkpoint, "rms_norm_eps"),
        rope_parameters={"rope_type": "default", "rope_theta": configs.number(checkpoint, "rope_theta")},
        tie_word_embeddings=False,
        **configs.token_ids(checkpoint, vocab_size),
    )
