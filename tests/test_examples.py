"""The examples run as their docstrings say."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
PUZZLE = "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert PUZZLE in path.read_text()
    monkeypatch.setattr(sys, "argv", [path.name, "sudoku", PUZZLE])
    runpy.run_path(str(path), run_name="__main__")
    answer = capsys.readouterr().out.strip().splitlines()[-1].split()[-1]
    assert len(answer) == 81
    assert all(given in (".", digit) for given, digit in zip(PUZZLE, answer, strict=True))
