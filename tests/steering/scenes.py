"""Scenes to steer in, and the tiny models of `tests.tiny` as denoisers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

import tabes
from tabes import Canvas
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.models.opening import network_of
from tabes.parts import Proposal
from tabes.prediction import Prediction
from tabes.presets import sampler
from tabes.randomness import Randomness
from tabes.steering import Scene
from tabes.view import View
from tests.dit import EVERY
from tests.tiny import FAMILIES, Family, V

MASK = 5
PRESETS = ("boe", "boe-paper", "boe-literal", "boe-dense", "boe-verify", "lookahead")


@cache
def tiny(name: str, dtype: torch.dtype = torch.float64) -> Denoiser:
    return Denoiser(EVERY[name].network(dtype), None, mask_id=MASK, name=name)


class Precise(Family):
    """In float64 throughout: the norms of Llama and Qwen2 compute in float32, which no finite difference survives."""

    def build(self, dtype: torch.dtype = torch.float64) -> Any:
        model = super().build(dtype)
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if type(child).__name__.endswith("RMSNorm"):
                    norm = torch.nn.RMSNorm(child.weight.shape, child.variance_epsilon, dtype=dtype)
                    norm.weight = child.weight
                    setattr(parent, name, norm)
        return model


def precise(name: str, **options: Any) -> Family:
    family = FAMILIES[name]
    return Precise(family.model, family.config, {**family.options, **options})


@cache
def exactly(name: str) -> Denoiser:
    """A tiny model in float64 throughout."""
    return opened(precise(name))


def opened(family: Family, dtype: torch.dtype = torch.float64) -> Denoiser:
    return Denoiser(network_of(family.build(dtype), family.model), None, mask_id=MASK, name=family.model)


def canvas_of(tokens: Sequence[Sequence[int]], mask_id: int = MASK, **arguments: Any) -> Canvas:
    return Canvas.create(torch.tensor(tokens), mask_id=mask_id, **arguments)


def holes(length: int, masked: Iterable[int], *, seed: int = 1) -> Canvas:
    """One batch row of random tokens with masks at some rows."""
    generator = torch.Generator().manual_seed(seed)
    tokens_BL = torch.randint(6, V, (1, length), generator=generator)
    tokens_BL[0, list(masked)] = MASK
    return Canvas.create(tokens_BL, mask_id=MASK)


def ragged(new: int = 7, **arguments: Any) -> Canvas:
    """Two rows of different length, a hole inside the longer prompt; the shorter is padded on the left."""
    prompt_BP = torch.tensor([[1, 1, 1, 7, 21], [8, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=new, **arguments)


def alone(canvas: Canvas, row: int) -> Canvas:
    """One row of a batch without its padding."""
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


def rows(canvas: Canvas, *chosen: Iterable[int]) -> Tensor:
    """(B, L) from the row numbers of every batch row."""
    mask_BL = torch.zeros_like(canvas.padding_BL)
    for b, numbers in enumerate(chosen):
        mask_BL[b, list(numbers)] = True
    return mask_BL


@torch.no_grad()
def scene_of(model: AnyDenoiser, canvas: Canvas) -> Scene:
    """What a steered ranking would look at: every masked row predicted and remembered, the likeliest tokens."""
    prediction = model.predict(canvas, canvas.masked_BL, statistics=("entropy", "top_token"), remember=True)
    return Scene(canvas, model, prediction, prediction.top_token_BL)


def view_of(model: AnyDenoiser, canvas: Canvas) -> View:
    return View(canvas, model, 0, Randomness.create(0, len(canvas.tokens_BL), canvas.tokens_BL.device))


def proposal_of(prediction: Prediction, count_B: Tensor | None = None) -> Proposal:
    return Proposal(prediction.top_token_BL, prediction.top_logit_BL, count_B)


def steered(preset: str, **choice: Any) -> Any:
    """A preset that steers every step, however sure the model is and however many tokens are written."""
    return sampler(preset, **{"sure": None, "delta": None, "writes": None, **choice})


def filled(model: AnyDenoiser, canvas: Canvas, sampler: Any, seed: int = 3) -> tuple[Tensor, list[tabes.Step]]:
    """The tokens at the end and every step."""
    steps = list(tabes.decode(model, canvas, sampler, seed=seed))
    return steps[-1].canvas.tokens_BL, steps


def scores(ranking: Any, model: Any, canvas: Canvas, counts: list[int] | None = None) -> Tensor:
    with torch.no_grad():
        view = view_of(model, canvas)
        prediction = view.predict(canvas.masked_BL, statistics=ranking.statistics | {"top_logit"}, remember=True)
        count_B = None if counts is None else torch.tensor(counts)
        found_BL: Tensor = ranking.rank(view, prediction, proposal_of(prediction, count_B), ranking.init(canvas))[0]
    return found_BL


def order(scores_BL: Tensor, canvas: Canvas, b: int = 0) -> list[int]:
    open_L = canvas.open_BL[b]
    ranked: list[int] = torch.where(open_L, scores_BL[b], -torch.inf).argsort(descending=True, stable=True).tolist()
    return ranked[: int(open_L.sum())]
