"""9x9 Sudoku as a task: grids to train on, puzzles with one solution to decode, and what counts as solved.

Grids and puzzles are arrays of digits in reading order, (N, 81) `uint8`, 0 for a blank. Which split a grid belongs to
is decided by a hash of its digits, so no held-out grid can occur in training whatever the seeds are.

    >>> task = puzzles(count=64, clues=32, seed=0)
    >>> print(render(task.givens[0]))
    >>> solved(answers_NP, task).mean()
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count as count_from
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tabes.errors import UsageError
from tabes.tasks._grid_text import from_text, render, to_text
from tabes.tasks._grids import Digits, Flags, count_solutions, random_chunk

__all__ = [
    "Puzzles",
    "Split",
    "cells_right",
    "count_solutions",
    "from_text",
    "grid_stream",
    "grids",
    "puzzles",
    "render",
    "solved",
    "split_mask",
    "to_text",
]

Split = Literal["train", "validation", "test"]

_BUCKETS: Final = 32
_HELD_OUT: Final[dict[str, int]] = {"test": 0, "validation": 1}
_PUZZLE_CHUNK: Final = 64  # puzzles dug together; a fixed number, so that asking for more only adds to the end
_DIG_STREAM: Final = 0xD16
_MIN_CLUES: Final = 22  # below this, digging a random grid down almost never succeeds


@dataclass(frozen=True)
class Puzzles:
    """Puzzles with exactly one solution each: `givens` (N, 81) with 0 for a blank, `solutions` (N, 81)."""

    givens: Digits
    solutions: Digits

    def __len__(self) -> int:
        return len(self.givens)

    @property
    def blanks(self) -> Flags:
        """Which cells are to be filled, (N, 81)."""
        blanks: Flags = self.givens == 0
        return blanks


def split_mask(grids_NP: Digits, split: Split) -> Flags:
    """Which grids belong to `split`: 1 in 32 is test, 1 in 32 validation, the rest train."""
    if split not in ("train", *_HELD_OUT):
        raise UsageError(f"split is {split!r}; it must be 'train', 'validation' or 'test'")
    bucket_N = _hash(grids_NP) % np.uint64(_BUCKETS)
    if split == "train":
        return np.isin(bucket_N, np.array(list(_HELD_OUT.values()), dtype=np.uint64), invert=True)
    chosen: Flags = bucket_N == np.uint64(_HELD_OUT[split])
    return chosen


def grid_stream(seed: int, split: Split, start: int = 0) -> Iterator[Digits]:
    """The endless stream of grids of one split, a chunk at a time, from chunk `start` on."""
    for index in count_from(start):
        chunk = random_chunk(seed, index)
        yield chunk[split_mask(chunk, split)]


def grids(count: int, seed: int, split: Split = "train") -> Digits:
    """The first `count` complete grids of a split, (count, 81)."""
    found, stream = [_no_grids()], grid_stream(seed, split)
    while sum(map(len, found)) < count:
        found.append(next(stream))
    return np.concatenate(found)[:count]


def puzzles(count: int, clues: int, seed: int, split: Split = "test") -> Puzzles:
    """`count` puzzles with exactly `clues` givens and exactly one solution (checked by exhaustive search).

    Made by digging: cells of a complete grid are blanked in random order, and a blank that would allow a second
    solution is put back. A grid that cannot be dug down to `clues` is dropped. Equal arguments give equal puzzles, and
    a larger `count` begins with the puzzles of a smaller one.
    """
    if count < 0 or seed < 0:
        raise UsageError(f"count is {count} and seed {seed}; both must be at least 0")
    if not _MIN_CLUES <= clues <= 81:
        raise UsageError(f"clues is {clues}; it must be between {_MIN_CLUES} and 81")
    givens, solutions, batches = [_no_grids()], [_no_grids()], count_from(0)
    stream, pending = grid_stream(seed, split), _no_grids()
    while sum(map(len, givens)) < count:
        while len(pending) < _PUZZLE_CHUNK:
            pending = np.concatenate([pending, next(stream)])
        full, pending = pending[:_PUZZLE_CHUNK], pending[_PUZZLE_CHUNK:]
        dug = _dig(full, clues, np.random.default_rng([_DIG_STREAM, seed, clues, next(batches)]))
        enough = (dug != 0).sum(axis=1) == clues
        givens.append(dug[enough])
        solutions.append(full[enough])
    return Puzzles(np.concatenate(givens)[:count], np.concatenate(solutions)[:count])


def _no_grids() -> Digits:
    return np.zeros((0, 81), dtype=np.uint8)


def _dig(full_NP: Digits, clues: int, rng: np.random.Generator) -> Digits:
    """Blank cells in a random order, each only if the solution stays unique, until `clues` are left."""
    givens = full_NP.copy()
    order = rng.permuted(np.tile(np.arange(81), (len(full_NP), 1)), axis=1)
    for turn in range(81):
        rows = np.flatnonzero((givens != 0).sum(axis=1) > clues)
        if not len(rows):
            break
        trial = givens[rows]
        trial[np.arange(len(rows)), order[rows, turn]] = 0
        unique = count_solutions(trial) == 1
        givens[rows[unique]] = trial[unique]
    return givens


def solved(answers_NP: NDArray[np.integer], task: Puzzles) -> Flags:
    """Which puzzles are completely right, (N,). The solution is unique, so right means equal to it."""
    return np.asarray((_checked(answers_NP, task) == task.solutions).all(axis=1))


def cells_right(answers_NP: NDArray[np.integer], task: Puzzles) -> NDArray[np.float64]:
    """The share of each puzzle's blanks that got the right digit, (N,); 1 where there was no blank."""
    right = ((_checked(answers_NP, task) == task.solutions) & task.blanks).sum(axis=1)
    blanks = task.blanks.sum(axis=1)
    return np.where(blanks == 0, 1.0, right / np.maximum(blanks, 1))


def _checked(answers_NP: NDArray[np.integer], task: Puzzles) -> NDArray[np.integer]:
    if answers_NP.shape != task.solutions.shape:
        raise UsageError(f"answers have shape {answers_NP.shape}; the puzzles have {task.solutions.shape}")
    return answers_NP


def _hash(grids_NP: Digits) -> NDArray[np.uint64]:
    """A 64-bit hash of each grid that is the same on every machine: polynomial over the digits, then mixed."""
    value = np.zeros(len(grids_NP), dtype=np.uint64)
    for cell in range(grids_NP.shape[1]):
        value = value * np.uint64(0x9E3779B97F4A7C15) + grids_NP[:, cell].astype(np.uint64)
    value ^= value >> np.uint64(29)
    value *= np.uint64(0xBF58476D1CE4E5B9)
    value ^= value >> np.uint64(32)
    return value
