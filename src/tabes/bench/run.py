"""Decode a task's items with each sampler: rows out, nothing judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tabes.bench.rows import Row
from tabes.bench.shares import Shares
from tabes.bench.specs import SamplerSpec
from tabes.decoding import decode
from tabes.denoiser import AnyDenoiser
from tabes.errors import UsageError
from tabes.outputs import texts_of
from tabes.prompts import canvas_from_text
from tabes.sampling import Sampler
from tabes.stop import as_stop
from tabes.tasks import Item, Task

__all__ = ["run"]

OnItems = Callable[[float], None]


def run(
    model: AnyDenoiser,
    task: Task,
    samplers: Sequence[SamplerSpec],
    *,
    items: int,
    seed: int,
    batch_size: int = 64,
    block_length: int | None = None,
    on_items: OnItems = lambda decoded: None,
) -> Iterator[Row]:
    """A row for every item and sampler, samplers one after the other on the same items.

    Item i draws from the stream `seed + i` whatever the batch, so a rule that draws gives the same rows at any
    `batch_size`. `on_items` is told how many items (fractions too) were decoded since it was last called.
    """
    for name, value in (("items", items), ("batch_size", batch_size)):
        if value < 1:
            raise UsageError(f"{name} is {value}; it must be 1 or more")
    rules = [spec.build() for spec in samplers]
    chosen = task.items(items, seed)
    for spec, rule in zip(samplers, rules, strict=True):
        decoding = _Decoding(spec.wrap(model), task, rule, block_length, on_items)
        for first in range(0, len(chosen), batch_size):
            batch = chosen[first : first + batch_size]
            texts, shares = decoding.run(batch, seed + first)
            for at, (item, text) in enumerate(zip(batch, texts, strict=True)):
                yield Row(
                    task=task.name,
                    model=model.base.name,
                    sampler=spec.text,
                    item=first + at,
                    seed=seed + first + at,
                    scores=task.score(item, text),
                    text=text,
                    steps=shares.steps(at),
                    cost=shares.cost(at),
                )


@dataclass(frozen=True)
class _Decoding:
    """How a batch of items is decoded."""

    model: AnyDenoiser
    task: Task
    rule: Sampler
    block_length: int | None
    on_items: OnItems

    def run(self, batch: Sequence[Item], seed: int) -> tuple[tuple[str, ...], Shares]:
        """The texts, and every item's share of the cost."""
        base, new = self.model.base, self.task.max_new_tokens
        prompts = [item.prompt for item in batch]
        canvas = canvas_from_text(base, prompts, max_new_tokens=new, block_length=self.block_length)
        stop = as_stop(self.task.stop or None, base.tokenizer)
        shares = Shares(canvas, base.full_forward_flops(canvas))
        masks, told = int(canvas.masked_BL.sum()), 0.0
        for step in decode(self.model, canvas, self.rule, stop=stop, seed=seed):
            shares.add(step)
            canvas = step.canvas
            filled = len(batch) * (1 - int(canvas.masked_BL.sum()) / masks)
            self.on_items(filled - told)
            told = filled
        self.on_items(len(batch) - told)
        return texts_of(base, canvas, new=new, stop=stop) or (), shares
