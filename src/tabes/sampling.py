"""Samplers: what the loop needs (`init`, `step`), and the usual one made of four parts.

writer proposes a token for every row read -> ranking orders them -> budget cuts the order -> reviser takes some back,
and the budget cuts anew with so many more.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any, Protocol

import torch
from torch import Tensor

from tabes.batched import Batched, where
from tabes.canvas import Canvas, Move
from tabes.parts import Budget, Part, Ranked, Ranking, Reviser, Revision, Writer, last_step, ranked
from tabes.prediction import Prediction
from tabes.registry import Registry
from tabes.view import View

__all__ = ["KERNELS", "PartSampler", "PartState", "Sampler"]


class Sampler(Protocol):
    """All that the loop knows of a decoding rule. Pure: what it remembers is in the state it hands back."""

    @property
    def revises(self) -> bool:
        """Whether a written token may change later (streamers then wait for the end)."""

    def init(self, canvas: Canvas) -> Any:
        """The state before the first step: a `Batched`, or None."""

    def step(self, view: View, state: Any) -> tuple[Move, Any]:
        """What to change on the canvas now, and the next state."""


KERNELS: Registry[Sampler] = Registry("kernel")
"""Whole transitions by name: samplers that are not made of the four parts."""


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
        prediction = self._predicted(view, state)
        proposal = self.writer.propose(view, prediction, self.ranking.reads)
        proposal = replace(
            proposal,
            count_B=self.budget.foresee(view, prediction, proposal, state.budget),
            progress_B=self.budget.progress(view, state.budget),
        )
        scores_BL, ranking = self.ranking.rank(view, prediction, proposal, state.ranking)
        order = ranked(view.canvas.open_BL, scores_BL, prediction, proposal)
        if self.reviser is None:
            write_BL, budget = self._cut(view, order, torch.zeros_like(view.canvas.block_B), state.budget)
            return Move(write_BL, proposal.tokens_BL, None, order.scores_BL), PartState(ranking, budget, None)
        move, budget, reviser = self._revised(view, order, state, self.reviser)
        return move, PartState(ranking, budget, reviser)

    def _predicted(self, view: View, state: PartState) -> Prediction:
        rows_BL = reduce(or_, (part.rows(view) for part in self.parts), view.canvas.open_BL)
        foreseen = self.ranking.foreseen(view, rows_BL, state.ranking)
        if foreseen is not None and foreseen.remembered >= self.remembers:
            return foreseen.wanting(self.statistics)
        return view.predict(rows_BL, statistics=self.statistics, remember=self.remembers)

    def _cut(self, view: View, order: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        write_BL, state = self.budget.cut(view, order, taken_B, state)
        return write_BL & order.open_BL, state

    def _revised(self, view: View, order: Ranked, state: PartState, reviser: Reviser) -> tuple[Move, Any, Any]:
        write_BL, _ = self._cut(view, order, torch.zeros_like(view.canvas.block_B), state.budget)
        wanted, reviser_state = reviser.revise(view, order, write_BL, state.reviser)
        if not reviser.in_last_step:
            # The last step of a block is one too: taking back there would keep the block open for ever.
            wanted = _obeyed(wanted, ~last_step(order.open_BL, write_BL))
        # A reviser obeyed to the end keeps its own accounts; for others as many more are written, whatever the budget.
        taken_B = wanted.remask_BL.sum(1) * (not reviser.in_last_step)
        write_BL, budget = self._cut(view, order, taken_B, state.budget)
        write_BL = write_BL | (order.open_BL & (order.rank_BL <= taken_B[:, None]) & (taken_B > 0)[:, None])
        if wanted.hold_B is not None:
            write_BL = write_BL & ~wanted.hold_B[:, None]
            budget = where(wanted.hold_B, state.budget, budget)  # its clock stands still where nothing is written
        if wanted.rewrite_BL is not None:
            write_BL = write_BL | wanted.rewrite_BL
        done_B = None
        if wanted.keep_B is not None:
            masked_BL = (view.canvas.masked_BL & ~write_BL) | wanted.remask_BL
            done_B = ~masked_BL.any(1) & ~wanted.keep_B
        move = Move(write_BL, order.proposal.tokens_BL, wanted.remask_BL, order.scores_BL, done_B)
        return move, budget, reviser_state


def _obeyed(wanted: Revision, obeyed_B: Tensor) -> Revision:
    """The revision in the batch rows where it counts."""
    rewrite_BL, hold_B = wanted.rewrite_BL, wanted.hold_B
    return wanted._replace(
        remask_BL=wanted.remask_BL & obeyed_B[:, None],
        rewrite_BL=None if rewrite_BL is None else rewrite_BL & obeyed_B[:, None],
        hold_B=None if hold_B is None else hold_B & obeyed_B,
    )
