"""What a good write makes small. An objective reads the prediction of the rows that are still open, relaxed or real.

`value` is what is left, `own` the part of it that is a row's own and goes away whenever that row is written, `charge`
what writing a row costs whatever it does to others. Shapes: B batch rows, L canvas rows, N predicted rows, V
vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import UsageError
from tabes.prediction import Prediction
from tabes.registry import Registry

__all__ = [
    "OBJECTIVES",
    "ClassWeighted",
    "InformationGain",
    "MeanOverBlocks",
    "Objective",
    "TotalEntropy",
    "Verifier",
    "as_objective",
]


class Objective(ABC):
    """A number per batch row; steering prefers the writes after which it is smallest."""

    statistics: ClassVar[frozenset[str]] = frozenset({"entropy"})

    @abstractmethod
    def value(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        """(B,), over the rows of `prediction`; gradients pass through it."""

    def own(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        """(B, L): how much of the value each predicted row holds by itself."""
        return torch.zeros(prediction.rows_BL.shape, device=prediction.rows_BL.device)

    def charge(self, prediction: Prediction) -> Tensor:
        """(B, L): what is subtracted from the score of a row for writing it."""
        return torch.zeros(prediction.rows_BL.shape, device=prediction.rows_BL.device)


OBJECTIVES: Registry[Objective] = Registry("objective")


class _Weighted(Objective):
    """A weighted sum of entropies."""

    def weights(self, canvas: Canvas, rows_BL: Tensor) -> Tensor:
        """(B, L) in the entropies' units, in float64: they are rounded to what the entropies are."""
        return torch.ones_like(rows_BL, dtype=torch.float64)

    def value(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        return self._weighted(canvas, prediction).sum(1)

    def own(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        return self._weighted(canvas, prediction)

    def _weighted(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        entropy_BL = prediction.entropy_BL
        return entropy_BL * self.weights(canvas, prediction.rows_BL).to(entropy_BL.dtype)


@OBJECTIVES.register("entropy")
@dataclass(frozen=True)
class TotalEntropy(_Weighted):
    """The paper's: the sum of the entropies of what is still masked."""


@OBJECTIVES.register("information_gain")
@dataclass(frozen=True)
class InformationGain(_Weighted):
    """Total entropy, minus the written row's own uncertainty: what is learned less what is guessed."""

    def charge(self, prediction: Prediction) -> Tensor:
        return prediction.entropy_BL


@OBJECTIVES.register("block_mean")
@dataclass(frozen=True)
class MeanOverBlocks(_Weighted):
    """The mean entropy of every block, added up: a block with many masks does not outweigh the others."""

    def weights(self, canvas: Canvas, rows_BL: Tensor) -> Tensor:
        return 1 / _per_block(canvas, canvas.masked_BL.double()).clamp(min=1)

    def own(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        """Less than a row's entropy over the count: when it is written, the mean of its block is over one row fewer."""
        entropy_BL = prediction.entropy_BL
        sum_BL = _per_block(canvas, entropy_BL)
        count_BL = _per_block(canvas, canvas.masked_BL.to(entropy_BL.dtype))
        without_BL = (sum_BL - entropy_BL) / (count_BL - 1).clamp(min=1)
        return torch.where(prediction.rows_BL, sum_BL / count_BL.clamp(min=1) - without_BL, 0.0)


def _per_block(canvas: Canvas, value_BL: Tensor) -> Tensor:
    """(B, L): at every row the sum of its block's values."""
    block_BL = canvas.block_BL.clamp(min=0)
    sums_BK = value_BL.new_zeros(len(value_BL), int(block_BL.max()) + 1).scatter_add(1, block_BL, value_BL)
    return sums_BK.gather(1, block_BL)


@dataclass(frozen=True)
class ClassWeighted(_Weighted):
    """Entropies weighted by the class of their position, for models whose canvas mixes text, image, actions.

    `classes[p]` is the class of the position p (padding not counted), `by_class` the weight of each class.
    """

    classes: tuple[int, ...]
    by_class: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.classes or not 0 <= min(self.classes) <= max(self.classes) < len(self.by_class):
            raise UsageError(f"classes must be 0 to {len(self.by_class) - 1}, one for each position")

    def weights(self, canvas: Canvas, rows_BL: Tensor) -> Tensor:
        if int(canvas.positions_BL.max()) >= len(self.classes):
            raise UsageError(f"{len(self.classes)} positions have a class but the canvas has more")
        weight_C = torch.tensor(self.by_class, dtype=torch.float64, device=rows_BL.device)
        return weight_C[torch.tensor(self.classes, device=rows_BL.device)][canvas.positions_BL]


@dataclass(frozen=True)
class Verifier(Objective):
    """A constraint of yours: `function(p_BLV)` is how far (B,) the relaxed prediction is from satisfying it.

    Predicted rows hold the model's distribution, all others are certain of their token (masks not predicted: uniform).
    It has to be differentiable for rules that use a gradient, and makes all logits of these rows, so keep it for
    vocabularies that are small. `entropy_weight` times the total entropy is added.
    """

    function: Callable[[Tensor], Tensor]
    entropy_weight: float = 0.0

    def value(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        logits_NV = prediction.logits_NV()
        p_NV = logits_NV.softmax(-1)
        certain_BLV = torch.nn.functional.one_hot(canvas.tokens_BL, prediction.vocab_size).to(p_NV.dtype)
        unknown_BL1 = canvas.masked_BL[..., None]
        p_BLV = torch.where(unknown_BL1, 1 / prediction.vocab_size, certain_BLV)
        p_BLV = p_BLV.index_put((prediction.rows_BL,), p_NV)
        value_B = self.function(p_BLV)
        if self.entropy_weight:
            value_B = value_B + self.entropy_weight * prediction.entropy_BL.sum(1)
        return value_B

    def own(self, canvas: Canvas, prediction: Prediction) -> Tensor:
        return self.entropy_weight * prediction.entropy_BL


def as_objective(objective: str | Objective) -> Objective:
    """An objective by name or as it is."""
    if isinstance(objective, Objective):
        return objective
    return OBJECTIVES.build(objective)
