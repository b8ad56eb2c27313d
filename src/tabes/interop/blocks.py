"""One block of a pipeline as a canvas of ours, one step of ours in the pipeline's words, and which rules that is enough
for. Shapes: B batch rows, L rows of a block, N rows read, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.canvas import Canvas, Move
from tabes.errors import CombinationError
from tabes.interop.given import GivenLogits
from tabes.revisers import Edit
from tabes.sampling import PartSampler
from tabes.steering.path_ranking import PathRanking
from tabes.steering.ranking import Steered
from tabes.view import View

__all__ = ["BlockStep", "canvas_of", "local_rule", "told"]


@dataclass(frozen=True)
class BlockStep:
    """What a pipeline wants of a step: fields as diffusers' BlockRefinementSchedulerOutput has them.

    `sampled_probs` is under the model's own distribution, 0 for rows that were not read.
    """

    prev_sample: Tensor
    transfer_index: Tensor
    editing_transfer_index: Tensor
    sampled_tokens: Tensor
    sampled_probs: Tensor
    pred_logits: Tensor


def canvas_of(sample_BL: Tensor, mask_id: int, prompt_mask_L: Tensor | None) -> Canvas:
    """The block as a canvas of its own; what is written already and was not given may be edited."""
    given_L = torch.zeros_like(sample_BL[0], dtype=torch.bool) if prompt_mask_L is None else prompt_mask_L
    positions_BL = torch.arange(sample_BL.shape[1], device=sample_BL.device).expand_as(sample_BL)
    writable_BL = (~given_L.to(sample_BL.device)).expand_as(sample_BL).clone()
    nothing_BL = torch.zeros_like(writable_BL)
    return Canvas(sample_BL, writable_BL, nothing_BL, positions_BL, torch.zeros_like(sample_BL), mask_id)


def told(canvas: Canvas, after: Canvas, move: Move, view: View, given: GivenLogits) -> BlockStep:
    """The step in the pipeline's words."""
    written_BL = move.write_BL & canvas.masked_BL
    last = view._last
    assert last is not None
    proposed_BL = torch.where(last.rows_BL, move.tokens_BL, canvas.tokens_BL)
    picked_N1 = given.logits_BLV[last.rows_BL].float().gather(1, proposed_BL[last.rows_BL][:, None])
    probability_BL = (last.spread(picked_N1.squeeze(1)) - last.log_normaliser_BL).exp()
    return BlockStep(
        prev_sample=after.tokens_BL,
        transfer_index=written_BL,
        editing_transfer_index=move.write_BL & ~canvas.masked_BL,
        sampled_tokens=proposed_BL,
        sampled_probs=torch.where(last.rows_BL, probability_BL, 0.0),
        pred_logits=given.logits_BLV,
    )


def local_rule(name: str, rule: Any) -> PartSampler:
    """The rule, if the logits of a block are all it needs."""
    if not isinstance(rule, PartSampler):
        why = "is one whole transition with a clock and a canvas of its own"
    elif rule.remembers or isinstance(rule.ranking, Steered | PathRanking):
        why = "asks the network more than once a step"
    elif rule.reviser is not None and not isinstance(rule.reviser, Edit):
        why = f"has the reviser {type(rule.reviser).__name__}, which masks again what the pipeline counts as done"
    else:
        return rule
    raise CombinationError(
        f"sampler '{name}' does not work as a pipeline's scheduler, which sees the logits of one block and nothing "
        f"else: it {why}; use tabes.generate, or a local rule such as 'confidence', 'margin' or 'quota'"
    )
