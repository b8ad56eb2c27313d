"""Score entropy discrete diffusion with masks (SEDD, arXiv 2310.16834): reveal by the ratios s(v) of a step of time.

    euler      P(write v) = dt sigma'(t) s(v)
    analytic   P(write v) = (e^(sigma(t) - sigma(s)) - 1) s(v)          (Tweedie tau-leaping)

for a masked row and a step dt = t - s; what is left of 1 is the chance to stay masked. What is masked after the last
step is drawn with weights s(v) (`fill`): the reference's denoising call, which samples and does not take the best.

`scores` says where s comes from. "probabilities", of any denoiser: s(v) = p(v) / (e^sigma(t) - 1), which is what a
perfect score is for masks, so that the coin needs no prediction and the vocabulary is read at revealed rows only.
"raw": the network's output is log s(v) as it stands (scaled by sigma already), a sum of its own in every row: read at
all masked rows in every step. Weights that add up to more than 1 leave no chance to stay masked and are normalised, as
the reference's draw does in effect. A timed network is told t, in the terms of the schedule it was trained with.

Limits: "analytic" with probabilities is MDLM's ancestral step whatever the schedule. With log-linear noise
e^(sigma(t) - sigma(s)) - 1 = dt sigma'(t): both predictors are the same distribution. With another one Euler tends to
"analytic" as the steps grow smaller.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.kernels.base import Chances, Kernel, Now
from tabes.sampling import KERNELS
from tabes.schedules import SCHEDULES, PolynomialSchedule, Schedule
from tabes.settings import as_in, setting

__all__ = ["SEDD"]


@KERNELS.register("sedd")
@dataclass(frozen=True)
class SEDD(Kernel):
    """Every masked row is revealed by its own coin, weighted by the network's scores; written rows stay."""

    fill: str = as_in(Kernel, "fill", default="draw")
    predictor: str = setting("euler", "how a step of time becomes a chance", choices=("euler", "analytic"))
    scores: str = setting(
        "probabilities",
        "what the network's output is: tokens' probabilities, or log-scores",
        choices=("probabilities", "raw"),
    )
    schedule: str = setting("loglinear", "how the noise grows with time", choices=tuple(SCHEDULES))
    power: float = setting(2.0, "of the polynomial schedule: 1 is linear, more writes sooner", above=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scores == "raw" and float(self._noise.alpha(torch.ones((), dtype=torch.float64))) <= 0:
            raise UsageError(
                f"schedule is {self.schedule!r}, whose noise is infinite at first; scores='raw' needs 'loglinear'"
            )

    @property
    def coins_read(self) -> bool:  # type: ignore[override]
        """Raw scores have a sum of their own in every row."""
        return self.scores == "raw"

    def chances(self, now: Now, memory: Any) -> Chances:
        if now.prediction is None:
            reveal_BL = self._of_probabilities(now.time_B, now.next_time_B)[:, None]
        else:
            weight_B = self._of_scores(now.time_B, now.next_time_B)
            reveal_BL = weight_B[:, None] * now.prediction.log_normaliser_BL.double().exp()
        return Chances(reveal_BL, torch.zeros_like(reveal_BL))

    def _of_scores(self, t_B: Tensor, s_B: Tensor) -> Tensor:
        """What a score is multiplied with."""
        if self.predictor == "euler":
            return (t_B - s_B) * self._noise.rate(t_B)
        return self._noise.alpha(s_B) / self._noise.alpha(t_B) - 1

    def _of_probabilities(self, t_B: Tensor, s_B: Tensor) -> Tensor:
        """The same over e^sigma - 1 = (1 - alpha) / alpha, written so that infinite noise does no harm."""
        if self.predictor == "euler":
            return (t_B - s_B) * self._noise.weight(t_B)
        alpha_B = self._noise.alpha(t_B)
        return (self._noise.alpha(s_B) - alpha_B) / (1 - alpha_B)

    @property
    def _noise(self) -> Schedule:
        return PolynomialSchedule(self.power) if self.schedule == "polynomial" else SCHEDULES[self.schedule]
