"""A fixed number of tokens at every step, as many steps as that takes.

    count = k

k = 1 is `even` with a step for every mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.parts import BUDGETS, CountBudget
from tabes.settings import setting
from tabes.view import View

__all__ = ["TokensPerStep"]


@BUDGETS.register("tokens_per_step")
@dataclass(frozen=True)
class TokensPerStep(CountBudget):
    """`tokens_per_step` rows written at every step of every batch row."""

    tokens_per_step: int = setting(1, "rows written at every step", least=1, whole=True)

    def counts(self, view: View, state: Any) -> tuple[Tensor, Any]:
        return torch.full_like(view.canvas.block_B, self.tokens_per_step), state
