"""What stands between the raw drop and the score: the paper's confidence gate and entropy floor, and mixing.

    score_i = gate_i drop_i - lambda_t [h_t - H_i]_+^2,      gate_i = clip(1 - H_i / log V, 0, 1)

`h_t` is `floor_height` times the share of masks left ("falling": the paper's method section) or one minus it
("rising": its experiments section, zero at the start). `lambda_t` is `floor_weight`, or falls with the masks
("linear"); the paper says it is annealed and not how. With `mix` w the score is log confidence + w times the above.
Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Literal, get_args

from torch import Tensor

from tabes.prediction import Prediction
from tabes.settings import check, setting

__all__ = ["FloorAnnealing", "FloorForm", "Shaping"]

FloorForm = Literal["falling", "rising"]
FloorAnnealing = Literal["none", "linear"]


@dataclass(frozen=True)
class Shaping:
    """Gate, floor and mixing; the default changes nothing."""

    gate: bool = setting(False, "whether the drop of an uncertain row counts less", choices=(False, True))
    floor_weight: float = setting(0.0, "what a row below the floor is charged (lambda); 0: no floor", least=0)
    floor_height: float = setting(0.0, "where the floor of the entropy starts or ends, in nats (h_max)", least=0)
    floor_form: FloorForm = setting("falling", "how the floor moves while decoding", choices=get_args(FloorForm))
    floor_annealing: FloorAnnealing = setting(
        "none", "whether lambda falls with the masks", choices=get_args(FloorAnnealing)
    )
    mix: float | None = setting(
        None, "the score is log confidence + this much of the shaped drop; none: the drop alone", above=-inf, below=inf
    )

    def __post_init__(self) -> None:
        check(self)

    def scores(self, drops_BL: Tensor, prediction: Prediction, confidence_BL: Tensor, time_B: Tensor) -> Tensor:
        """(B, L). `time_B` is the share of the masks that is left, 1 at the start."""
        entropy_BL, scores_BL = prediction.entropy_BL, drops_BL
        if self.gate:
            scores_BL = scores_BL * (1 - entropy_BL / log(prediction.vocab_size)).clamp(0, 1)
        if self.floor_weight:
            share_B = time_B if self.floor_form == "falling" else 1 - time_B
            weight_B = self.floor_weight * (time_B if self.floor_annealing == "linear" else 1.0)
            below_BL = (self.floor_height * share_B[:, None] - entropy_BL).clamp(min=0)
            scores_BL = scores_BL - (below_BL**2) * (weight_B[:, None] if isinstance(weight_B, Tensor) else weight_B)
        if self.mix is not None:
            scores_BL = confidence_BL.clamp(min=1e-30).log() + self.mix * scores_BL
        return scores_BL
