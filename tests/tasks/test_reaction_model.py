"""The tokenizer of reactions, and the conversion of a model that reads them: a tiny one, saved the way old ones are."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from benchmarks import reaction_model as fetching
from transformers import AlbertConfig, AlbertForMaskedLM, AutoModelForMaskedLM, AutoTokenizer

import tabes
from tabes.bench import parse_samplers, run
from tabes.errors import ModelError, UsageError
from tabes.tasks import ReactionTask
from tabes.tasks.reaction_model import reaction_model
from tabes.tasks.smiles import read_vocabulary, smiles_tokenizer, smiles_tokens

SPECIAL = ["[PAD]", "[unused1]", "[unused2]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*SPECIAL, *"cCON()=123.", "[O-]", "[C@@H]", "Cl", "Br", "%12", ">>"]
FORBIDDEN = list(range(len(SPECIAL)))
REACTION = "ClC%12CC%12.[O-]C>>[C@@H](Br)C=O"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights that would love to write an unused token, an end id in the config, and no tokenizer."""
    folder = tmp_path_factory.mktemp("published")
    torch.manual_seed(0)
    config = AlbertConfig(  # type: ignore[call-arg]
        vocab_size=len(VOCABULARY),
        embedding_size=16,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=9,
    )
    model = AlbertForMaskedLM(config)
    with torch.no_grad():
        model.get_output_embeddings().bias[FORBIDDEN] = 50.0
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


@pytest.fixture(scope="module")
def converted(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reaction_model(published, tmp_path_factory.mktemp("converted") / "model")


def test_a_text_becomes_its_tokens_and_comes_back(published: Path) -> None:
    tokenizer = smiles_tokenizer(published / "vocab.txt")
    ids = tokenizer.encode(REACTION)
    assert [VOCABULARY[i] for i in ids] == ["[CLS]", *smiles_tokens(REACTION), "[SEP]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == REACTION


def test_a_hole_is_one_token_and_what_is_unknown_does_not_vanish(published: Path) -> None:
    tokenizer = smiles_tokenizer(published / "vocab.txt")
    ids = tokenizer.encode("C[MASK][MASK]Cl[MASK]>>[Xe]C", add_special_tokens=False)
    assert [VOCABULARY[i] for i in ids] == ["C", "[MASK]", "[MASK]", "Cl", "[MASK]", ">>", "[UNK]", "C"]


def test_the_folder_is_one_that_load_takes(converted: Path) -> None:
    model = tabes.load(converted)
    assert (model.mask_id, model.pad_id, model.eos_ids) == (6, 0, ())
    tokenizer = AutoTokenizer.from_pretrained(converted)
    assert tokenizer.model_max_length == 64
    assert tokenizer.decode(tokenizer.encode(REACTION), skip_special_tokens=True) == REACTION


def test_special_tokens_get_no_probability_and_the_others_their_own_logits(published: Path, converted: Path) -> None:
    ids = smiles_tokenizer(published / "vocab.txt")("C[MASK]>>[MASK]O", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        before, after = (
            AutoModelForMaskedLM.from_pretrained(folder).eval()(ids).logits for folder in (published, converted)
        )
    assert set(before.argmax(-1).flatten().tolist()) <= set(FORBIDDEN), "the model must want to, or this tests nothing"
    assert after.softmax(-1)[..., FORBIDDEN].max() == 0
    assert torch.equal(before[..., len(SPECIAL) :], after[..., len(SPECIAL) :])


def test_reactions_are_decoded_and_scored(converted: Path, tmp_path: Path) -> None:
    path = tmp_path / "reactions.csv"
    path.write_text("\n".join(["rxn", REACTION, "CCO>>CC=O", "c1ccccc1.Cl>>Clc1ccccc1"]))
    task, model = ReactionTask(path, split="all", draws=2), tabes.load(converted)
    rows = list(run(model, task, parse_samplers("confidence,random:temperature=1"), items=6, seed=0))
    items = task.items(6, 0)
    for row in rows:
        prompt = items[row.item].prompt
        shown, found = smiles_tokens(prompt), smiles_tokens(row.text)
        assert all(a in ("[MASK]", b) for a, b in zip(shown, found, strict=True))
        assert not set(found) & set(SPECIAL)
        assert row.steps == prompt.count("[MASK]") and tuple(row.scores) == task.metrics


def test_vocabularies_that_cannot_be_used_are_refused(published: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[MASK]\nC\n")
    with pytest.raises(UsageError, match=r"lacks \[CLS\], \[SEP\], \[UNK\]"):
        smiles_tokenizer(tmp_path / "vocab.txt")
    shutil.copytree(published, tmp_path / "longer")
    (tmp_path / "longer" / "vocab.txt").write_text("\n".join([*VOCABULARY, "F"]))
    with pytest.raises(ModelError, match=f"has {len(VOCABULARY) + 1} tokens but its model scores {len(VOCABULARY)}"):
        reaction_model(tmp_path / "longer", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fetching_converts_once(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def download(command: list[str], **_: Any) -> None:
        asked.append(command[-1])
        with ZipFile(Path(command[command.index("--dest") + 1]) / "package.whl", "w") as wheel:
            for file in published.iterdir():
                wheel.write(file, f"{fetching._WEIGHTS}/{file.name}")

    monkeypatch.setattr(fetching.subprocess, "run", download)
    folder = tmp_path / "models" / "reactions"
    assert [fetching.fetch(folder), fetching.fetch(folder)] == [folder, folder]
    assert asked == ["rxnmapper==0.4.3"]
    assert tabes.load(folder).mask_id == 6
    assert list(folder.parent.iterdir()) == [folder]
