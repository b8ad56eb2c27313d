"""What a rule is tried on: a tiny model in memory, a ragged batch, and the ways it is decoded.

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from tabes.budgets import Even
from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.guidance import Guidance
from tabes.loading import load
from tabes.parts import Budget, Ranked, Ranking, Reviser, Revision
from tabes.rowcache import RowCache
from tabes.sampling import PartSampler
from tabes.view import View
from tabes.writers import Argmax, Categorical

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

__all__ = ["SCENES", "Scene", "tiny_model"]

_SIZE, _END = 40, 38
_MASK = _SIZE - 1
# Padded on the left and beginning with a mask; with holes in the prompt; with three masks only, so done long before.
_BATCH = (
    (0, 0, 0, _MASK, 21, *(_MASK,) * 9),
    (3, _MASK, 14, _MASK, 30, *(_MASK,) * 9),
    (5, 8, 11, 2, 9, _MASK, 13, 4, _MASK, 6, 12, _MASK, 17, 1),
)
_PADDED = 3


@cache
def tiny_model() -> Denoiser:
    """A random BERT of 40 tokens in float64, so that no rounding decides anything; the same one at every call."""
    return load(_bert(), mask_token_id=_MASK)


def _bert() -> BertForMaskedLM:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=_SIZE,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=32,
        tie_word_embeddings=False,
        pad_token_id=0,
        eos_token_id=_END,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = BertForMaskedLM(config).double()
        for name, weight in model.named_parameters():
            nn.init.normal_(weight, std=_spread(name, weight))
    return model


def _spread(name: str, weight: Tensor) -> float:
    """Larger than at the start of a training, so that rows differ and every neighbour matters."""
    if "position" in name:
        return 3.0
    return 2.0 if "word_embeddings" in name else 0.6 if weight.ndim > 1 else 0.2


@dataclass(frozen=True)
class Scene:
    """One way to decode the batch. Without `num_steps` a step writes one token."""

    name: str
    block_length: int | None = None
    num_steps: int | None = None
    temperature: float = 0.0
    guidance: float | None = None
    cache: int | None = None
    revised: bool = False

    @property
    def canvas(self) -> Canvas:
        """The batch, all of it still to do."""
        tokens_BL = torch.tensor(_BATCH)
        attention_BL = torch.ones_like(tokens_BL)
        attention_BL[0, :_PADDED] = 0
        return Canvas.create(tokens_BL, mask_id=_MASK, attention_mask=attention_BL, block_length=self.block_length)

    @property
    def blocks(self) -> int:
        """How many blocks the canvas has."""
        return int(self.canvas.block_BL.max()) + 1

    def wrap(self, model: AnyDenoiser) -> AnyDenoiser:
        """The model as this scene asks it."""
        guided = model if self.guidance is None else Guidance(model, self.guidance)
        return guided if self.cache is None else RowCache(guided, self.cache)

    def sampler(self, ranking: Ranking, budget: Budget | None = None, reviser: Reviser | None = None) -> PartSampler:
        """The part on trial among well-known ones."""
        writer = Categorical(self.temperature) if self.temperature else Argmax()
        reviser = _TakeBack() if self.revised else reviser
        return PartSampler(ranking, Even(self.num_steps) if budget is None else budget, writer, reviser)


@dataclass(frozen=True)
class _TakeBack(Reviser):
    """Masks again the written row whose token is least probable now."""

    statistics: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def rows(self, view: View) -> Tensor:
        canvas = view.canvas
        return canvas.writable_BL & ~canvas.masked_BL & (canvas.block_BL == canvas.block_B[:, None])

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: Any) -> tuple[Revision, Any]:
        written_BL = self.rows(view)
        doubt_BL = torch.where(written_BL, -ranked.prediction.confidence_BL, -torch.inf)
        worst_B1 = doubt_BL.argmax(1, keepdim=True)
        return Revision(torch.zeros_like(written_BL).scatter(1, worst_B1, True) & written_BL), state


SCENES = {
    scene.name: scene
    for scene in (
        Scene("plain"),
        Scene("several", num_steps=5),
        Scene("blocks", block_length=4, num_steps=6),
        Scene("drawn", temperature=0.8, num_steps=6),
        Scene("guidance", guidance=0.7, block_length=5),
        Scene("cache", cache=2, num_steps=7),
        Scene("revised", num_steps=6, revised=True),
        Scene("everything", 4, 7, temperature=0.9, guidance=0.5, cache=2),
    )
}
