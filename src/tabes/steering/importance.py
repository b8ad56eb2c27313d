"""Token importance (TIS): how much a soft write of a row lowers what is left, by one backward pass (paper, sec. 3).

    TIS_i = -<g_i, delta_i>,   g_i = gradient of the objective over the probes, with respect to the embedding of row i

taken where the candidates' embeddings are e_mask + a delta: `expansion` a = 0 is the paper's theorem, a = 1/2 the
midpoint rule, "gauss" the two-point Gauss rule, exact up to cubic terms. Shapes: B batch rows, L canvas rows, N
copies, E embedding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import Literal, get_args

import torch
from torch import Tensor

from tabes.settings import check, setting
from tabes.steering.failures import row_by_row
from tabes.steering.objectives import Objective, TotalEntropy
from tabes.steering.probes import Probes
from tabes.steering.scene import Copies, Scene
from tabes.steering.writes import soft_deltas

__all__ = ["Backward", "Expansion", "Importance", "Injection", "SelfTerm"]

Expansion = float | Literal["gauss"]
Injection = Literal["joint", "alone"]
SelfTerm = Literal["include", "avoid", "exclude"]
Backward = Literal["replay", "dense"]

_GAUSS = (0.5 - 0.5 / sqrt(3), 0.5 + 0.5 / sqrt(3))


@dataclass(frozen=True)
class Importance:
    """The first-order drop of the objective for writing each candidate.

    `injection`: the soft writes of all candidates at once, or each alone in a copy of its own. `self_term`: a row's own
    entropy is included (cheap), avoided (probes outside the candidates) or excluded exactly (a copy per candidate).
    `backward`: replay candidates and probes only, or the whole canvas (the reference).
    """

    expansion: Expansion = setting(
        0.0,
        "where from the mask (0) to the soft write (1) the gradient is taken",
        least=0,
        most=1,
        choices=("gauss",),
    )
    injection: Injection = setting(
        "joint", "all soft writes at once, or each alone in a copy of its own", choices=get_args(Injection)
    )
    self_term: SelfTerm = setting("include", "a row's own entropy in the sum", choices=get_args(SelfTerm))
    backward: Backward = setting(
        "replay", "back through candidates and probes only, or through the whole canvas", choices=get_args(Backward)
    )
    probes: Probes = field(default_factory=Probes)
    objective: Objective = field(default_factory=TotalEntropy)

    def __post_init__(self) -> None:
        check(self)

    @property
    def points(self) -> tuple[float, ...]:
        """Where on the way from the mask to the soft write gradients are taken."""
        return _GAUSS if self.expansion == "gauss" else (float(self.expansion),)

    def drops(self, scene: Scene, candidates_BL: Tensor) -> Tensor:
        """(B, L) in the objective's units, positive where a write helps, 0 off the candidates, NaN where it failed."""
        return row_by_row(self._drops, scene, candidates_BL)

    def _drops(self, scene: Scene, candidates_BL: Tensor) -> Tensor:
        delta_BLE = soft_deltas(scene, candidates_BL)
        probes_BL = self.probes.chosen(scene.canvas, scene.prediction, candidates_BL)
        if self.self_term == "avoid":
            probes_BL = probes_BL & ~candidates_BL
        joint = self.injection == "joint"
        drops = torch.stack(
            [
                self._together(scene, candidates_BL, probes_BL, delta_BLE, a)
                if joint and self.self_term != "exclude"
                else self._apart(scene, candidates_BL, probes_BL, delta_BLE, a)
                for a in self.points
            ]
        )
        return drops.mean(0)

    def _together(self, scene: Scene, candidates_BL: Tensor, probes_BL: Tensor, delta_BLE: Tensor, a: float) -> Tensor:
        """One backward pass for all candidates."""
        gradient_BLE = self._gradient(scene, candidates_BL | probes_BL, probes_BL, a * delta_BLE)
        return -(gradient_BLE * delta_BLE).sum(-1)

    def _apart(self, scene: Scene, candidates_BL: Tensor, probes_BL: Tensor, delta_BLE: Tensor, a: float) -> Tensor:
        """A copy per candidate: its own soft write, or its own sum without itself, or both."""
        length = candidates_BL.shape[1]
        copies, found = Copies.of(candidates_BL), []
        for part in copies.chunks(length):
            own_nL, b_n = part.own(length), part.batch_N
            moved_nLE = a * delta_BLE[b_n]
            if self.injection == "alone":
                moved_nLE = moved_nLE * own_nL[..., None]
            probes_nL = probes_BL[b_n] & ~own_nL if self.self_term == "exclude" else probes_BL[b_n]
            active_nL = candidates_BL[b_n] if self.injection == "joint" else own_nL
            gradient_nLE = self._gradient(scene, active_nL | probes_nL, probes_nL, moved_nLE, b_n)
            at = torch.arange(len(part), device=b_n.device), part.row_N
            found.append(-(gradient_nLE[at] * delta_BLE[b_n, part.row_N]).sum(-1))
        return copies.spread(torch.cat(found), candidates_BL) if found else delta_BLE.new_zeros(candidates_BL.shape)

    def _gradient(
        self,
        scene: Scene,
        active_NL: Tensor,
        probes_NL: Tensor,
        moved_NLE: Tensor,
        batch_N: Tensor | None = None,
    ) -> Tensor:
        """d objective / d embeddings of the active rows, every other row's keys and values as remembered."""
        canvas, memory, content_NL = scene.canvas, scene.memory, scene.content_BL
        if batch_N is not None:
            canvas, memory, content_NL = canvas.select(batch_N), memory.select(batch_N), content_NL[batch_N]
        plain_NLE = scene.denoiser.base.network.embed(canvas.tokens_BL)
        with torch.enable_grad():
            leaf_NLE = (plain_NLE + moved_NLE.to(plain_NLE.dtype)).detach().requires_grad_()
            prediction = scene.denoiser.replay(
                memory,
                content_NL if self.backward == "dense" else active_NL,
                embeddings_BLE=leaf_NLE,
                read_BL=probes_NL,
                statistics=self.objective.statistics,
            )
            if len(prediction) == 0:
                return torch.zeros_like(moved_NLE)
            value_N = self.objective.value(canvas, prediction)
            (gradient_NLE,) = torch.autograd.grad(value_N.sum(), leaf_NLE)
        return gradient_NLE.to(moved_NLE.dtype)
