"""Puzzles and benchmarks: prompts and scoring."""

from tabes.tasks.base import TASKS, Item, Task
from tabes.tasks.reactions import ReactionTask
from tabes.tasks.sudoku_task import SudokuTask

__all__ = ["TASKS", "Item", "ReactionTask", "SudokuTask", "Task"]
