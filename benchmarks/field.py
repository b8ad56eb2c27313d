"""The loop the field runs today, as LLaDA's published sampler does: everything over the whole canvas at every step.

Logits of every row, at a temperature float64 noise over all of them, softmax over all of them, then -inf wherever a
token may not be written and a top-k for each batch row. Shapes: B batch rows, L canvas rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["field_decode", "field_step"]


@torch.no_grad()
def field_step(
    model: PreTrainedModel, tokens_BL: Tensor, *, mask_id: int, end: int, count: int, temperature: float
) -> Tensor:
    """The canvas with the `count` most confident masked rows before `end` filled."""
    masked_BL = tokens_BL == mask_id
    logits_BLV = model(tokens_BL).logits
    proposed_BL = _noised(logits_BLV, temperature).argmax(-1)
    p_BLV = logits_BLV.softmax(-1)
    confidence_BL = p_BLV.gather(-1, proposed_BL[..., None]).squeeze(-1)
    confidence_BL[:, end:] = -torch.inf
    proposed_BL = torch.where(masked_BL, proposed_BL, tokens_BL)
    confidence_BL = torch.where(masked_BL, confidence_BL, -torch.inf)
    chosen_BL = torch.zeros_like(masked_BL)
    for b in range(tokens_BL.shape[0]):
        chosen_BL[b, confidence_BL[b].topk(count).indices] = True
    return torch.where(chosen_BL, proposed_BL, tokens_BL)


def _noised(logits_BLV: Tensor, temperature: float) -> Tensor:
    if temperature == 0:
        return logits_BLV
    logits_BLV = logits_BLV.to(torch.float64)
    noise_BLV = torch.rand_like(logits_BLV, dtype=torch.float64)
    return logits_BLV.exp() / (-noise_BLV.log()) ** temperature


def field_decode(
    model: PreTrainedModel, prompt_BP: Tensor, *, mask_id: int, new: int, block: int, count: int, temperature: float
) -> Iterator[Tensor]:
    """The canvas after every step, `block` rows at a time, `count` tokens a step."""
    tokens_BL = torch.cat([prompt_BP, prompt_BP.new_full((prompt_BP.shape[0], new), mask_id)], 1)
    prompt = prompt_BP.shape[1]
    for start in range(prompt, prompt + new, block):
        for _ in range(block // count):
            tokens_BL = field_step(
                model, tokens_BL, mask_id=mask_id, end=start + block, count=count, temperature=temperature
            )
            yield tokens_BL
