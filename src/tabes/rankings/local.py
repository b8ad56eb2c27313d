"""What the rankings share that look at each row by itself: whose distribution they read, and noise on the score.

    score_i = certainty_i + noise G_i,      G_i standard Gumbel

Taking the k best of these is drawing k rows without replacement from softmax(certainty / noise): Dream's `alg_temp`
(2508.15487), the perturbed oracle of Kim et al. (2502.06768). Noise 0 is the plain order; much noise a random one.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, get_args

from torch import Tensor

from tabes.errors import CombinationError
from tabes.parts import Proposal, Ranking
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["Local", "drawn_from", "gumbel"]

Read = Literal["model", "writer"]


@dataclass(frozen=True)
class Local(Ranking):
    """A certainty per row.

    `read` "model" is the model's own distribution, whatever the token is drawn from; "writer" the tempered and filtered
    one the token is drawn from, as Dream has it, also at temperature 0, where the filters change no token.
    """

    noise: float = setting(0.0, "how random the order is: temperature of Gumbel noise on the score", least=0, below=inf)
    read: Read = setting(
        "model", "whose distribution: the model's, or the one the writer draws from", choices=get_args(Read)
    )

    measure: ClassVar[str]
    """What it reads of the writer's distribution."""
    needs: ClassVar[frozenset[str]]
    """The statistics it reads of the model's."""

    @property
    def statistics(self) -> frozenset[str]:  # type: ignore[override]
        """None of the model's where it reads the writer's."""
        return self.needs if self.read == "model" else frozenset()

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.measure}) if self.read == "writer" else frozenset()

    @abstractmethod
    def certainty(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        """Of the model's own distribution (B, L)."""

    def drawn(self, proposal: Proposal) -> Tensor:
        """The same of the writer's."""
        return drawn_from(proposal, self.measure)

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        writers = self.read == "writer"
        certainty_BL = self.drawn(proposal) if writers else self.certainty(view, prediction, proposal)
        return certainty_BL if self.noise == 0 else certainty_BL + self.noise * gumbel(view, "ranking.noise")


def drawn_from(proposal: Proposal, name: str) -> Tensor:
    """A statistic (B, L) the writer was asked for."""
    if name not in proposal.drawn_from:
        raise CombinationError(f"the writer does not say the {name} of what it draws from, which the ranking reads")
    return proposal.drawn_from[name]


def gumbel(view: View, purpose: str) -> Tensor:
    """Standard Gumbel noise (B, L), float64, from each batch row's own stream."""
    return -(-view.uniform(purpose).log()).log()
