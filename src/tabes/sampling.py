"""Samplers: what the loop needs (`init`, `step`), and the usual one made of four parts.

writer proposes a token for every row read -> ranking orders them -> reviser takes some back -> budget cuts the order.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, Protocol

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas, Move
from tabes.parts import Budget, Part, Ranked, Ranking, Reviser, Writer, ranked
from tabes.view import View

__all__ = ["PartSampler", "PartState", "Sampler"]


class Sampler(Protocol):
    """All that the loop knows of a decoding rule. Pure: what it remembers is in the state it hands back."""

    @property
    def revises(self) -> bool:
        """Whether a written token may change later (streamers then wait for the end)."""

    def init(self, canvas: Canvas) -> Any:
        """The state before the first step: a `Batched`, or None."""

    def step(self, view: View, state: Any) -> tuple[Move, Any]:
        """What to change on the canvas now, and the next state."""


@dataclass(frozen=True)
class PartState(Batched):
    """What the four parts remember."""

    ranking: Any
    budget: Any
    reviser: Any


@dataclass(frozen=True)
class PartSampler:
    """Any ranking with any budget, writer and reviser."""

    ranking: Ranking
    budget: Budget
    writer: Writer
    reviser: Reviser | None = None

    @property
    def revises(self) -> bool:
        return self.reviser is not None

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All of them, in the order in which they are asked."""
        return (self.writer, self.ranking, self.budget, *(() if self.reviser is None else (self.reviser,)))

    @cached_property
    def statistics(self) -> frozenset[str]:
        """What any part reads of a prediction."""
        return frozenset().union(*(part.statistics for part in self.parts))

    @cached_property
    def remembers(self) -> bool:
        """Whether any part replays rows."""
        return any(part.remembers for part in self.parts)

    def init(self, canvas: Canvas) -> PartState:
        reviser = None if self.reviser is None else self.reviser.init(canvas)
        return PartState(self.ranking.init(canvas), self.budget.init(canvas), reviser)

    def step(self, view: View, state: PartState) -> tuple[Move, PartState]:
        open_BL = view.canvas.open_BL
        rows_BL = reduce(or_, (part.rows(view) for part in self.parts), open_BL)
        prediction = view.predict(rows_BL, statistics=self.statistics, remember=self.remembers)
        proposal = self.writer.propose(view, prediction)
        proposal = replace(proposal, count_B=self.budget.expected(view, state.budget))
        scores_BL, ranking = self.ranking.rank(view, prediction, proposal, state.ranking)
        order = ranked(open_BL, scores_BL, prediction, proposal)
        write_BL, remask_BL, budget, reviser = self._cut(view, order, state)
        move = Move(write_BL, proposal.tokens_BL, remask_BL, order.scores_BL)
        return move, PartState(ranking, budget, reviser)

    def _cut(self, view: View, order: Ranked, state: PartState) -> tuple[Tensor, Tensor | None, Any, Any]:
        nothing_B = torch.zeros_like(view.canvas.block_B)
        write_BL, budget = self.budget.cut(view, order, nothing_B, state.budget)
        write_BL = write_BL & order.open_BL
        if self.reviser is None:
            return write_BL, None, budget, None
        remask_BL, reviser = self.reviser.revise(view, order, state.reviser)
        # The last step of a block is one too: taking back there would keep the block open for ever.
        last_B = (write_BL == order.open_BL).all(1)
        remask_BL = remask_BL & ~last_B[:, None]
        write_BL, budget = self.budget.cut(view, order, remask_BL.sum(1), state.budget)
        return write_BL & order.open_BL, remask_BL, budget, reviser
