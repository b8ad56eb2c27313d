"""What a benchmark needs of a task: prompts to decode, and what the decoded text is worth. Tasks by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tabes.registry import Registry

__all__ = ["TASKS", "Item", "Task"]


@dataclass(frozen=True)
class Item:
    """One thing to decode. `answer` is whatever the task's `score` compares with."""

    prompt: str
    answer: Any


class Task(Protocol):
    """Items and their scores. A task is a frozen dataclass; its fields are its parameters.

    Attributes:
        name: As it is registered.
        metrics: Names of the scores, each between 0 and 1, the headline first.
        max_new_tokens: Holes added behind every prompt; 0 when the holes are inside it.
        stop: Stop strings.
    """

    name: ClassVar[str]
    metrics: ClassVar[tuple[str, ...]]
    max_new_tokens: ClassVar[int]
    stop: ClassVar[tuple[str, ...]]

    def items(self, count: int, seed: int) -> Sequence[Item]:
        """`count` items; equal arguments give equal items, and a larger count begins with those of a smaller one."""

    def score(self, item: Item, text: str) -> dict[str, float]:
        """Every metric of one decoded text, as `tabes.generate` returns it."""


TASKS: Registry[Task] = Registry("task")
