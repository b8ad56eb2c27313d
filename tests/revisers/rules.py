"""What the tests of revisers share: rules, canvases, and how to run them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import tabes
from tabes import Canvas
from tabes.budgets import TokensPerStep
from tabes.denoiser import AnyDenoiser
from tabes.parts import Budget, Reviser
from tabes.rankings import Confidence
from tabes.sampling import PartSampler
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK

SEED = 11


def rule(reviser: Reviser | None, budget: Budget | None = None, temperature: float = 0.0) -> PartSampler:
    writer = Categorical(temperature) if temperature else Argmax()
    return PartSampler(Confidence(), budget or TokensPerStep(1), writer, reviser)


def ragged_canvas(new: int = 9, **arguments: Any) -> Canvas:
    """Two rows of different length with a hole inside the longer prompt; the shorter is padded on the left."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=new, **arguments)


def plain_canvas(new: int = 12, **arguments: Any) -> Canvas:
    return Canvas.create(torch.tensor([[13, 24, 36, 4]]), mask_id=MASK, max_new_tokens=new, **arguments)


def run(model: AnyDenoiser, canvas: Canvas, sampler: PartSampler, seed: int = SEED) -> list[tabes.Step]:
    return list(tabes.decode(model, canvas, sampler, seed=seed))


def final(steps: list[tabes.Step]) -> Tensor:
    return steps[-1].canvas.tokens_BL


def alone(canvas: Canvas, row: int) -> Canvas:
    """One row of a batch without its padding."""
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


def probabilities(model: tabes.Denoiser, tokens_L: Tensor) -> Tensor:
    """(L, V) of an unpadded canvas, by the transformers model alone."""
    backbone: Any = model.network
    logits_LV = backbone.backbone.model(input_ids=tokens_L[None]).logits[0].clone()
    logits_LV[:, MASK] = -torch.inf
    return torch.softmax(logits_LV.double(), -1)
