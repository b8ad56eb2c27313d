"""Text in, text out: builds the canvas, drains `decode`, hands every step to the readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal

from torch import Tensor

from tabes.canvas import Canvas
from tabes.cost import Cost
from tabes.decoding import Step, decode
from tabes.denoiser import AnyDenoiser, base_of
from tabes.errors import UsageError
from tabes.guidance import Guidance
from tabes.outputs import sequences_of, texts_of
from tabes.presets import sampler as make_sampler
from tabes.prompts import Prompt, canvas_from_ids, canvas_from_text
from tabes.readers import Progress, Reader, Stream, Streamer
from tabes.sampling import Sampler
from tabes.stop import Stop, as_stop
from tabes.suppression import Suppress

__all__ = ["Output", "generate"]


@dataclass(frozen=True)
class Output:
    """What was generated and what it cost.

    `sequences` (B, L) holds ids, prompt included, padding on the left; a row cut short by a stop holds the pad id (the
    mask id where the model has none) from its first unfilled position on. `texts` is the new text, or, where holes lay
    inside the prompt, the whole text with them filled; None when the model has no tokenizer. An end-of-text token ends
    the text of the holes it stands in; what was written behind it is in `sequences` only.
    """

    sequences: Tensor
    texts: tuple[str, ...] | None
    steps: tuple[Step, ...]
    cost: Cost


def generate(
    model: AnyDenoiser,
    prompt: Prompt | None = None,
    *,
    input_ids: Tensor | Sequence[Sequence[int]] | None = None,
    attention_mask: Tensor | None = None,
    sampler: str | Sampler = "boe",
    max_new_tokens: int | None = None,
    num_steps: int | None = None,
    block_length: int | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    cfg_scale: float = 0.0,
    suppress: int | Literal["end"] | Iterable[int | Literal["end"]] | None = None,
    stop: Stop | str | int | Iterable[str | int] | None = None,
    seed: int | Sequence[int] | None = None,
    streamer: Streamer | None = None,
    progress: bool = False,
) -> Output:
    """Fill the holes of `prompt` (or `input_ids`) and `max_new_tokens` more behind it.

    A prompt is a text, or a conversation for a chat model: messages such as `tabes.chat(text)` makes, written by the
    model's chat template; or a list of either. One that leaves no room for the new tokens loses its beginning, with a
    warning.

    Main arguments: `sampler`, a name from `tabes.samplers()` or an object from `tabes.sampler(...)`; `num_steps` in all
    (default: one per token); `block_length` fills as many tokens before the next ones; `temperature`, `top_p` and
    `top_k` choose the tokens (None: as the sampler's authors do, for most the most probable one). Other arguments:
    `cfg_scale` guides away from what would be said without the prompt and doubles the work; `suppress` names tokens
    that must not come ("end": the end-of-text tokens); `stop` ends a row when a stop string or id stands with nothing
    masked before it (`model.eos_ids`: no work behind the end of a text); `seed` as in `tabes.decode`.
    """
    base = base_of(model)
    if (prompt is None) == (input_ids is None):
        raise UsageError("give either a prompt or input_ids")
    if prompt is not None and attention_mask is not None:
        raise UsageError("attention_mask goes with input_ids; a prompt's padding is made here")
    if input_ids is None:
        canvas = canvas_from_text(base, prompt, max_new_tokens=max_new_tokens, block_length=block_length)
    else:
        canvas = canvas_from_ids(
            base,
            input_ids,
            attention_mask=attention_mask,
            max_new_tokens=max_new_tokens,
            block_length=block_length,
        )
    rule = _sampler(sampler, num_steps=num_steps, temperature=temperature, top_p=top_p, top_k=top_k)
    readers = _readers(streamer, progress, rule, base.eos_ids)
    guided = Guidance(model, cfg_scale) if cfg_scale else model
    guided = guided if suppress is None else Suppress(guided, suppress)
    stopping = as_stop(stop, base.tokenizer)
    steps = _drain(guided, canvas, rule, stopping, seed, readers)
    last = steps[-1].canvas if steps else canvas
    cost = reduce(add, (step.cost for step in steps), Cost(full_forward_flops=base.full_forward_flops(canvas)))
    texts = texts_of(base, last, new=max_new_tokens or 0, stop=stopping)
    return Output(sequences_of(base, last), texts, tuple(steps), cost)


def _sampler(sampler: str | Sampler, **parameters: Any) -> Sampler:
    if isinstance(sampler, str):
        return make_sampler(sampler, **parameters)
    for name, value in parameters.items():
        if value is not None:
            raise UsageError(f"{name}={value} was given besides a ready-made sampler; pass it to tabes.sampler(...)")
    return sampler


def _readers(streamer: Streamer | None, progress: bool, sampler: Sampler, ends: tuple[int, ...]) -> list[Reader]:
    readers: list[Reader] = [] if streamer is None else [Stream(streamer, revises=sampler.revises, ends=ends)]
    return [*readers, Progress()] if progress else readers


def _drain(
    model: AnyDenoiser,
    canvas: Canvas,
    sampler: Sampler,
    stop: Stop | None,
    seed: int | Sequence[int] | None,
    readers: list[Reader],
) -> list[Step]:
    running = decode(model, canvas, sampler, stop=stop, seed=seed)
    for reader in readers:
        reader.begin(canvas)
    steps = []
    try:
        for step in running:
            steps.append(step)
            for reader in readers:
                reader.step(step)
    finally:
        for reader in readers:
            reader.end()
    return steps
