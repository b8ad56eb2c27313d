"""What all steered rankings share: candidates first, a costly drop for each, shaping, and confidence for the rest.

score_i of a candidate is its shaped drop; every other open row comes after all candidates, the most confident first.
A ranking may look at some candidates more closely (`tried`); these come before the rest of them, whatever the shaping.
Batch rows in which there is nothing to choose (no more candidates than tokens to write) are not steered and cost
nothing more; where all drops are equal (nothing left to watch) confidence decides too.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.parts import Proposal, Ranking
from tabes.prediction import Prediction
from tabes.settings import as_in, setting
from tabes.steering.candidates import By, Prefilter
from tabes.steering.objectives import Objective, as_objective
from tabes.steering.order import differ, in_front
from tabes.steering.probes import ProbeRule, Probes
from tabes.steering.scene import Scene
from tabes.steering.shaping import FloorAnnealing, FloorForm, Shaping
from tabes.steering.work import Bank, Price, affordable, plain_flops
from tabes.view import View

__all__ = ["Steered", "SteeringWarning"]


class SteeringWarning(UserWarning):
    """Steering failed for some rows, which were decoded by confidence instead."""


class Tried(NamedTuple):
    """What trying the candidates gave (B, L): their drops, and which of them come before all others."""

    drops_BL: Tensor
    first_BL: Tensor


@dataclass(frozen=True)
class Steered(Ranking):
    """Parameters of every steered ranking.

    Candidates: `prefilter` orders the open rows, `rho` keeps a share of them, `candidates` at most so many for each
    token to write, `delta` only those about as confident as the last one that confidence would write; none where that
    one's confidence is `sure` or more, or where more than `writes` tokens are to be written. `work` 0.2 spends at most
    20 % over plain decoding, saving up where there is nothing to choose (what a rule reads beyond the block is spent in
    any case: on a row cache watch probes="block").
    What is watched: `objective` over `probes` (`probe_count` of them, or a `probe_share` of the masked rows, where the
    rule is "uncertain"). Shaping: see `tabes.steering.shaping`. `sign` -1 is the reversed control of an experiment.
    """

    objective: str | Objective = setting(
        "entropy", "what a write should make small: entropy, information_gain, block_mean, or an Objective"
    )
    probes: ProbeRule = as_in(Probes, "rule")
    probe_count: int | None = as_in(Probes, "count")
    probe_share: float | None = as_in(Probes, "share")
    prefilter: By = as_in(Prefilter, "by")
    rho: float | None = as_in(Prefilter, "rho")
    delta: float | None = as_in(Prefilter, "delta")
    candidates: int | None = as_in(Prefilter, "most")
    sure: float | None = as_in(Prefilter, "sure")
    writes: int | None = as_in(Prefilter, "writes")
    work: float | None = setting(
        None, "most work over plain decoding, 0.2 for 20 %, saved up where nothing competes; none: no bound", above=0
    )
    gate: bool = as_in(Shaping, "gate")
    floor_weight: float = as_in(Shaping, "floor_weight")
    floor_height: float = as_in(Shaping, "floor_height")
    floor_form: FloorForm = as_in(Shaping, "floor_form")
    floor_annealing: FloorAnnealing = as_in(Shaping, "floor_annealing")
    mix: float | None = as_in(Shaping, "mix")
    sign: Literal[1, -1] = setting(1, "-1 reverses the drops: the control of an experiment", choices=(1, -1))

    remembers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        # Built now, so that a wrong combination is refused before anything runs.
        _ = self._objective, self._probes, self._prefilter, self._shaping

    @abstractmethod
    def drops(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tensor:
        """(B, L) in the objective's units, NaN where it failed."""

    def tried(self, scene: Scene, candidates_BL: Tensor, view: View) -> Tried:
        """Drops of all candidates, none before the others; for rankings that look at some more closely."""
        return Tried(self.drops(scene, candidates_BL, view), candidates_BL)

    @abstractmethod
    def price(self, scene: Scene) -> Price:
        """What steering one batch row costs."""

    @property
    def statistics(self) -> frozenset[str]:  # type: ignore[override]
        """What every choice reads, and what this one's prefilter does."""
        return frozenset({"log_normaliser", "entropy"}) | {self.prefilter} - {"confidence"}

    @cached_property
    def _objective(self) -> Objective:
        return as_objective(self.objective)

    @cached_property
    def _probes(self) -> Probes:
        return Probes(self.probes, self.probe_count, self.probe_share)

    @cached_property
    def _prefilter(self) -> Prefilter:
        return Prefilter(self.prefilter, self.rho, self.delta, self.candidates, self.sure, self.writes)

    @cached_property
    def _shaping(self) -> Shaping:
        return Shaping(self.gate, self.floor_weight, self.floor_height, self.floor_form, self.floor_annealing, self.mix)

    def init(self, canvas: Canvas) -> Bank | None:
        return None if self.work is None else Bank.empty(canvas)

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> tuple[Tensor, Any]:
        confidence_BL = proposal.confidence_BL(prediction)
        scene = Scene.of(view, prediction, proposal)
        candidates_BL, state = self._competing(view, scene, proposal, confidence_BL, state)
        needs_B = candidates_BL.any(1)
        if not bool(needs_B.any()):
            return confidence_BL, state
        part = self.tried(scene.select(needs_B), candidates_BL[needs_B], view)
        drops_BL, first_BL = torch.zeros_like(confidence_BL), torch.zeros_like(candidates_BL)
        drops_BL[needs_B], first_BL[needs_B] = part.drops_BL.to(drops_BL.dtype), part.first_BL
        return self._scores(view, prediction, confidence_BL, candidates_BL, Tried(drops_BL, first_BL)), state

    def _competing(
        self, view: View, scene: Scene, proposal: Proposal, confidence_BL: Tensor, bank: Bank | None
    ) -> tuple[Tensor, Bank | None]:
        """The candidates of the batch rows in which there is something to choose, and the bank when they are paid."""
        count_B = torch.ones_like(view.canvas.block_B) if proposal.count_B is None else proposal.count_B
        candidates_BL = self._prefilter.chosen(view.canvas.open_BL, scene.prediction, confidence_BL, count_B)
        if self.work is None:
            return candidates_BL & (candidates_BL.sum(1) > count_B)[:, None], None
        assert bank is not None, "the state that `init` made"
        price, bank = self.price(scene), bank.earn(self.work, *plain_flops(scene, self.rows(view)))
        candidates_BL = affordable(candidates_BL, confidence_BL, price, bank)
        candidates_BL = candidates_BL & (candidates_BL.sum(1) > count_B)[:, None]
        return candidates_BL, bank.pay(price.of(candidates_BL))

    def _scores(
        self, view: View, prediction: Prediction, confidence_BL: Tensor, candidates_BL: Tensor, tried: Tried
    ) -> Tensor:
        drops_BL = tried.drops_BL
        failed_B = ~(torch.isfinite(drops_BL) | ~candidates_BL).all(1)
        if bool(failed_B.any()):
            self._report(view, int(failed_B.sum()))
            drops_BL = torch.where(failed_B[:, None], 0.0, drops_BL)
        steered_B = differ(candidates_BL, drops_BL)
        net_BL = self.sign * (drops_BL - self._objective.charge(prediction))
        shaped_BL = self._shaping.scores(net_BL, prediction, confidence_BL, view.time_B)
        others_BL = torch.where(view.canvas.open_BL, confidence_BL, -torch.inf)
        scores_BL = in_front(candidates_BL, shaped_BL, others_BL)
        scores_BL = in_front(tried.first_BL, shaped_BL, scores_BL)
        return torch.where(steered_B[:, None], scores_BL, confidence_BL)

    def _report(self, view: View, batch_rows: int) -> None:
        view.denoiser.base.ledger.fell_back(batch_rows)
        text = f"steering gave NaN or infinite scores in step {view.step}; confidence decides there (Cost.fallbacks)"
        warnings.warn(text, SteeringWarning, stacklevel=2)
