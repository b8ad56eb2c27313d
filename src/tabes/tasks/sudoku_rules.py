"""The rules of Sudoku as a verifier: how often a relaxed grid is expected to break them.

    violations = sum over units u and digits d of sum over pairs i < j in u of p_i(d) p_j(d)

0 exactly for a solved grid; differentiable, so steering can follow it (`tabes.steering.Verifier`).
Shapes: B grids, L = 81 cells, V vocabulary of the bundled model (digits are their own ids), U = 27 units of 9 cells.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["expected_violations"]


def _units() -> Tensor:
    grid = torch.arange(81).view(9, 9)
    boxes = grid.view(3, 3, 3, 3).transpose(1, 2).reshape(9, 9)
    return torch.cat([grid, grid.T, boxes])


_UNITS_U9 = _units()


def expected_violations(p_BLV: Tensor) -> Tensor:
    """(B,)."""
    p_BUCD = p_BLV[:, _UNITS_U9.to(p_BLV.device), 1:10]
    pairs_BUD = (p_BUCD.sum(2) ** 2 - (p_BUCD**2).sum(2)) / 2
    return pairs_BUD.sum((1, 2))
