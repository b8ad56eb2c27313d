from __future__ import annotations

import pytest

from tabes.errors import UnknownNameError, UsageError
from tabes.tasks import TASKS, SudokuTask, Task
from tabes.tasks.sudoku import count_solutions, from_text

ITEMS = SudokuTask(clues=40).items(3, seed=1)


def test_tasks_are_built_by_name() -> None:
    task: Task = TASKS.build("sudoku", clues=28)
    assert task == SudokuTask(28)
    assert all(TASKS.find(name).name == name for name in TASKS.names())
    with pytest.raises(UnknownNameError, match="did you mean sudoku"):
        TASKS.build("sudokus")


def test_items_are_puzzles_with_their_only_solution() -> None:
    for item in ITEMS:
        assert len(item.prompt) - item.prompt.count(".") == 40
        assert count_solutions(from_text(item.prompt)[None]).tolist() == [1]
        assert all(given in (".", digit) for given, digit in zip(item.prompt, item.answer, strict=True))


def test_equal_arguments_give_equal_items() -> None:
    assert SudokuTask(clues=40).items(2, seed=1) == ITEMS[:2]
    assert SudokuTask(clues=40).items(2, seed=2) != ITEMS[:2]


def test_scores() -> None:
    task, item = SudokuTask(clues=40), ITEMS[0]
    blank = item.prompt.index(".")
    wrong = item.answer[:blank] + str(int(item.answer[blank]) % 9 + 1) + item.answer[blank + 1 :]
    assert task.score(item, item.answer) == {"solved": 1.0, "cells_right": 1.0}
    assert task.score(item, wrong) == {"solved": 0.0, "cells_right": pytest.approx(40 / 41)}
    assert task.score(item, item.answer[:-1]) == {"solved": 0.0, "cells_right": 0.0}
    assert tuple(task.score(item, wrong)) == task.metrics


@pytest.mark.parametrize("clues", [3, 82, "many", 30.5])
def test_clues_nobody_can_give_are_refused(clues: int) -> None:
    with pytest.raises(UsageError, match="task 'sudoku'"):
        SudokuTask(clues).items(1, 0)
