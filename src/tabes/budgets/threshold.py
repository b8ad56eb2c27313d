"""As many rows as are sure enough (Fast-dLLM, arXiv 2505.22618).

    write every open row with p_i(v_i) >= threshold, and the first of the ranking's order in any case

with v_i the proposed token and p_i the model's own distribution. With a threshold of 0 everything open is written at
once; with one above 1 the rule is `tokens_per_step` with one token. (dInfer lowers the threshold to 1e-5 below the most
confident row instead of naming one row: the same unless two rows are that close.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tabes.budgets.adaptive import Adaptive
from tabes.parts import BUDGETS, Ranked
from tabes.settings import setting
from tabes.view import View

__all__ = ["Threshold"]


@BUDGETS.register("threshold")
@dataclass(frozen=True)
class Threshold(Adaptive):
    """Every row whose proposed token has at least this probability."""

    threshold: float = setting(0.9, "the least confidence of the rows written; above 1: one row at a step", least=0)
    strict: bool = setting(False, "whether rows exactly at the threshold are left out", choices=(False, True))

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        confidence_BL = ranked.proposal.confidence_BL(ranked.prediction)
        sure_BL = confidence_BL > self.threshold if self.strict else confidence_BL >= self.threshold
        return ranked.open_BL & (sure_BL | (ranked.rank_BL == 0)), state
