"""The most probable token.

    token = argmax_v p_i(v), the lowest id of equal ones

The limit of `categorical` as the temperature goes to 0, but for what a ranking reads of the distribution it is drawn
from: that is the model's own here, filtered as Dream does at temperature 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tabes.parts import WRITERS, Proposal, Writer
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View
from tabes.writers.distribution import Reader, distribution

__all__ = ["Argmax"]


@WRITERS.register("argmax")
@dataclass(frozen=True)
class Argmax(Writer):
    """argmax_v p_i(v). `top_p` and `top_k` change no token, only what a ranking with read="writer" sees."""

    top_p: float | None = setting(None, "what is read is of the most probable tokens of this share", above=0, most=1)
    top_k: int | None = setting(None, "what is read is of this many most probable tokens", least=1, whole=True)
    statistics: ClassVar[frozenset[str]] = frozenset({"top_token", "top_logit"})

    def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
        drawn_from = self._read(Reader(view, reads), prediction) if reads else {}
        return Proposal(prediction.top_token_BL, prediction.top_logit_BL, drawn_from=drawn_from)

    def _read(self, reader: Reader, prediction: Prediction) -> dict[str, Tensor]:
        def reduce(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
            wanted = reader.wants_distribution
            return reader.found(logits_nV, distribution(logits_nV, 1.0, self.top_p, self.top_k) if wanted else None)

        if len(prediction) == 0:
            return reader.nothing(prediction)
        return reader.taken(prediction.reduce(reduce))
