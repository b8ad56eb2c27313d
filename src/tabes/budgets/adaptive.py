"""What adaptive budgets share: the order of the ranking place by place, its prefixes, and a schedule to fall back on.

Adaptive budgets ignore what a reviser takes back: the sampler itself sees to it that more is written than that.
Shapes: B batch rows, L canvas rows, R places of the order (as many as rows), the best first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.parts import Budget, Proposal, Ranked, ranked
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["Adaptive", "Scheduled", "in_order", "prefix"]


class Adaptive(Budget):
    """A budget that looks at the predictions, so what it will write is known only once they are made."""

    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def foresee(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> Tensor:
        """What it would write if the most confident rows came first, as they do where nothing is steered."""
        order = ranked(view.canvas.open_BL, proposal.confidence_BL(prediction), prediction, proposal)
        return self.cut(view, order, torch.zeros_like(view.canvas.block_B), state)[0].sum(1)


@dataclass(frozen=True)
class Scheduled(Adaptive):
    """One with a count of its own for steps in which too few rows pass: LLaDA's split, or a fixed number.

    n masks of a block over its S steps, the first n mod S one more; steps beyond these (after faster ones there are
    none) write as many as the last.
    """

    num_steps: int | None = num_steps_setting()
    tokens_per_step: int | None = setting(None, "rows written where too few pass", least=1, whole=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_steps is not None and self.tokens_per_step is not None:
            raise UsageError("num_steps and tokens_per_step exclude each other; give one")

    def clock(self, canvas: Canvas) -> BlockClock:
        """The steps of every block, none of them taken."""
        return BlockClock.create(canvas, self.num_steps)

    def due(self, canvas: Canvas, clock: BlockClock) -> Tensor:
        """The count (B,) of this step."""
        if self.tokens_per_step is not None:
            return torch.full_like(canvas.block_B, self.tokens_per_step)
        masks_B, steps_B, taken_B = clock.now(canvas)
        steps_B = steps_B.clamp(min=1)
        return (masks_B // steps_B + (taken_B < masks_B % steps_B)).clamp(min=1)


def in_order(ranked: Ranked, value_BL: Tensor) -> Tensor:
    """(B, R): the values of the rows, the best row's first; what stands behind the last open row means nothing."""
    return value_BL.gather(1, ranked.rank_BL.argsort(dim=1, stable=True))


def prefix(ranked: Ranked, fits_BR: Tensor) -> Tensor:
    """(B, L): the rows from the best on as long as every place fits; the best in any case."""
    count_B = fits_BR.long().cumprod(1).sum(1).clamp(min=1)
    return ranked.open_BL & (ranked.rank_BL < count_B[:, None])
