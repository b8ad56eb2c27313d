"""Expected violations of the rules of Sudoku, by counting and by enumeration."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from tabes.tasks.sudoku import grids
from tabes.tasks.sudoku_rules import expected_violations


def test_a_solved_grid_breaks_no_rule() -> None:
    grids_NP = torch.from_numpy(grids(8, seed=0)).long()
    p_BLV = torch.nn.functional.one_hot(grids_NP, 12).double()
    assert not expected_violations(p_BLV).any()
    broken_NP = grids_NP.clone()
    broken_NP[:, 40] = broken_NP[:, 40] % 9 + 1  # meets its digit's place in a row, a column and a box
    found_N = expected_violations(torch.nn.functional.one_hot(broken_NP, 12).double())
    assert found_N.tolist() == [violations(grid) for grid in broken_NP.tolist()]
    assert found_N.min() >= 2


def violations(grid: list[int]) -> int:
    """Pairs of equal digits that see each other, once for every unit they share."""
    count = 0
    for a, b in product(range(81), repeat=2):
        if a < b and grid[a] == grid[b]:
            count += (a // 9 == b // 9) + (a % 9 == b % 9) + (a // 27 == b // 27 and a % 9 // 3 == b % 9 // 3)
    return count


def test_the_expectation_is_that_over_independent_cells() -> None:
    """Three cells of two digits each, enumerated."""
    (grid_P,) = torch.from_numpy(grids(1, seed=3)).long()
    p_PV = torch.nn.functional.one_hot(grid_P, 12).double()
    choices = {0: ((1, 0.3), (2, 0.7)), 1: ((1, 0.6), (5, 0.4)), 40: ((1, 0.5), (9, 0.5))}
    for cell, digits in choices.items():
        p_PV[cell] = 0
        for digit, p in digits:
            p_PV[cell, digit] = p
    expected = 0.0
    for drawn in product(*choices.values()):
        grid, share = grid_P.tolist(), 1.0
        for cell, (digit, p) in zip(choices, drawn, strict=True):
            grid[cell], share = digit, share * p
        expected += share * violations(grid)
    assert float(expected_violations(p_PV[None])) == pytest.approx(expected)
