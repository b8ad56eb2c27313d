"""The four parts of the usual sampler: what each may be asked, and the table where each is known by name.

A part is a frozen dataclass; its fields are its parameters. What it must remember from step to step is its *state*: an
immutable `Batched` (or None) that `init` makes and every call passes on. Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.prediction import Prediction
from tabes.registry import Registry
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
    "Writer",
    "ranked",
]


@dataclass(frozen=True)
class Proposal:
    """A token for every row read, and its logit: its probability follows without another pass over the vocabulary.

    `count_B` is how many of them the budget expects to be written now; None where nobody asked it.
    """

    tokens_BL: Tensor
    logit_BL: Tensor
    count_B: Tensor | None = None

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

    def init(self, canvas: Canvas) -> Any:
        """The state before the first step; None for a part that remembers nothing."""
        return None

    def rows(self, view: View) -> Tensor:
        """Rows (B, L) whose prediction it wants to read besides the open ones; none by default."""
        return torch.zeros_like(view.canvas.writable_BL)


class Writer(Part):
    """WHAT token: proposes one for every row read."""

    @abstractmethod
    def propose(self, view: View, prediction: Prediction) -> Proposal: ...


class Ranking(Part):
    """WHICH rows: a score for every row read, the highest first; ties go to the lowest row."""

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


class Reviser(Part):
    """What to take back: written rows to mask again."""

    @abstractmethod
    def revise(self, view: View, ranked: Ranked, state: Any) -> tuple[Tensor, Any]:
        """Which rows to mask again (B, L), and the next state. Not obeyed in a batch row's last step."""


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


RANKINGS: Registry[Ranking] = Registry("ranking")
BUDGETS: Registry[Budget] = Registry("budget")
WRITERS: Registry[Writer] = Registry("writer")
REVISERS: Registry[Reviser] = Registry("reviser")
