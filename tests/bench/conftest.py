"""A tiny untrained Sudoku model: enough to decode, count and pair; it solves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import tabes
from tabes.training.sudoku import sudoku_tokenizer

if TYPE_CHECKING:
    from transformers import BertForMaskedLM


def tiny_bert(spread: float = 0.0) -> BertForMaskedLM:
    """With a `spread` its weights are far larger than at the start of a training, so that every token matters."""
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
    model = BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="session")
def guesser() -> tabes.Denoiser:
    return tabes.load(tiny_bert(), tokenizer=sudoku_tokenizer())


@pytest.fixture(scope="session")
def knower() -> tabes.Denoiser:
    """One to which it makes a difference what is written."""
    return tabes.load(tiny_bert(0.5).double(), tokenizer=sudoku_tokenizer())


@pytest.fixture(scope="session")
def plain() -> BertForMaskedLM:
    """The network of `knower` as transformers has it, for loops that share no code with the package."""
    return tiny_bert(0.5).double().eval()
