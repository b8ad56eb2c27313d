"""Tiny untrained checkpoints in folders, good and damaged, and a command line that runs in this process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tabes.cli import main
from tabes.training.sudoku import sudoku_tokenizer

if TYPE_CHECKING:
    from transformers import BertForMaskedLM, PreTrainedTokenizerFast


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def is_refusal(self, *words: str) -> bool:
        """Exit code 2, nothing on stdout, and one sentence on stderr that has these words."""
        lines = self.err.strip().splitlines()
        assert (self.code, self.out, len(lines)) == (2, "", 1), self
        assert "Traceback" not in self.err
        assert all(word in self.err for word in words), self.err
        return True


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """`command("generate", "--model", folder)`; what libraries write to the descriptors themselves counts too."""

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    return run


def _bert(vocab_size: int, length: int) -> BertForMaskedLM:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=length,
    )
    return BertForMaskedLM(config)


@pytest.fixture(scope="session")
def sudoku(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of grids that guesses."""
    folder = tmp_path_factory.mktemp("grids")
    _bert(12, 81).save_pretrained(folder)
    sudoku_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory, words: PreTrainedTokenizerFast) -> Path:
    """A model of the words w0 ... w65 that takes 16 tokens at most."""
    folder = tmp_path_factory.mktemp("texts")
    _bert(67, 16).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture
def damaged(texts: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(texts, tmp_path / "damaged"))
