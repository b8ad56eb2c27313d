"""Backward-on-Entropy steering (arXiv 2602.00250): rows whose writing makes the rest least uncertain come first.

    score_i = gate_i TIS_i - lambda_t [h_t - H_i]_+^2,      TIS_i = -<d sum_j H_j / d e_i, delta_i>

See `tabes.steering.importance` for TIS and `docs/boe.md` for what we chose. Reduces to confidence with as many
candidates as tokens to write (rho or delta towards 0).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from tabes.parts import RANKINGS
from tabes.settings import as_in
from tabes.steering.importance import Backward, Expansion, Importance, Injection, SelfTerm
from tabes.steering.ranking import Steered
from tabes.steering.scene import Scene
from tabes.steering.work import Price, before_flops, replay_flops, write_flops
from tabes.view import View

__all__ = ["Boe"]


@RANKINGS.register("boe")
@dataclass(frozen=True)
class Boe(Steered):
    """Importance of the candidates from one backward pass; parameters in `Importance` and `Steered`."""

    expansion: Expansion = as_in(Importance, "expansion")
    injection: Injection = as_in(Importance, "injection")
    self_term: SelfTerm = as_in(Importance, "self_term")
    backward: Backward = as_in(Importance, "backward")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.importance

    @cached_property
    def importance(self) -> Importance:
        return Importance(self.expansion, self.injection, self.self_term, self.backward, self._probes, self._objective)

    def rows(self, view: View) -> Tensor:
        """Only choosing the most uncertain probes needs to read rows that are not open."""
        if self.probes == "uncertain":
            return self._probes.pool(view.canvas)
        return super().rows(view)

    def drops(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tensor:
        return self.importance.drops(scene, candidates_BL)

    def price(self, scene: Scene) -> Price:
        """At most a replay of the probes' pool with its gradient, one for each candidate's copy if any; soft writes."""
        rows_BL = scene.content_BL if self.backward == "dense" else self._probes.pool(scene.canvas)
        replay_B = replay_flops(scene, rows_BL.sum(1), self._probes.most_B(scene.canvas), backward=True)
        replay_B = replay_B * len(self.importance.points)
        before_B, write_B = before_flops(scene, torch.zeros_like(rows_BL.sum(1))), write_flops(scene)
        if self.injection == "alone" or self.self_term == "exclude":
            return Price(before_B, replay_B + write_B)
        return Price(before_B + replay_B, write_B)
