"""One item decoded with one rule: which step filled which row. Shapes: L canvas rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.bench.specs import SamplerSpec
from tabes.canvas import Canvas
from tabes.decoding import decode
from tabes.denoiser import AnyDenoiser
from tabes.outputs import texts_of
from tabes.prompts import canvas_from_text
from tabes.tasks import Item

__all__ = ["Trace", "trace"]


@dataclass(frozen=True)
class Trace:
    """`steps_L` counts from 1 and is 0 where nothing was filled."""

    sampler: str
    steps_L: Tensor
    text: str


def trace(
    model: AnyDenoiser,
    item: Item,
    spec: SamplerSpec,
    *,
    seed: int,
    on_canvas: Callable[[Canvas], None] = lambda canvas: None,
) -> Trace:
    """Decode an item whose prompt has the holes. A row filled again after a revision counts from the last time."""
    base = model.base
    canvas = canvas_from_text(base, item.prompt, max_new_tokens=None, block_length=None)
    steps_L = torch.zeros(canvas.tokens_BL.shape[1], dtype=torch.int64)
    for step in decode(spec.wrap(model), canvas, spec.build(), seed=seed):
        steps_L[torch.tensor(step.positions[0], dtype=torch.int64)] = step.index + 1
        canvas = step.canvas
        on_canvas(canvas)
    texts = texts_of(base, canvas, new=0, stop=None) or ("",)
    return Trace(spec.text, steps_L, texts[0])
