"""LLaDA (arXiv 2502.09992) and LLaDA-1.5 in their published format: a Llama that reads in both directions.

One thing transformers' Llama does not do: queries and keys are turned in float32 and then cast back, which in bfloat16
is a difference of 0.2 in the logits. Logits are of the same row; there is no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from tabes.models.families import configs, native
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.weights import Place
from tabes.models.transformer import RowNetwork

__all__ = ["ExactRotation", "open", "recognises"]

# What an LLaDA config can ask for and a Llama does not compute. Absent keys are as here.
_KNOWN: dict[str, tuple[Any, ...]] = {
    "block_type": ("llama",),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "block_group_size": (1,),
    "rope": (True,),
    "alibi": (False,),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "bias_for_layer_norm": (False, None),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "scale_logits": (False,),
    "weight_tying": (False,),
    "clip_qkv": (None,),
    "multi_query_attention": (False, None),
}
# Llama's names, and theirs. Two of theirs end alike: the head and the MLP's way down.
_OUTSIDE = {
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}
_INSIDE = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


class ExactRotation(LlamaRotaryEmbedding):
    """Cosines and sines in float32 at least, so that queries and keys are; attention casts them back."""

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        exact = x.new_empty(0, dtype=torch.promote_types(x.dtype, torch.float32))
        cos, sin = super().forward(exact, position_ids)
        return cos, sin


def recognises(config: Mapping[str, Any]) -> bool:
    """By its model type, which it shares with a mixture of experts."""
    return config.get("model_type") == "llada" and "num_experts" not in config


def open(  # noqa: A001 (what every family offers)
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> RowNetwork:
    """The network, complete and checked."""
    configs.require(checkpoint, _KNOWN)
    exact = configs.boolean(checkpoint, "rope_full_precision", default=True)
    rotation: Any = ExactRotation if exact else LlamaRotaryEmbedding
    return native.open_native(
        checkpoint,
        LlamaForCausalLM,
        _config(checkpoint),
        _published,
        rotation=rotation,
        dtype=dtype,
        device=device,
        device_map=device_map,
    )


def _config(checkpoint: Checkpoint) -> PreTrainedConfig:
    width, heads, key_heads = configs.heads(checkpoint, "d_model", "n_heads", "n_kv_heads")
    # Rows of the table: the tokens, and what rounds them up.
    vocab_size = configs.size(checkpoint, "embedding_size", "vocab_size")
    usual = width * configs.size(checkpoint, "mlp_ratio", default=4)
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=configs.size(checkpoint, "mlp_hidden_size", default=usual),
        num_hidden_layers=configs.size(checkpoint, "n_layers"),
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        max_position_embeddings=configs.size(checkpoint, "max_sequence_length"),
        rms_norm_eps=configs.number(checkpoint, "rms_norm_eps"),
        rope_parameters={"rope_type": "default", "rope_theta": configs.number(checkpoint, "rope_theta")},
        tie_word_embeddings=False,
        **configs.token_ids(checkpoint, vocab_size),
    )


def _published(name: str) -> str:
    """What a file calls the parameter `name` of a Llama."""
    path, _, leaf = name.rpartition(".")
    if path in _OUTSIDE:
        return f"{_OUTSIDE[path]}.{leaf}"
    number, _, part = path.removeprefix("model.layers.").partition(".")
    return f"model.transformer.blocks.{number}.{_INSIDE[part]}.{leaf}"
