"""States to judge scores on: held-out items, decoded by confidence one token a step, stopped anywhere.

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.decoding import decode
from tabes.denoiser import Denoiser
from tabes.presets import sampler
from tabes.prompts import canvas_from_text
from tabes.randomness import Randomness
from tabes.steering import Scene
from tabes.tasks import Item, Task

__all__ = ["LEAST_MASKED", "scene_of", "start", "stopped", "stops"]

# With one row left there is nothing its writing could tell about.
LEAST_MASKED = 2

_STATISTICS = ("confidence", "entropy", "log_normaliser", "top_token")


def start(model: Denoiser, task: Task, items: Sequence[Item]) -> Canvas:
    """The items with nothing written yet."""
    prompts = [item.prompt for item in items]
    canvas = canvas_from_text(model, prompts, max_new_tokens=task.max_new_tokens, block_length=None)
    return canvas.to(model.device)


def stops(canvas: Canvas, seeds: Sequence[int], least: int) -> Tensor:
    """How many masks are left (B,): any number from `least` to all, equally likely, from each row's own stream."""
    masked_B = canvas.masked_BL.sum(1)
    least_B = masked_B.clamp(max=max(least, LEAST_MASKED))
    randomness = Randomness.create(seeds, len(masked_B), masked_B.device)
    uniform_B = randomness.uniform("stop", 0, torch.zeros_like(masked_B)[:, None])[:, 0]
    return least_B + (uniform_B * (masked_B - least_B + 1)).long()


def stopped(model: Denoiser, canvas: Canvas, left_B: Tensor) -> Canvas:
    """Every batch row as it is when so many masks are left."""
    tokens_BL = canvas.tokens_BL
    if bool((canvas.masked_BL.sum(1) == left_B).all()):
        return canvas
    for step in decode(model, canvas, sampler("confidence"), seed=0):
        masked_B = step.canvas.masked_BL.sum(1)
        tokens_BL = torch.where((masked_B == left_B)[:, None], step.canvas.tokens_BL, tokens_BL)
        if bool((masked_B <= left_B).all()):
            break
    return canvas.with_tokens(tokens_BL)


def scene_of(model: Denoiser, canvas: Canvas) -> Scene:
    """The canvas with the one forward that every rule makes: all masked rows read, everything remembered."""
    prediction = model.predict(canvas, canvas.masked_BL, statistics=_STATISTICS, remember=True)
    return Scene(canvas, model, prediction, prediction.top_token_BL)
