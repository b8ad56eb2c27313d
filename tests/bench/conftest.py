"""A tiny untrained Sudoku model: enough to decode, count and pair; it solves nothing."""

from __future__ import annotations

import pytest
import torch

import tabes
from tabes.training.sudoku import sudoku_tokenizer


@pytest.fixture(scope="session")
def guesser() -> tabes.Denoiser:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=12,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=81,
    )
    return tabes.load(BertForMaskedLM(config), tokenizer=sudoku_tokenizer())
