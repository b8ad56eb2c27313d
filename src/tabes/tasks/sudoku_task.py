"""9x9 Sudoku as a benchmark task: held-out puzzles with one solution; solved, and the share of blanks right."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from tabes.errors import UsageError
from tabes.tasks import sudoku
from tabes.tasks.base import TASKS, Item

__all__ = ["SudokuTask"]

# Digging takes a second or more, and a comparison asks for the same puzzles again and again.
_puzzles = lru_cache(maxsize=8)(sudoku.puzzles)


@TASKS.register("sudoku")
@dataclass(frozen=True)
class SudokuTask:
    """Puzzles with exactly `clues` givens, from the test split. An item's answer is its solution in 81 digits."""

    clues: int = 32

    name: ClassVar[str] = "sudoku"
    metrics: ClassVar[tuple[str, ...]] = ("solved", "cells_right")
    max_new_tokens: ClassVar[int] = 0
    stop: ClassVar[tuple[str, ...]] = ()

    def items(self, count: int, seed: int) -> tuple[Item, ...]:
        try:
            found = _puzzles(count, self.clues, seed)
        except (TypeError, ValueError) as error:
            raise UsageError(f"task 'sudoku': {error}") from None
        pairs = zip(found.givens, found.solutions, strict=True)
        return tuple(Item(sudoku.to_text(givens), sudoku.to_text(solution)) for givens, solution in pairs)

    def score(self, item: Item, text: str) -> dict[str, float]:
        """A text that is no grid (a model may write a token that is no digit) is wrong everywhere.

        Nothing is written for a puzzle without blanks, which leaves the puzzle itself.
        """
        try:
            answer_1P = sudoku.from_text(text or item.prompt)[None]
        except ValueError:
            return dict.fromkeys(self.metrics, 0.0)
        puzzle = sudoku.Puzzles(*(sudoku.from_text(grid)[None] for grid in (item.prompt, item.answer)))
        solved, right = sudoku.solved(answer_1P, puzzle), sudoku.cells_right(answer_1P, puzzle)
        return {"solved": float(np.all(solved)), "cells_right": float(right[0])}
