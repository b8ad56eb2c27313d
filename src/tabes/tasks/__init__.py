"""Puzzles and benchmarks: prompts and scoring."""

from tabes.tasks.base import TASKS, Item, Task
from tabes.tasks.sudoku_task import SudokuTask

__all__ = ["TASKS", "Item", "SudokuTask", "Task"]
