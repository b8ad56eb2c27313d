"""The examples run as their docstrings say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = [FOLDER / name for name in ("infill.py", "watch.py")]
PUZZLE = "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert PUZZLE in path.read_text()
    monkeypatch.setattr(sys, "argv", [path.name, "sudoku", PUZZLE])
    runpy.run_path(str(path), run_name="__main__")
    answer = capsys.readouterr().out.strip().splitlines()[-1].split()[-1]
    assert len(answer) == 81
    assert all(given in (".", digit) for given, digit in zip(PUZZLE, answer, strict=True))


def test_the_verifier_example_compares_on_the_same_puzzles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["verifier.py", "3"])
    runpy.run_path(str(FOLDER / "verifier.py"), run_name="__main__")
    plain, steered = capsys.readouterr().out.strip().splitlines()
    assert " of 3 solved" in plain
    assert " of 3 solved" in steered


def test_every_example_is_run_here() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == {path.name for path in EXAMPLES} | {"verifier.py"}
