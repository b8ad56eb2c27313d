"""Most confident first (LLaDA's low_confidence, arXiv 2502.09992; Dream's maskgit_plus, 2508.15487).

    score_i = p_i(v_i)

with v_i the proposed token. p_i is the model's own distribution, so that temperature and filters choose the token, not
the score (LLaDA), or with read="writer" what the token is drawn from (Dream). With argmax tokens and a vocabulary of
two, confidence, margin and entropy give the same order. See `tabes.rankings.local` for the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.errors import CombinationError
from tabes.parts import RANKINGS, Proposal
from tabes.prediction import Prediction
from tabes.rankings.local import Local, drawn_from
from tabes.settings import setting
from tabes.suppression import end_ids
from tabes.view import View

__all__ = ["Confidence"]

# With less left to other tokens than this, one minus the end tokens' share has lost its digits.
_LITTLE = 0.05
# The least a standard Gumbel number of `View.uniform` can be is -3.7.
_LEAST_GUMBEL = -4.0


@RANKINGS.register("confidence")
@dataclass(frozen=True)
class Confidence(Local):
    """The probability of the proposed token.

    With `ends_last` (LLaDA's confidence_eos_eot_inf) it is what it would be without the model's end-of-text tokens, and
    rows for which one is proposed come after all others.
    """

    ends_last: bool = setting(False, "end-of-text tokens count for nothing and are written last", choices=(False, True))

    measure: ClassVar[str] = "confidence"
    needs: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ends_last and self.read == "writer":
            raise CombinationError("ends_last goes with read='model' only; leave one of the two out")

    @property
    def reads(self) -> frozenset[str]:
        return super().reads | ({"ends"} if self.ends_last else set())

    def certainty(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        confidence_BL = proposal.confidence_BL(prediction)
        if not self.ends_last:
            return confidence_BL
        share_BL = (drawn_from(proposal, "ends") - prediction.log_normaliser_BL).exp()
        without_BL = confidence_BL / (1 - share_BL).clamp(min=_LITTLE)
        doubtful_BL = prediction.rows_BL & (share_BL > 1 - _LITTLE) & ~_is_end(view, proposal)
        if bool(doubtful_BL.any()):
            exact = prediction.at(doubtful_BL).without(end_ids(view.denoiser.base, "leave ends_last out"))
            without_BL = torch.where(doubtful_BL, proposal.confidence_BL(exact), without_BL)
        return without_BL

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        scores_BL = super().scores(view, prediction, proposal)
        if not self.ends_last:
            return scores_BL
        return torch.where(_is_end(view, proposal), _LEAST_GUMBEL * self.noise - 1, scores_BL)


def _is_end(view: View, proposal: Proposal) -> Tensor:
    ids = end_ids(view.denoiser.base, "leave ends_last out")
    return torch.isin(proposal.tokens_BL, torch.tensor(ids, device=proposal.tokens_BL.device))
