"""All rows above a threshold if they fill the quota, else the quota (LLaDA2.0's block sampler, arXiv 2512.15745).

    write {i : p_i(v_i) > threshold} if these are at least q_s rows, else the first q_s of the ranking's order

with q_s the block's masks split evenly over its steps, as fixed when the block starts: a fast step makes no later one
slower, the block ends early. Reduces to `even` with a threshold of 1, and to `threshold` (strict) with a quota of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.budgets.adaptive import Scheduled
from tabes.budgets.blocks import BlockClock
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, Ranked
from tabes.settings import setting
from tabes.view import View

__all__ = ["Quota"]


@BUDGETS.register("quota")
@dataclass(frozen=True)
class Quota(Scheduled):
    """At least what is due, and more where more rows are sure."""

    threshold: float = setting(0.95, "rows above this confidence are written beyond the quota", least=0)

    def init(self, canvas: Canvas) -> BlockClock:
        return self.clock(canvas)

    def expected(self, view: View, state: BlockClock) -> Tensor:
        return self.due(view.canvas, state)

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: BlockClock) -> tuple[Tensor, BlockClock]:
        due_B = self.due(view.canvas, state)
        sure_BL = ranked.open_BL & (ranked.proposal.confidence_BL(ranked.prediction) > self.threshold)
        enough_B = sure_BL.sum(1) >= due_B
        write_BL = torch.where(enough_B[:, None], sure_BL, ranked.open_BL & (ranked.rank_BL < due_B[:, None]))
        return write_BL, state.tick(view.canvas)
