"""Canvas in, ids and text out. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.stop import Stop, ended

__all__ = ["sequences_of", "texts_of"]


def sequences_of(base: Denoiser, canvas: Canvas) -> Tensor:
    """The ids (B, L); from the first unfilled position of a row on, padding."""
    unfilled_BL = canvas.masked_BL.cumsum(1) > 0
    filler = base.mask_id if base.pad_id is None else base.pad_id
    return torch.where(unfilled_BL, filler, canvas.tokens_BL).cpu()


def texts_of(base: Denoiser, canvas: Canvas, *, new: int, stop: Stop | None) -> tuple[str, ...] | None:
    """The new text of every row, or its whole text where holes lay inside the prompt, cut before the stop.

    What was written into holes behind an end-of-text token, up to the next given token, is no text.
    """
    if base.tokenizer is None:
        return None
    canvas = canvas.to(torch.device("cpu"))
    standing_BL = ~canvas.padding_BL & (canvas.masked_BL.cumsum(1) == 0) & _before_stop_id(canvas, stop)
    standing_BL &= ~ended(canvas, base.eos_ids)
    started_BL = canvas.writable_BL.cumsum(1) > 0
    texts = []
    for row, has_inner_holes in enumerate((canvas.writable_BL.sum(1) > new).tolist()):
        shown_L = started_BL[row] & standing_BL[row]
        text = _decode(base, canvas, row, shown_L if has_inner_holes else shown_L & canvas.writable_BL[row])
        cut = None if stop is None else stop.cut(text)
        if has_inner_holes and cut is None:
            texts.append(_decode(base, canvas, row, standing_BL[row]))
        elif has_inner_holes:
            texts.append(_decode(base, canvas, row, ~canvas.padding_BL[row] & ~started_BL[row]) + str(cut))
        else:
            texts.append(text if cut is None else cut)
    return tuple(texts)


def _before_stop_id(canvas: Canvas, stop: Stop | None) -> Tensor:
    if stop is None or not stop.ids:
        return torch.ones_like(canvas.writable_BL)
    return (torch.isin(canvas.tokens_BL, torch.tensor(stop.ids)) & canvas.writable_BL).cumsum(1) == 0


def _decode(base: Denoiser, canvas: Canvas, row: int, shown_L: Tensor) -> str:
    assert base.tokenizer is not None
    return str(base.tokenizer.decode(canvas.tokens_BL[row][shown_L].tolist(), skip_special_tokens=True))
