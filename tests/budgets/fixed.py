"""Predictions with given distributions, and what a budget cuts of them: no network involved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes import Canvas
from tabes.parts import Budget, Proposal, Ranked, Ranking, ranked
from tabes.prediction import Prediction
from tabes.randomness import Randomness
from tabes.rankings import Confidence
from tabes.statistics import IMPOSSIBLE
from tabes.view import View

MASK = 5


@dataclass(frozen=True)
class Fixed:
    """Logits that are known."""

    logits_NV: Tensor

    @property
    def vocab_size(self) -> int:
        return self.logits_NV.shape[1]

    def __len__(self) -> int:
        return self.logits_NV.shape[0]

    def pick(self, index_M: Tensor) -> Fixed:
        return Fixed(self.logits_NV[index_M])

    def logits(self, rows: slice) -> Tensor:
        return self.logits_NV[rows].clone()


def canvas_of(masks: int, block_length: int | None = None) -> Canvas:
    return Canvas.create(torch.ones(1, 2).long(), mask_id=MASK, max_new_tokens=masks, block_length=block_length)


def prediction_of(canvas: Canvas, probabilities: Sequence[Sequence[float]] | Tensor) -> Prediction:
    """One distribution over five tokens for every masked row; the mask cannot come."""
    p_NV = torch.as_tensor(probabilities, dtype=torch.float32)
    logits_NV = torch.cat([p_NV.log().clamp(min=IMPOSSIBLE), torch.zeros(len(p_NV), 1)], 1)
    return Prediction(canvas.masked_BL, Fixed(logits_NV), (MASK,))


def of_confidence(confidences: Sequence[float]) -> list[list[float]]:
    """Distributions whose best tokens have these probabilities."""
    return [[c, *[(1 - c) / 4] * 4] for c in confidences]


def view_of(canvas: Canvas, step: int = 0) -> View:
    return View(canvas, None, step, Randomness.create(0, 1, torch.device("cpu")))  # type: ignore[arg-type]


def order_of(view: View, prediction: Prediction, ranking: Ranking | None = None) -> Ranked:
    proposal = Proposal(prediction.top_token_BL, prediction.top_logit_BL)
    scores_BL = (ranking or Confidence()).scores(view, prediction, proposal)
    return ranked(view.canvas.open_BL, scores_BL, prediction, proposal)


def written(
    budget: Budget, probabilities: Sequence[Sequence[float]] | Tensor, ranking: Ranking | None = None
) -> list[int]:
    """Which of the rows, counted from the first mask, the budget would write at its first step."""
    canvas = canvas_of(len(probabilities))
    view, state = view_of(canvas), budget.init(canvas)
    order = order_of(view, prediction_of(canvas, probabilities), ranking)
    write_BL = cut(budget, view, order, state)
    return [at - 2 for at in write_BL[0].nonzero().flatten().tolist()]


def cut(budget: Budget, view: View, order: Ranked, state: Any) -> Tensor:
    return budget.cut(view, order, torch.zeros_like(view.canvas.block_B), state)[0]
