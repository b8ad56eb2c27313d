"""A toy of each kind of part the package has a place for and does not fill yet, as their authors would write them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas, Move
from tabes.parts import Proposal, Ranked, Ranking, Reviser, Revision
from tabes.prediction import Prediction
from tabes.view import View


@dataclass(frozen=True)
class Seen(Batched):
    """Confidence of every row at the step before (0 before the first)."""

    confidence_BL: Tensor


@dataclass(frozen=True)
class Rising(Ranking):
    """A ranking with a state: the rows whose confidence rose most since the last step come first."""

    statistics: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def init(self, canvas: Canvas) -> Seen:
        return Seen(torch.zeros(canvas.tokens_BL.shape))

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Seen) -> tuple[Tensor, Seen]:
        return prediction.confidence_BL - state.confidence_BL, Seen(prediction.confidence_BL)


@dataclass(frozen=True)
class TakeBackLeastCertain(Reviser):
    """A reviser: masks again the written row whose token is least probable now."""

    count: int = 1
    statistics: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def rows(self, view: View) -> Tensor:
        canvas = view.canvas
        return canvas.writable_BL & ~canvas.masked_BL & (canvas.block_BL == canvas.block_B[:, None])

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: Any) -> tuple[Revision, Any]:
        written_BL = self.rows(view)
        uncertain_BL = torch.where(written_BL, -ranked.prediction.confidence_BL, -torch.inf)
        rank_BL = uncertain_BL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        return Revision(written_BL & (rank_BL < self.count)), state


@dataclass(frozen=True)
class Clock(Batched):
    """How many steps a batch row has taken."""

    ticks_B: Tensor


@dataclass(frozen=True)
class Coins:
    """A kernel: every mask is revealed by its own coin, and one step comes after the last mask."""

    steps: int = 6
    revises: ClassVar[bool] = False

    def init(self, canvas: Canvas) -> Clock:
        return Clock(torch.zeros(canvas.tokens_BL.shape[0], dtype=torch.int64))

    def step(self, view: View, state: Clock) -> tuple[Move, Clock]:
        prediction = view.predict(view.canvas.open_BL)
        ticks_B = state.ticks_B + 1
        share_B = 1 / (self.steps - state.ticks_B).clamp(min=1)
        write_BL = view.canvas.open_BL & (view.uniform("coin") < share_B[:, None])
        left_B = (view.canvas.masked_BL & ~write_BL).any(1)
        move = Move(write_BL, prediction.top_token_BL, done_B=(ticks_B > self.steps) & ~left_B)
        return move, replace(state, ticks_B=ticks_B)
