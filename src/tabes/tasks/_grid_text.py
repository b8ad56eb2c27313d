"""Sudoku grids as text: 81 characters for machines, eleven lines with box lines for people."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tabes.errors import UsageError
from tabes.tasks._grids import Digits

__all__ = ["from_text", "render", "to_text"]


def to_text(grid_P: NDArray[np.integer]) -> str:
    """81 characters in reading order, `.` for a blank."""
    return "".join(str(int(digit)) if 1 <= digit <= 9 else "." for digit in grid_P.reshape(-1))


def from_text(text: str) -> Digits:
    """One grid from its 81 digits; `.` or `0` is a blank, spaces and box lines are skipped."""
    cells = [character for character in text if character not in " \t\r\n|-+"]
    wrong = sorted({cell for cell in cells if cell not in ".0123456789"})
    if wrong:
        raise UsageError(f"a grid has digits and '.' only, not {''.join(wrong)!r}")
    if len(cells) != 81:
        raise UsageError(f"a grid has 81 cells, this text has {len(cells)}")
    return np.array([0 if cell == "." else int(cell) for cell in cells], dtype=np.uint8)


def render(grid_P: NDArray[np.integer], blank: str = ".") -> str:
    """A grid for the terminal: eleven lines with box lines, `blank` where there is no digit yet."""
    cells = [str(int(digit)) if 1 <= digit <= 9 else blank for digit in grid_P.reshape(-1)]
    lines = [
        " | ".join(" ".join(cells[row * 9 + stack * 3 : row * 9 + stack * 3 + 3]) for stack in range(3))
        for row in range(9)
    ]
    rule = "------+-------+------"
    return "\n".join([*lines[:3], rule, *lines[3:6], rule, *lines[6:]])
