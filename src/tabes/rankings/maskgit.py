"""The most probable drawn token first, with noise that fades (MaskGIT, arXiv 2202.04200).

    score_i = log p_i(v_i) + choice_temperature (1 - r) G_i,      G_i standard Gumbel

with v_i the token drawn, p_i the model's own distribution and r the share of the steps that will be behind after this
one, from the budget. What language models call MaskGIT is `confidence`, to which this reduces at choice temperature 0
(and, in its last step, always).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from torch import Tensor

from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.rankings.local import gumbel
from tabes.settings import setting
from tabes.view import View

__all__ = ["MaskGIT"]


@RANKINGS.register("maskgit")
@dataclass(frozen=True)
class MaskGIT(Ranking):
    """The log-probability of the proposed token, perturbed; less so from step to step."""

    choice_temperature: float = setting(4.5, "the noise at the start", least=0, below=inf)
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        log_p_BL = proposal.logit_BL - prediction.log_normaliser_BL
        progress_B = 1 - view.time_B if proposal.progress_B is None else proposal.progress_B
        noise_B1 = self.choice_temperature * (1 - progress_B)[:, None]
        return log_p_BL + noise_B1 * gumbel(view, "ranking.maskgit")
