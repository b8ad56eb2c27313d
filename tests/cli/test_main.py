from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tabes
import tabes.cli._catalogue_page  # first imported by a test below, it would keep what that one patches
from tabes import cli
from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]
VERBS = ("generate", "compare", "fidelity", "train", "samplers", "models", "frequencies", "demo")


def test_help_names_every_verb_and_is_light() -> None:
    program = (
        "import sys, tabes.cli; code = tabes.cli.main(['--help']); "
        "heavy = {'torch', 'transformers', 'matplotlib', 'numpy'} & sys.modules.keys(); "
        "sys.exit(f'{heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_with_an_example(command: Command, verb: str) -> None:
    outcome = command(verb, "--help")
    assert outcome.code == 0 and outcome.err == ""
    assert "--json" in outcome.out and "  tabes " in outcome.out


def test_version(command: Command) -> None:
    assert command("--version") == Outcome(0, f"tabes {tabes.__version__}\n", "")


def test_no_verb_shows_the_help(command: Command) -> None:
    outcome = command()
    assert outcome.code == 2 and "generate" in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (KeyboardInterrupt(), 130, ""),
        (OSError(28, "No space left on device"), 1, "No space left"),
        (MemoryError("too much"), 1, "too much"),
        (tabes.TabesError("two\nlines"), 2, "tabes: two lines\n"),
    ],
)
def test_how_a_verb_may_end(
    command: Command, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, words: str
) -> None:
    def fail(*arguments: object) -> None:
        raise raised

    monkeypatch.setattr("tabes.cli._catalogue.rules", fail)
    outcome = command("samplers")
    assert (outcome.code, outcome.out) == (code, "")
    assert words in outcome.err and (words or not outcome.err)
    assert len(outcome.err.splitlines()) <= 1


def test_a_defect_is_not_hidden(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr("tabes.cli._catalogue.rules", fail)
    with pytest.raises(AssertionError, match="a defect"):
        cli.main(["samplers"])


def test_unwritable_output_is_a_failure_not_bad_usage(command: Command, sudoku: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "rows.jsonl"
    outcome = command("compare", "--model", sudoku, "--items", 1, "--clues", 70, "--samplers", "margin", "--out", out)
    assert outcome.code == 1 and "file" in outcome.err and "Traceback" not in outcome.err
