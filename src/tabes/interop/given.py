"""A denoiser that says only what it was given: logits somebody else's loop has computed, of one canvas.

Shapes: B batch rows, L canvas rows, N predicted rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.errors import CombinationError
from tabes.models.network import Work
from tabes.prediction import Prediction

__all__ = ["GivenLogits"]


@dataclass(frozen=True)
class GivenLogits:
    """`logits_BLV` are what the network said of the canvas that holds `tokens_BL`; nothing else can be asked."""

    logits_BLV: Tensor
    tokens_BL: Tensor
    mask_id: int

    @property
    def base(self) -> Denoiser:
        """With a network that is not there."""
        network = _Absent(self.logits_BLV.shape[-1], self.logits_BLV.dtype, self.logits_BLV.device)
        return Denoiser(network, None, self.mask_id, name="the pipeline's model")

    def begin(self) -> GivenLogits:
        return self

    def select(self, keep_B: Tensor) -> GivenLogits:
        return GivenLogits(self.logits_BLV[keep_B], self.tokens_BL[keep_B], self.mask_id)

    @property
    def takes_offers(self) -> bool:
        return False

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        """Nobody asks for another canvas."""

    def predict(
        self,
        canvas: Canvas,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        if remember or not torch.equal(canvas.tokens_BL, self.tokens_BL):
            raise _needs_network()
        return Prediction(rows_BL, _Rows(self.logits_BLV[rows_BL]), (self.mask_id,), statistics)

    def replay(self, memory: Any, rows_BL: Tensor, **arguments: Any) -> Prediction:
        raise _needs_network()


@dataclass(frozen=True)
class _Rows:
    """Logits (N, V) that are there already."""

    logits_NV: Tensor

    @property
    def vocab_size(self) -> int:
        return self.logits_NV.shape[-1]

    def __len__(self) -> int:
        return self.logits_NV.shape[0]

    def pick(self, index_M: Tensor) -> _Rows:
        return _Rows(self.logits_NV[index_M])

    def logits(self, rows: slice) -> Tensor:
        # A copy: whoever reads logits may write the impossible ids into them.
        return self.logits_NV[rows].clone()


class _Absent:
    """A network of which only the sizes are known."""

    name = "the pipeline's model"
    max_length: int | None = None
    replays = timed = shifted = False

    def __init__(self, vocab_size: int, dtype: torch.dtype, device: torch.device) -> None:
        self.vocab_size, self.dtype, self.device = vocab_size, dtype, device
        self.hidden_size, self.work = 0, Work(0.0, 0.0, 0.0, saves=False)

    def embedding_weight(self) -> NoReturn:
        raise _needs_network()

    def embed(self, tokens_BL: Tensor) -> NoReturn:
        raise _needs_network()

    def forward(self, tokens_BL: Tensor | None, **arguments: Any) -> NoReturn:
        raise _needs_network()

    def replay(self, memory: Any, rows_BR: Tensor, **arguments: Any) -> NoReturn:
        raise _needs_network()

    def head(self, hidden_Nd: Tensor) -> NoReturn:
        raise _needs_network()


def _needs_network() -> CombinationError:
    return CombinationError(
        "this rule asks the network for more than the logits of the current block, which is all a pipeline's scheduler "
        "sees; use a local rule such as 'confidence' or 'margin', or tabes.generate"
    )
