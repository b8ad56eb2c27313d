"""The more rows at once, the surer each has to be (Fast-dLLM, arXiv 2505.22618, section 3.3).

    write the longest prefix of the order in which the n-th row has p(v) >= 1 - factor / (n + 1); the first in any case

The paper's bound: n rows written at once follow the joint distribution's argmax if (n + 1)(1 - p) is below 1 for each.
Reduces to `tokens_per_step` with one token as the factor goes to 0 (rows certain to the last bit aside), and to
everything at once from a factor of one more than there are rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.budgets.adaptive import Adaptive, in_order, prefix
from tabes.parts import BUDGETS, Ranked
from tabes.settings import setting
from tabes.view import View

__all__ = ["Factor"]


@BUDGETS.register("factor")
@dataclass(frozen=True)
class Factor(Adaptive):
    """Thresholds 2/3, 3/4, 4/5, ... for the second, third, fourth row at factor 1."""

    factor: float = setting(1.0, "how unsure rows written together may be: the n-th factor / (n + 1)", least=0)

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        confidence_BR = in_order(ranked, ranked.proposal.confidence_BL(ranked.prediction))
        place_R = torch.arange(1, confidence_BR.shape[1] + 1, device=confidence_BR.device)
        fits_BR = confidence_BR >= 1 - self.factor / (place_R + 1)
        # The first row is written whatever its confidence is, and does not stop the others.
        return prefix(ranked, fits_BR | (place_R == 1)), state
