"""The four parts of the usual sampler: what each may be asked, and the table where each is known by name.

A part is a frozen dataclass; its fields are its parameters. What it must remember from step to step is its *state*: an
immutable `Batched` (or None) that `init` makes and every call passes on. Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.prediction import Prediction
from tabes.registry import Registry
from tabes.settings import check
from tabes.view import View

__all__ = [
    "BUDGETS",
    "RANKINGS",
    "REVISERS",
    "WRITERS",
    "Budget",
    "CountBudget",
    "Proposal",
    "Ranked",
    "Ranking",
    "Reviser",
    "Revision",
    "Writer",
    "last_step",
    "ranked",
]


@dataclass(frozen=True)
class Proposal:
    """A token for every row read, and its logit: its probability follows without another pass over the vocabulary.

    `count_B` is how many of them the budget expects to be written now, `progress_B` the share of its steps that will
    have been taken after this one; None where nobody asked it. `drawn_from` has statistics of the distribution the
    token was drawn from (tempered and filtered), if the ranking reads them.
    """

    tokens_BL: Tensor
    logit_BL: Tensor
    count_B: Tensor | None = None
    progress_B: Tensor | None = None
    drawn_from: Mapping[str, Tensor] = field(default_factory=dict)

    def confidence_BL(self, prediction: Prediction) -> Tensor:
        """The probability of the proposed tokens under the model's own distribution."""
        return (self.logit_BL - prediction.log_normaliser_BL).exp()


@dataclass(frozen=True)
class Ranked:
    """The open rows in order: `rank_BL` is 0 for the best, and beyond every count where nothing may be written."""

    open_BL: Tensor
    scores_BL: Tensor
    rank_BL: Tensor
    prediction: Prediction
    proposal: Proposal


class Part(ABC):  # noqa: B024 - the abstract methods differ per kind of part
    """What all parts share."""

    statistics: ClassVar[frozenset[str]] = frozenset()
    """The statistics of the prediction this part reads, so that they come in one pass over the logits."""
    remembers: ClassVar[bool] = False
    """Whether this part replays rows, for which the forward has to be remembered."""

    def __post_init__(self) -> None:
        check(self)

    def init(self, canvas: Canvas) -> Any:
        """The state before the first step; None for a part that remembers nothing."""
        return None

    def rows(self, view: View) -> Tensor:
        """Rows (B, L) whose prediction it wants to read besides the open ones; none by default."""
        return torch.zeros_like(view.canvas.writable_BL)


class Writer(Part):
    """WHAT token: proposes one for every row read."""

    @abstractmethod
    def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
        """The proposal, with the statistics in `reads` (names as in `Ranking.reads`) of what it draws from."""


class Ranking(Part):
    """WHICH rows: a score for every row read, the highest first; ties go to the lowest row."""

    @property
    def reads(self) -> frozenset[str]:
        """Statistics it reads of the writer's distribution, not the model's: "confidence", "margin", "entropy".

        And "ends", the log-sum of the logits of the model's end-of-text tokens, which come best in the same pass.
        """
        return frozenset()

    def foreseen(self, view: View, rows_BL: Tensor, state: Any) -> Prediction | None:
        """The prediction of this step, if it was made in the last one already (a lookahead's winner); else None."""
        return None

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        """Scores (B, L); only those of open rows are looked at. All that most rankings need to define."""
        raise NotImplementedError

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> tuple[Tensor, Any]:
        """Scores and the next state, for rankings that remember something."""
        return self.scores(view, prediction, proposal), state


class Budget(Part):
    """HOW MANY: cuts the order. `taken_B` counts what the reviser takes back this step, to be written on top."""

    @abstractmethod
    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Which rows to write (B, L), and the next state."""

    def expected(self, view: View, state: Any) -> Tensor:
        """How many rows (B,) it will write, as far as that is known before they are ranked."""
        return torch.ones_like(view.canvas.block_B)

    def foresee(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> Tensor:
        """The same, for budgets that look at the predictions; by default what it expects without."""
        return self.expected(view, state)

    def progress(self, view: View, state: Any) -> Tensor:
        """The share (B,) of the way that will be behind after this step; by default the share that is written."""
        masks_B = view.canvas.masked_BL.sum(1) - self.expected(view, state)
        return 1 - view.canvas.time_with(masks_B.clamp(min=0))


class CountBudget(Budget):
    """A budget that is a number per batch row, whatever the scores are."""

    @abstractmethod
    def counts(self, view: View, state: Any) -> tuple[Tensor, Any]:
        """How many rows to write (B,), and the next state."""

    def expected(self, view: View, state: Any) -> Tensor:
        return self.counts(view, state)[0]

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        counts_B, state = self.counts(view, state)
        return ranked.rank_BL < (counts_B + taken_B)[:, None], state


class Revision(NamedTuple):
    """What a reviser wants.

    Attributes:
        remask_BL: Written rows to mask again.
        rewrite_BL: Written rows to give the token proposed now.
        hold_B: Batch rows in which nothing is written onto masks in this step.
        keep_B: Batch rows that are not done though nothing is masked.
    """

    remask_BL: Tensor
    rewrite_BL: Tensor | None = None
    hold_B: Tensor | None = None
    keep_B: Tensor | None = None


class Reviser(Part):
    """What to take back or write anew: it looks at written rows, which it reads through `rows`."""

    in_last_step: ClassVar[bool] = False
    """Whether it is obeyed too in the step that writes all that is open. It must then see to the end itself."""

    @abstractmethod
    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: Any) -> tuple[Revision, Any]:
        """What to revise, and the next state. `write_BL` is what the budget would write if nothing were taken back."""


def ranked(open_BL: Tensor, scores_BL: Tensor, prediction: Prediction, proposal: Proposal) -> Ranked:
    """Order the open rows by score, the highest first, the lowest row first among equals."""
    scores_BL = scores_BL.float()
    lowest = torch.finfo(scores_BL.dtype).min
    keys_BL = torch.where(open_BL, scores_BL.clamp(min=lowest), -torch.inf)
    order_BL = keys_BL.argsort(dim=1, descending=True, stable=True)
    places_BL = torch.arange(order_BL.shape[1], device=order_BL.device).expand_as(order_BL)
    rank_BL = torch.empty_like(order_BL).scatter_(1, order_BL, places_BL)
    rank_BL = torch.where(open_BL, rank_BL, torch.iinfo(torch.int64).max)
    return Ranked(open_BL, scores_BL, rank_BL, prediction, proposal)


def last_step(open_BL: Tensor, write_BL: Tensor) -> Tensor:
    """(B,): whether everything open is written."""
    return (write_BL == open_BL).all(1)


RANKINGS: Registry[Ranking] = Registry("ranking", Ranking)
BUDGETS: Registry[Budget] = Registry("budget", Budget)
WRITERS: Registry[Writer] = Registry("writer", Writer)
REVISERS: Registry[Reviser] = Registry("reviser", Reviser)
