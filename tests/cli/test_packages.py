"""`tabes models --fetch`. What is downloaded, and from where, is tested in tests/models/test_wheels.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tabes.errors import ModelError
from tabes.models.wheels import Wheel, fetching, wheels
from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]


def test_packages_are_listed(command: Command) -> None:
    found = command("models", "--json").json["packages"]
    assert [package["name"] for package in found] == [wheel.name for wheel in wheels()]
    text = command("models").out
    assert all(wheel.name in text and wheel.note in text for wheel in wheels())


def test_fetching_says_where_the_files_are(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "fetch", lambda wheel: Path("wheels") / wheel.filename)
    files = {wheel.name: str(Path("wheels") / wheel.filename) for wheel in wheels()[:2]}
    options = [option for name in files for option in ("--fetch", name)]
    outcome = command("models", *options)
    assert (outcome.code, outcome.out.splitlines()) == (0, list(files.values()))
    assert all(f"{wheel.requirement} ({wheel.megabytes} MB, {wheel.licence})" in outcome.err for wheel in wheels()[:2])
    assert command("models", *options, "--json").json == {"fetched": files}


def test_names_nobody_knows_are_refused_before_anything_is_fetched(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "fetch", lambda wheel: pytest.fail("fetched"))
    outcome = command("models", "--fetch", "rxnmapper", "--fetch", "rxnmaper")
    assert outcome.is_refusal("unknown package with a model 'rxnmaper'", "rxnmapper")


def test_a_download_that_fails_is_one_sentence(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(wheel: Wheel) -> Path:
        raise ModelError(f"pip could not download {wheel.requirement}")

    monkeypatch.setattr(fetching, "fetch", fail)
    outcome = command("models", "--fetch", "rxnfp")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.splitlines()[-1] == "tabes: pip could not download rxnfp==0.0.9"
