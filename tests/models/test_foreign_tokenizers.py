"""A tokenizer that belongs to another model is refused: with it the wrong rows would be filled, without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import tabes
from tabes import bundled

GOLDEN = Path(__file__).parent.parent / "golden" / "models"


def test_a_mask_that_contradicts_the_config() -> None:
    with pytest.raises(tabes.TabesError, match=r"the tokenizer says the mask of .* is 10, its config says 150: give"):
        tabes.load(GOLDEN / "llada", tokenizer=bundled.folder("sudoku"))


def test_a_pad_token_on_the_mask() -> None:
    """GPT-2's tokenizer with a pad token added, which then has the very id of MDLM's mask."""
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(159)}, unk_token="w0"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    tokenizer.add_special_tokens({"pad_token": "[PAD]"})
    with pytest.raises(tabes.TabesError, match="pad token has the id 159, which is the mask of"):
        tabes.load(GOLDEN / "mdlm_owt", tokenizer=tokenizer)
