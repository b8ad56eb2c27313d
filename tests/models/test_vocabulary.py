"""Tokenizers made of a plain list of tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tabes.errors import UsageError
from tabes.models.smiles import SMILES, smiles_tokens
from tabes.models.vocabulary import list_tokenizer, read_vocabulary

SPECIAL = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *"cCON()=123.", "[O-]", "[C@@H]", "Cl", "Br", "%12", ">>"]
REACTION = "ClC%12CC%12.[O-]C>>[C@@H](Br)C=O"
IDS = {token: i for i, token in enumerate(VOCABULARY)}


def test_a_text_becomes_its_tokens_and_comes_back() -> None:
    tokenizer = list_tokenizer(IDS, SMILES)
    ids = tokenizer.encode(REACTION)
    assert [VOCABULARY[i] for i in ids] == ["[CLS]", *smiles_tokens(REACTION), "[SEP]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == REACTION


def test_a_hole_is_one_token_and_what_is_unknown_does_not_vanish() -> None:
    ids = list_tokenizer(IDS, SMILES).encode("C[MASK][MASK]Cl[MASK]>>[Xe]C", add_special_tokens=False)
    assert [VOCABULARY[i] for i in ids] == ["C", "[MASK]", "[MASK]", "Cl", "[MASK]", ">>", "[UNK]", "C"]


def test_files_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    assert read_vocabulary(tmp_path / "vocab.txt") == IDS


def test_vocabularies_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[MASK]\nC\n")
    with pytest.raises(UsageError, match=r"lacks \[CLS\], \[SEP\], \[UNK\]"):
        read_vocabulary(tmp_path / "vocab.txt")
