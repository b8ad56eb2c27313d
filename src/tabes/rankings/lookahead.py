"""Sparse lookahead: the candidate after whose writing the least is left, found by writing each in a copy.

    score_i = gate_i drop_i - lambda_t [h_t - H_i]_+^2,      drop_i = what i's writing takes off the objective elsewhere

See `tabes.steering.lookahead`. Costs one replay of the masked rows for each candidate. Reduces to confidence with one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from tabes.parts import RANKINGS
from tabes.settings import as_in
from tabes.steering.lookahead import Lookahead
from tabes.steering.ranking import Steered
from tabes.steering.scene import Scene
from tabes.steering.work import Price
from tabes.view import View

__all__ = ["LookaheadRanking"]


@RANKINGS.register("lookahead")
@dataclass(frozen=True)
class LookaheadRanking(Steered):
    """Parameters in `Steered`; `horizon` writes ahead, `beam` of the best going on after the first."""

    candidates: int | None = as_in(Steered, "candidates", default=4)
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
        return self.ahead.drops(scene, candidates_BL, offer_to=view.denoiser)

    def price(self, scene: Scene) -> Price:
        return self.ahead.price(scene)
