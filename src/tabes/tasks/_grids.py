"""Complete 9x9 Sudoku grids from a randomised solver, thousands in lockstep, and the exact solver beside it.

A cell's candidates are nine bits of a `uint16` (bit `d - 1` for digit `d`). A batch of N half-filled grids is a
`(9, 9, N)` array, cells first, so that one *round* of constraint propagation is a handful of contiguous array
operations over the whole batch; that layout is what makes plain numpy fast enough. Nothing here permutes a stored grid:
relabelling and shuffling a few seeds reaches only a sliver of all grids, and a model can learn that sliver by heart.

Legend: N grids, R rows (9), C columns (9), P cells in reading order (81).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Masks = NDArray[np.uint16]
Digits = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Index = NDArray[np.intp]

CHUNK: Final = 2048
"""Grids are drawn in chunks of this size, each from its own stream, so that a longer request extends a shorter one."""

_STACK_TOP: Final = 512  # states propagated together while counting solutions: wide enough to vectorise, no wider
_STREAM: Final = 0x5D0C  # separates this module's randomness from other uses of the same seed
_ALL: Final = np.uint16(0b111111111)
_ONE: Final = np.uint16(1)
_POPCOUNT: Final = np.array([mask.bit_count() for mask in range(512)], dtype=np.uint8)
_DIGIT: Final = np.array([mask.bit_length() for mask in range(512)], dtype=np.uint8)
_BIT: Final = np.array([_ALL, *(1 << digit for digit in range(9))], dtype=np.uint16)
_KTH_BIT: Final = np.array(  # the k-th lowest candidate of a mask, 0 where there are fewer
    [([1 << d for d in range(9) if mask >> d & 1] + [0] * 9)[:9] for mask in range(512)], dtype=np.uint16
)


def random_chunk(seed: int, index: int) -> Digits:
    """Chunk `index` of the endless stream of grids that `seed` stands for, (CHUNK, 81).

    Guess, propagate, start over on a contradiction, until every slot holds a complete grid. Every slot repeats until it
    succeeds, so grids that take long are not lost and the order carries no information.
    """
    rng = np.random.default_rng([_STREAM, seed, index])
    grids = np.zeros((CHUNK, 81), dtype=np.uint8)
    slots = np.arange(CHUNK)
    masks_RCN = np.full((9, 9, CHUNK), _ALL, dtype=np.uint16)
    while len(slots):
        after_RCN, broken_N = _propagate(masks_RCN)
        stuck_N = (after_RCN == masks_RCN).all(axis=(0, 1)) & ~broken_N
        masks_RCN = after_RCN
        masks_RCN[:, :, broken_N] = _ALL
        complete_N = np.zeros(len(slots), dtype=np.bool_)
        complete_N[stuck_N] = _is_complete(masks_RCN[:, :, stuck_N])
        _guess(masks_RCN, np.flatnonzero(stuck_N & ~complete_N), rng)
        if complete_N.any():
            grids[slots[complete_N]] = _DIGIT[masks_RCN[:, :, complete_N]].reshape(81, -1).T
            masks_RCN, slots = masks_RCN[:, :, ~complete_N], slots[~complete_N]
    return grids


def count_solutions(givens_NP: Digits, limit: int = 2) -> NDArray[np.int64]:
    """How many completions each puzzle has (0 = blank), exactly, counting no further than `limit`.

    Depth first, the whole batch at once: a stack of half-filled grids whose top is propagated together.
    """
    counts = np.zeros(len(givens_NP), dtype=np.int64)
    owners = np.arange(len(givens_NP))
    masks = _BIT[givens_NP].T.reshape(9, 9, -1)
    while len(owners):
        rest = max(0, len(owners) - _STACK_TOP)
        rest_owners, rest_masks = owners[:rest], masks[:, :, :rest]
        top = np.flatnonzero(counts[owners[rest:]] < limit) + rest
        owners, masks = owners[top], masks[:, :, top]
        after, broken = _propagate(masks)
        moved = (after != masks).any(axis=(0, 1)) & ~broken
        complete = _is_complete(after) & ~moved & ~broken
        np.add.at(counts, owners[complete], 1)
        parents = np.flatnonzero(~(moved | broken | complete))
        parent, children = _branch(after[:, :, parents])
        owners = np.concatenate([rest_owners, owners[moved], owners[parents[parent]]])
        masks = np.concatenate([rest_masks, after[:, :, moved], children], axis=2)
    return np.minimum(counts, limit)


def _propagate(masks_RCN: Masks) -> tuple[Masks, Flags]:
    """One round of naked, then hidden singles: the smaller candidate masks, and which grids are contradictory."""
    single = _all_bits((masks_RCN & (masks_RCN - _ONE)) == 0)
    settled = masks_RCN & single
    broken_N = np.zeros(masks_RCN.shape[2], dtype=np.bool_)
    taken = np.zeros_like(masks_RCN)
    for unit in range(3):
        seen, twice = _once_and_twice(settled, unit)
        broken_N |= twice.any(axis=(0, 1))
        _view(taken, unit)[:] |= seen
    after = masks_RCN & (single | ~taken)
    hidden = np.zeros_like(masks_RCN)
    for unit in range(3):
        seen, twice = _once_and_twice(after, unit)
        broken_N |= (seen != _ALL).any(axis=(0, 1))
        _view(hidden, unit)[:] |= seen & ~twice
    hidden &= after
    after = hidden | (after & _all_bits(hidden == 0))
    return after, broken_N | (after == 0).any(axis=(0, 1))


def _all_bits(flags: Flags) -> Masks:
    """Every bit set where `flags` holds: selecting by `&` is several times faster here than `np.where`."""
    bits: Masks = -flags.astype(np.uint16)
    return bits


def _view(masks_RCN: Masks, unit: int) -> Masks:
    """The batch as (3, 3 cells of a unit; 3, 3 units; N), for rows (0), columns (1) or boxes (2); never a copy."""
    boxes = masks_RCN.reshape(3, 3, 3, 3, -1)  # band, row in band, stack, column in stack
    order = ((2, 3, 0, 1, 4), (0, 1, 2, 3, 4), (1, 3, 0, 2, 4))[unit]
    return boxes.transpose(order)


def _once_and_twice(masks_RCN: Masks, unit: int) -> tuple[Masks, Masks]:
    """Per unit (3, 3, N): the candidates seen in some cell, and those seen in more than one."""
    cells = _view(masks_RCN, unit)
    seen = np.zeros(cells.shape[2:], dtype=np.uint16)
    twice = np.zeros_like(seen)
    for first in range(3):
        for second in range(3):
            cell = cells[first, second]
            twice |= seen & cell
            seen |= cell
    return seen, twice


def _is_complete(masks_RCN: Masks) -> Flags:
    done: Flags = ((masks_RCN & (masks_RCN - _ONE)) == 0).all(axis=(0, 1))
    return done


def _tightest_cell(masks_PN: Masks, tie_PN: NDArray[np.uint8]) -> Index:
    """The unsettled cell with the fewest candidates of each grid, ties broken by `tie_PN`."""
    count = _POPCOUNT[masks_PN].astype(np.uint16)
    count[count == 1] = 255
    tightest: Index = (count * np.uint16(256) + tie_PN).argmin(axis=0)
    return tightest


def _guess(masks_RCN: Masks, rows: Index, rng: np.random.Generator) -> None:
    """Settle the most constrained cell of the grids `rows` to a random candidate, in place."""
    masks_PN = masks_RCN.reshape(81, -1)
    cells = _tightest_cell(masks_PN[:, rows], rng.integers(0, 256, (81, len(rows)), dtype=np.uint8))
    options = masks_PN[cells, rows]
    nth = (rng.random(len(rows)) * _POPCOUNT[options]).astype(np.intp)
    masks_PN[cells, rows] = _KTH_BIT[options, nth]


def _branch(masks_RCN: Masks) -> tuple[Index, Masks]:
    """Every way to settle the most constrained cell of each grid: (which grid each child comes from, the children)."""
    masks_PN = masks_RCN.reshape(81, -1)
    cells = _tightest_cell(masks_PN, np.zeros(masks_PN.shape, dtype=np.uint8))
    options = masks_PN[cells, np.arange(masks_PN.shape[1])]
    parent, nth = np.nonzero(_KTH_BIT[options])
    children = masks_PN[:, parent]
    children[cells[parent], np.arange(len(parent))] = _KTH_BIT[options[parent], nth]
    return parent, children.reshape(9, 9, -1)
