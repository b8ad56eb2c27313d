"""One thread, no hub, and the small models the tests share."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import tabes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

torch.set_num_threads(1)

GOLDEN = Path(__file__).parent / "golden" / "samplers"
MASK = 66


@pytest.fixture(scope="session")
def words() -> PreTrainedTokenizerFast:
    """A word-level tokenizer for the golden denoiser: w0 ... w65, and [MASK] = 66; w65 is the pad token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"w{i}": i for i in range(66)} | {"[MASK]": MASK}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="[MASK]", pad_token="w65", eos_token="w64")


@pytest.fixture(scope="session")
def golden_model(words: PreTrainedTokenizerFast) -> tabes.Denoiser:
    """The fixed random BERT the golden traces were made with."""
    return tabes.load(GOLDEN / "denoiser", tokenizer=words)
