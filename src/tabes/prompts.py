"""Text or ids in, canvas out. Shapes: B prompts, P the longest prompt, L canvas rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["canvas_from_ids", "canvas_from_text"]


def canvas_from_text(
    base: Denoiser, prompt: str | Sequence[str] | None, *, max_new_tokens: int | None, block_length: int | None
) -> Canvas:
    """The prompts as the tokenizer writes them, a mask token inside them being a hole, then the new tokens.

    Special tokens the tokenizer puts at the end of a text ([SEP]) stay at the end, behind the new tokens.
    """
    texts = _texts(prompt)
    if base.tokenizer is None:
        raise UsageError(f"{base.name} has no tokenizer; pass input_ids= instead of a prompt")
    new = [base.mask_id] * _new(max_new_tokens)
    rows = []
    for text in texts:
        ids, tail = _encode(base.tokenizer, text)
        rows.append(ids + new + tail)
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


def _texts(prompt: str | Sequence[str] | None) -> list[str]:
    texts = [prompt] if isinstance(prompt, str) else list(prompt) if isinstance(prompt, Sequence) else None
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"prompt is {prompt!r:.80}; give a text or a list of texts (or input_ids=)")
    return texts


def _new(max_new_tokens: int | None) -> int:
    if max_new_tokens is not None and (not isinstance(max_new_tokens, int) or max_new_tokens < 0):
        raise UsageError(f"max_new_tokens is {max_new_tokens!r}; it must be 0 or more")
    return max_new_tokens or 0


def _encode(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[int]]:
    """The ids, and apart from them the special ids the tokenizer added at the end."""
    # Not verbose: a text over the limit gets our own sentence when the canvas is checked.
    plain: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    full: list[int] = tokenizer.encode(text, add_special_tokens=True, verbose=False)
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            end = start + len(plain)
            # With nothing to tell head from tail (an empty text), everything but a closing token leads.
            end = max(end, len(full) - 1) if not plain and len(full) > 1 else end
            return full[:end], full[end:]
    return full, []


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
