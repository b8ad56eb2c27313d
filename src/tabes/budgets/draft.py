"""Every row above a wide threshold, within a cap (the drafting of WINO, arXiv 2507.18578).

    write i if p_i(v_i) > tau, and the first of the ranking's order in any case;
    of the m open rows at most min(max(floor(share m), least), most)

To be revised by `verify`. Reduces to one row per step at tau = 1, and to `threshold` where the cap does not bind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.budgets.adaptive import Adaptive
from tabes.parts import BUDGETS, Ranked
from tabes.settings import setting
from tabes.view import View

__all__ = ["Draft"]

_LAST = torch.iinfo(torch.int64).max


@BUDGETS.register("draft")
@dataclass(frozen=True)
class Draft(Adaptive):
    """All rows whose proposal has a probability above `draft_threshold`, up to a share of the masks."""

    draft_threshold: float = setting(0.6, "a row is written if its token is more probable than this", least=0, most=1)
    draft_share: float = setting(0.7, "share of the masks written at most", above=0, most=1)
    draft_least: int = setting(5, "the share is never fewer than these", least=1, whole=True)
    draft_most: int = setting(20, "nor more than these", least=1, whole=True)

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        sure_BL = ranked.proposal.confidence_BL(ranked.prediction) > self.draft_threshold
        wanted_BL = ranked.open_BL & (sure_BL | (ranked.rank_BL == 0))
        open_B = ranked.open_BL.sum(1)
        cap_B = (self.draft_share * open_B.double()).long().clamp(min=self.draft_least).clamp(max=self.draft_most)
        place_BL = torch.where(wanted_BL, ranked.rank_BL, _LAST).argsort(dim=1, stable=True).argsort(dim=1)
        return wanted_BL & (place_BL < cap_B[:, None]), state
