"""What revisers ask about the rows that are written: which they are, how certain their tokens are, which are least so.

Shapes: B batch rows, L canvas rows, N predicted rows, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.parts import Ranked
from tabes.prediction import Prediction

__all__ = ["WhenWritten", "least", "probability", "working_block", "written"]


def written(canvas: Canvas, block_B: Tensor) -> Tensor:
    """(B, L): the rows of these blocks that hold a token of ours."""
    return canvas.writable_BL & ~canvas.masked_BL & (canvas.block_BL == block_B[:, None])


def working_block(canvas: Canvas) -> Tensor:
    """(B,): the block written last: the current one or, while nothing of it is written, the one before (-1: none)."""
    current_B = canvas.block_B
    before_BL = canvas.writable_BL & (canvas.block_BL < current_B[:, None])
    before_B = torch.where(before_BL, canvas.block_BL, -1).amax(1)
    return torch.where(written(canvas, current_B).any(1), current_B, before_B)


def probability(prediction: Prediction, tokens_BL: Tensor) -> Tensor:
    """(B, L): what the prediction gives these tokens; 0 where nothing was predicted."""
    if len(prediction) == 0:
        return torch.zeros(tokens_BL.shape, device=tokens_BL.device)
    tokens_N1 = tokens_BL[prediction.rows_BL][:, None]

    def pick(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
        return {"logit": logits_nV.gather(1, tokens_N1[rows]).squeeze(1)}

    found_BL = (prediction.reduce(pick)["logit"] - prediction.log_normaliser_BL).exp()
    return torch.where(prediction.rows_BL, found_BL, 0.0)


def least(scores_BL: Tensor, among_BL: Tensor, count_B: Tensor) -> Tensor:
    """(B, L): the `count_B` rows of `among_BL` with the lowest scores; the lowest row first among equals."""
    order_BL = torch.where(among_BL, scores_BL, torch.inf).argsort(dim=1, stable=True)
    return among_BL & (order_BL.argsort(dim=1) < count_B[:, None])


@dataclass(frozen=True)
class WhenWritten(Batched):
    """The probability every written token had in the step that wrote it.

    What is written in a step is settled after the reviser was asked, so a step keeps what was offered, and the next one
    sees which of it was taken.
    """

    masked_BL: Tensor
    offered_BL: Tensor
    certainty_BL: Tensor

    @classmethod
    def create(cls, canvas: Canvas) -> WhenWritten:
        zeros_BL = torch.zeros(canvas.tokens_BL.shape, device=canvas.tokens_BL.device)
        return cls(canvas.masked_BL, zeros_BL, zeros_BL)

    def seen(self, canvas: Canvas, ranked: Ranked) -> WhenWritten:
        """With the tokens that the last step wrote, and what this one offers."""
        new_BL = self.masked_BL & ~canvas.masked_BL
        certainty_BL = torch.where(new_BL, self.offered_BL, self.certainty_BL)
        return WhenWritten(canvas.masked_BL, ranked.proposal.confidence_BL(ranked.prediction), certainty_BL)
