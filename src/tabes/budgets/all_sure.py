"""Everything that is open at once where all of it is sure, else as many rows as ever (the bypass of arXiv 2602.18176).

    write all open rows if min_i max_v p_i(v) >= sure, else as `even` or `tokens_per_step` do

Reduces to these where `sure` is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from tabes.budgets.blocks import num_steps_setting
from tabes.budgets.even import Even
from tabes.budgets.tokens_per_step import TokensPerStep
from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.parts import BUDGETS, Budget, CountBudget, Proposal, Ranked
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["AllSure"]


@BUDGETS.register("all_sure")
@dataclass(frozen=True)
class AllSure(Budget):
    """`num_steps` or `tokens_per_step` until what is left is `sure`."""

    num_steps: int | None = num_steps_setting()
    tokens_per_step: int | None = setting(None, "rows written at every step", least=1, whole=True)
    sure: float | None = setting(
        0.8, "where every open row is this sure all are written; none: never", least=0, most=1, or_none=True
    )
    statistics: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_steps is not None and self.tokens_per_step is not None:
            raise UsageError("num_steps and tokens_per_step exclude each other; give one")

    @cached_property
    def _usual(self) -> CountBudget:
        return Even(self.num_steps) if self.tokens_per_step is None else TokensPerStep(self.tokens_per_step)

    def init(self, canvas: Canvas) -> Any:
        return self._usual.init(canvas)

    def expected(self, view: View, state: Any) -> Tensor:
        return self._usual.expected(view, state)

    def progress(self, view: View, state: Any) -> Tensor:
        return self._usual.progress(view, state)

    def foresee(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> Tensor:
        open_BL = view.canvas.open_BL
        return torch.where(self._all_sure(prediction, open_BL), open_BL.sum(1), self.expected(view, state))

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        write_BL, state = self._usual.cut(view, ranked, taken_B, state)
        return write_BL | self._all_sure(ranked.prediction, ranked.open_BL)[:, None], state

    def _all_sure(self, prediction: Prediction, open_BL: Tensor) -> Tensor:
        """(B,): whether the top tokens of all open rows are probable enough."""
        if self.sure is None:
            return torch.zeros_like(open_BL[:, 0])
        return (~open_BL | (prediction.confidence_BL >= self.sure)).all(1)
