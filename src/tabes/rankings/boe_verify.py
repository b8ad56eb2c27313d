"""Steer and verify: importance proposes, lookahead decides among the `verify` best of it.

    score_i = gate_i drop_i - lambda_t [h_t - H_i]_+^2   for the best by TIS_i, all others after them

Reduces to `boe` in which rows are tried as `verify` goes to 1, and to `lookahead` as it takes in all candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tabes.parts import RANKINGS
from tabes.rankings.boe import Boe
from tabes.settings import as_in, setting
from tabes.steering.candidates import top
from tabes.steering.lookahead import Lookahead
from tabes.steering.ranking import Tried
from tabes.steering.scene import Scene
from tabes.steering.work import Price, before_flops
from tabes.view import View

__all__ = ["BoeVerify"]


@RANKINGS.register("boe_verify")
@dataclass(frozen=True)
class BoeVerify(Boe):
    """Parameters of `boe`, and how many rows are verified, how far ahead."""

    verify: int = setting(4, "how many of the candidates, the best by importance first, are tried", least=1, whole=True)
    horizon: int = as_in(Lookahead, "horizon")
    beam: int = as_in(Lookahead, "beam")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.ahead

    @cached_property
    def ahead(self) -> Lookahead:
        return Lookahead(self._objective, self._probes, self.horizon, self.beam)

    def rows(self, view: View) -> Tensor:
        return self._probes.pool(view.canvas)

    def drops(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tensor:
        return self.tried(scene, candidates_BL, view).drops_BL

    def tried(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tried:
        importance_BL = super().drops(scene, candidates_BL, view)
        proposed_BL = (self.sign * importance_BL).nan_to_num(-torch.inf)
        best_BL = top(candidates_BL, proposed_BL, torch.full_like(candidates_BL.sum(1), self.verify))
        verified_BL = self.ahead.drops(scene, best_BL, offer_to=view.denoiser)
        return Tried(torch.where(best_BL, verified_BL, importance_BL), best_BL)

    def price(self, scene: Scene) -> Price:
        first, then = super().price(scene), self.ahead.price(scene)
        shared_B = before_flops(scene, torch.zeros_like(scene.prediction.computed_B))
        return Price(first.once_B + then.once_B - shared_B + self.verify * then.each_B, first.each_B)
