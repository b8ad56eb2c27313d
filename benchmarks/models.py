"""Models with random weights in the shapes the benchmarks need: bidirectional Llamas, the same at every run."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import tabes
from tabes.denoiser import Denoiser

__all__ = ["denoiser", "llama"]


def llama(
    *, vocab_size: int, width: int, layers: int, head_width: int = 64, std: float = 0.02, tied: bool = False
) -> LlamaForCausalLM:
    """A frozen Llama in evaluation mode; weights with `std` well above .02 make rows differ as if it were trained."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=-(-width * 8 // 3 // 32) * 32,
        num_hidden_layers=layers,
        num_attention_heads=width // head_width,
        num_key_value_heads=width // head_width,
        max_position_embeddings=4096,
        initializer_range=std,
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
    )
    config.is_causal = False
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.eval().requires_grad_(False)  # type: ignore[no-untyped-call]
    return model


def denoiser(model: LlamaForCausalLM) -> Denoiser:
    """The same model as tabes sees it; its last id is the mask."""
    return tabes.load(model, mask_token_id=model.config.vocab_size - 1)
