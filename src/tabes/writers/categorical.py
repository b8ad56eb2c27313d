"""A draw from the (tempered, filtered) distribution by inverse CDF: one uniform number per row, from the row's stream.

    token ~ softmax(logits / temperature), restricted

See `tabes.writers.distribution`. The limit temperature -> 0 is `argmax`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor

from tabes.parts import WRITERS, Proposal, Writer
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View
from tabes.writers.distribution import Reader, distribution
from tabes.writers.inverse import draw

__all__ = ["Categorical", "draw"]


@WRITERS.register("categorical")
@dataclass(frozen=True)
class Categorical(Writer):
    """token ~ softmax(logits / temperature), restricted to the `top_k` likeliest and the nucleus of mass `top_p`."""

    temperature: float = setting(1.0, "how flat the distribution is made before the draw", above=0, below=inf)
    top_p: float | None = setting(None, "draw from the most probable tokens that hold this share", above=0, most=1)
    top_k: int | None = setting(None, "draw from this many most probable tokens", least=1, whole=True)

    # A number that is not finite shows in the largest logit; without it a draw from NaNs would look like any other.
    statistics: ClassVar[frozenset[str]] = frozenset({"top_logit"})

    def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
        uniform_N = view.uniform("writer.categorical")[prediction.rows_BL]
        reader = Reader(view, reads)

        def reduce(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
            weights_nV = distribution(logits_nV, self.temperature, self.top_p, self.top_k)
            token_n = draw(weights_nV, uniform_N[rows])
            logit_n = logits_nV.gather(1, token_n[:, None]).squeeze(1)
            return {"token": token_n, "logit": logit_n} | reader.found(logits_nV, weights_nV, token_n)

        if len(prediction) == 0:
            return Proposal(prediction.top_token_BL, prediction.top_logit_BL, drawn_from=reader.nothing(prediction))
        drawn = prediction.reduce(reduce)
        return Proposal(drawn["token"], drawn["logit"], drawn_from=reader.taken(drawn))
