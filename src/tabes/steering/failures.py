"""Where numbers break: a batch row that gives NaN must not take the others along.

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tabes.errors import NumericsError
from tabes.steering.scene import Scene

__all__ = ["row_by_row"]

Drops = Callable[[Scene, Tensor], Tensor]


def row_by_row(drops: Drops, scene: Scene, candidates_BL: Tensor) -> Tensor:
    """(B, L): the drops of all batch rows at once; if that fails one by one, NaN at the candidates of the broken."""
    try:
        return drops(scene, candidates_BL)
    except NumericsError:
        batch = len(candidates_BL)
        if batch == 1:
            return torch.where(candidates_BL, torch.nan, 0.0)
    index_B = torch.arange(batch, device=candidates_BL.device)
    rows = [row_by_row(drops, scene.select(index_B == b), candidates_BL[b : b + 1]) for b in range(batch)]
    return torch.cat(rows)
