"""The sizes of published models, as their own config.json has them (facts; no file of theirs is here)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["PUBLISHED"]

_LLADA: dict[str, Any] = {
    "model_type": "llada",
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "mlp_hidden_size": 12288,
    "vocab_size": 126464,
    "embedding_size": 126464,
    "max_sequence_length": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "dtype": "bfloat16",
}
_DREAM: dict[str, Any] = {
    "model_type": "Dream",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "dtype": "bfloat16",
}
_MDLM: dict[str, Any] = {
    "model_type": "mdlm",
    "vocab_size": 50258,
    "hidden_dim": 768,
    "cond_dim": 128,
    "n_blocks": 12,
    "n_heads": 12,
    "model_length": 1024,
    "time_conditioning": False,
}


def _sedd(width: int, blocks: int, heads: int) -> dict[str, Any]:
    sizes = {"hidden_size": width, "cond_dim": 128, "length": 1024, "n_blocks": blocks, "n_heads": heads}
    return {"tokens": 50257, "graph": {"type": "absorb"}, "noise": {"type": "loglinear"}, "model": sizes}


PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "GSAI-ML/LLaDA-8B-Base": _LLADA,
    "GSAI-ML/LLaDA-8B-Instruct": _LLADA,
    "GSAI-ML/LLaDA-1.5": _LLADA,
    "Dream-org/Dream-v0-Base-7B": _DREAM,
    "Dream-org/Dream-v0-Instruct-7B": _DREAM,
    "apple/DiffuCoder-7B-Base": _DREAM,
    "apple/DiffuCoder-7B-Instruct": _DREAM,
    "apple/DiffuCoder-7B-cpGRPO": _DREAM,
    "kuleshov-group/mdlm-owt": _MDLM,
    "louaaron/sedd-small": _sedd(768, 12, 12),
    "louaaron/sedd-medium": _sedd(1024, 24, 16),
}
