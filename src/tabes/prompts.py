"""Text, conversations or ids in, canvas out. Shapes: B prompts, P the longest prompt, L canvas rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.encoding import Encoded, cut_to_fit, encoded
from tabes.errors import UsageError
from tabes.messages import Conversation, is_conversation, rendered

__all__ = ["Prompt", "canvas_from_ids", "canvas_from_text"]

Prompt: TypeAlias = str | Conversation | Sequence[str | Conversation]


def canvas_from_text(
    base: Denoiser, prompt: Prompt | None, *, max_new_tokens: int | None, block_length: int | None
) -> Canvas:
    """The prompts as the tokenizer writes them, a mask token inside them being a hole, then the new tokens.

    A conversation is written by the model's chat template, which has its special tokens in it. Special tokens the
    tokenizer puts at the end of a text ([SEP]) stay at the end, behind the new tokens. What is longer than the context
    leaves room for is cut on the left, with a warning.
    """
    prompts = _prompts(prompt)
    if base.tokenizer is None:
        raise UsageError(f"{base.name} has no tokenizer; pass input_ids= instead of a prompt")
    new = _new(max_new_tokens)
    rows = []
    for one in cut_to_fit(base, [_encoded(base, one) for one in prompts], new):
        rows.append(one.head + one.body + [base.mask_id] * new + one.tail)
        if not rows[-1]:
            raise UsageError("the prompt is empty and max_new_tokens is 0; give a prompt or ask for new tokens")
    return _packed(base, rows, block_length)


def canvas_from_ids(
    base: Denoiser,
    input_ids: Tensor | Sequence[Sequence[int]],
    *,
    attention_mask: Tensor | None,
    max_new_tokens: int | None,
    block_length: int | None,
) -> Canvas:
    """Ids as they are, then the new tokens. Padding (attention_mask 0) moves to the left, where it changes nothing."""
    try:
        ids_BP = torch.as_tensor(input_ids)
    except (TypeError, ValueError):
        raise UsageError("input_ids is not a table of integer ids; give a tensor of shape (batch, length)") from None
    ids_BP = ids_BP[None] if ids_BP.dim() == 1 else ids_BP
    canvas = Canvas.create(
        ids_BP,
        mask_id=base.mask_id,
        attention_mask=attention_mask,
        max_new_tokens=_new(max_new_tokens),
        block_length=block_length,
    )
    return _left_padded(canvas)


def _prompts(prompt: Prompt | None) -> list[str | Conversation]:
    one = isinstance(prompt, str) or is_conversation(prompt)
    prompts = [prompt] if one else list(prompt) if isinstance(prompt, Sequence) else []
    if not prompts or not all(isinstance(each, str) or is_conversation(each) for each in prompts):
        what = "give a text or a list of texts, or messages, each with a role and a content (or input_ids=)"
        raise UsageError(f"prompt is {prompt!r:.80}; {what}")
    return prompts  # type: ignore[return-value]


def _encoded(base: Denoiser, prompt: str | Conversation) -> Encoded:
    if isinstance(prompt, str):
        return encoded(base, prompt, special=True)
    return encoded(base, rendered(base, prompt), special=False)


def _new(max_new_tokens: int | None) -> int:
    if max_new_tokens is not None and (not isinstance(max_new_tokens, int) or max_new_tokens < 0):
        raise UsageError(f"max_new_tokens is {max_new_tokens!r}; it must be 0 or more")
    return max_new_tokens or 0


def _packed(base: Denoiser, rows: list[list[int]], block_length: int | None) -> Canvas:
    """Rows of different lengths, padded on the left."""
    longest = max(map(len, rows))
    filler = base.mask_id if base.pad_id is None else base.pad_id
    ids_BL = torch.tensor([[filler] * (longest - len(row)) + row for row in rows])
    content_BL = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
    return Canvas.create(ids_BL, mask_id=base.mask_id, attention_mask=content_BL, block_length=block_length)


def _left_padded(canvas: Canvas) -> Canvas:
    order_BL = (~canvas.padding_BL).long().argsort(dim=1, stable=True)
    return canvas.map(lambda value_BL: value_BL.gather(1, order_BL))
