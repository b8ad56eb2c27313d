"""What all steered rankings share: candidates first, a costly drop for each, shaping, and confidence for the rest.

score_i of a candidate is its shaped drop; every other open row comes after all candidates, the most confident first.
Batch rows in which there is nothing to choose (no more candidates than tokens to write) are not steered and cost
nothing more; where all drops are equal (nothing left to watch) confidence decides too.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.parts import Proposal, Ranking
from tabes.prediction import Prediction
from tabes.steering.candidates import Prefilter
from tabes.steering.objectives import Objective, as_objective
from tabes.steering.probes import ProbeRule, Probes
from tabes.steering.scene import Scene
from tabes.steering.shaping import Shaping
from tabes.steering.work import Bank, Price, affordable, paid
from tabes.view import View

__all__ = ["Steered", "SteeringWarning"]


class SteeringWarning(UserWarning):
    """Steering failed for some rows, which were decoded by confidence instead."""


@dataclass(frozen=True)
class Steered(Ranking):
    """Parameters of every steered ranking.

    Candidates: `prefilter` orders the open rows, `rho` keeps a share of them, `candidates` at most so many for each
    token to write, `delta` only those about as confident as the last one that confidence would write, and none where
    that one's confidence is `sure` or more. `work` 0.2 spends at most 20 % over plain decoding, saving up where there
    is nothing to choose. What is watched: `objective` over `probes` (`probe_count` of them where the rule is
    "uncertain"). Shaping: see `tabes.steering.shaping`. `sign` -1 is the reversed control of an experiment.
    """

    objective: str | Objective = "entropy"
    probes: ProbeRule = "masked"
    probe_count: int | None = None
    prefilter: Literal["confidence", "margin", "entropy"] = "confidence"
    rho: float | None = None
    delta: float | None = None
    candidates: int | None = None
    sure: float | None = None
    work: float | None = None
    gate: bool = False
    floor_weight: float = 0.0
    floor_height: float = 0.0
    floor_form: Literal["falling", "rising"] = "falling"
    floor_annealing: Literal["none", "linear"] = "none"
    mix: float | None = None
    sign: Literal[1, -1] = 1

    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser", "entropy"})
    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        # Built now, so that a wrong parameter is refused before anything runs.
        _ = self._objective, self._probes, self._prefilter, self._shaping
        Bank.check(self.work)

    @abstractmethod
    def drops(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tensor:
        """(B, L) in the objective's units, NaN where it failed."""

    @abstractmethod
    def price(self, scene: Scene) -> Price:
        """What steering one batch row costs."""

    @cached_property
    def _objective(self) -> Objective:
        return as_objective(self.objective)

    @cached_property
    def _probes(self) -> Probes:
        return Probes(self.probes, self.probe_count)

    @cached_property
    def _prefilter(self) -> Prefilter:
        return Prefilter(self.prefilter, self.rho, self.delta, self.candidates, self.sure)

    @cached_property
    def _shaping(self) -> Shaping:
        return Shaping(self.gate, self.floor_weight, self.floor_height, self.floor_form, self.floor_annealing, self.mix)

    def init(self, canvas: Canvas) -> Bank | None:
        return None if self.work is None else Bank.empty(canvas)

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> tuple[Tensor, Any]:
        open_BL = view.canvas.open_BL
        count_B = torch.ones_like(view.canvas.block_B) if proposal.count_B is None else proposal.count_B
        confidence_BL = (proposal.logit_BL - prediction.log_normaliser_BL).exp()
        candidates_BL = self._prefilter.chosen(open_BL, prediction, confidence_BL, count_B)
        scene = Scene.of(view, prediction, proposal)
        if self.work is not None:
            state = state.earn(self.work, view.denoiser.base.full_forward_flops(view.canvas))
            candidates_BL = affordable(candidates_BL, confidence_BL, self.price(scene), state)
        needs_B = candidates_BL.sum(1) > count_B
        candidates_BL = candidates_BL & needs_B[:, None]
        if self.work is not None:
            state = paid(state, candidates_BL, self.price(scene))
        if not bool(needs_B.any()):
            return confidence_BL, state
        drops_BL = torch.zeros_like(confidence_BL)
        drops_BL[needs_B] = self.drops(scene.select(needs_B), candidates_BL[needs_B], view).to(drops_BL.dtype)
        return self._scores(view, prediction, confidence_BL, candidates_BL, drops_BL), state

    def _scores(
        self, view: View, prediction: Prediction, confidence_BL: Tensor, candidates_BL: Tensor, drops_BL: Tensor
    ) -> Tensor:
        failed_B = ~(torch.isfinite(drops_BL) | ~candidates_BL).all(1)
        if bool(failed_B.any()):
            self._report(view, int(failed_B.sum()))
            drops_BL = torch.where(failed_B[:, None], 0.0, drops_BL)
            candidates_BL = candidates_BL & ~failed_B[:, None]
        candidates_BL = candidates_BL & _differ(candidates_BL, drops_BL)[:, None]
        net_BL = self.sign * (drops_BL - self._objective.charge(prediction))
        shaped_BL = self._shaping.scores(net_BL, prediction, confidence_BL, view.time_B)
        return _first(candidates_BL, shaped_BL, confidence_BL)

    def _report(self, view: View, batch_rows: int) -> None:
        view.denoiser.base.ledger.fell_back(batch_rows)
        text = f"steering gave NaN or infinite scores in step {view.step}; confidence decides there (Cost.fallbacks)"
        warnings.warn(text, SteeringWarning, stacklevel=2)


def _differ(candidates_BL: Tensor, drops_BL: Tensor) -> Tensor:
    """(B,): whether the drops say anything. With nothing to watch all are 0, and that is no reason to choose."""
    largest_B = torch.where(candidates_BL, drops_BL, -torch.inf).amax(1)
    return largest_B > torch.where(candidates_BL, drops_BL, torch.inf).amin(1)


def _first(candidates_BL: Tensor, scores_BL: Tensor, confidence_BL: Tensor) -> Tensor:
    """Candidates by score, then the others by confidence."""
    lowest_B = torch.where(candidates_BL, scores_BL, torch.inf).amin(1).clamp(max=torch.finfo(torch.float32).max / 4)
    after_BL = torch.where(candidates_BL.any(1), lowest_B, 0.0)[:, None] + confidence_BL - 2.0
    return torch.where(candidates_BL, scores_BL, after_BL)
