"""The only loop: a canvas, a denoiser, a sampler; an iterator of `Step`. It knows no streamer, no plot and no text.

Shapes: B batch rows, L canvas rows; inside the loop only the batch rows that are not done yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import torch
from torch import Tensor

from tabes.batched import select
from tabes.canvas import Canvas, Move
from tabes.cost import Cost
from tabes.denoiser import AnyDenoiser, base_of
from tabes.errors import NumericsError, TabesError, UsageError
from tabes.randomness import Randomness
from tabes.sampling import Sampler
from tabes.stop import Stop, as_stop
from tabes.view import View

__all__ = ["Step", "decode"]

Ragged = tuple[tuple[int, ...], ...]
# A sampler with a clock of its own may wait; one that waits this many steps in a row is stuck.
_PATIENCE = 10_000


@dataclass(frozen=True)
class Step:
    """What happened in one step and what it cost. Lists are per batch row, positions ascending.

    `positions` and `tokens` are masks filled, `rewritten` are written rows given another token, `remasked` rows masked
    again, `scores` the ranking's scores of the written positions (empty when the sampler has none).
    """

    index: int
    canvas: Canvas
    before: Canvas
    scores_BL: Tensor | None
    done_B: Tensor
    cost: Cost

    @cached_property
    def positions(self) -> Ragged:
        return _positions(self.before.masked_BL & ~self.canvas.masked_BL)

    @cached_property
    def tokens(self) -> Ragged:
        return _values(self.canvas.tokens_BL, self.positions)

    @cached_property
    def rewritten(self) -> Ragged:
        changed_BL = self.before.tokens_BL != self.canvas.tokens_BL
        return _positions(changed_BL & ~self.before.masked_BL & ~self.canvas.masked_BL)

    @cached_property
    def remasked(self) -> Ragged:
        return _positions(self.canvas.masked_BL & ~self.before.masked_BL)

    @cached_property
    def scores(self) -> tuple[tuple[float, ...], ...]:
        if self.scores_BL is None:
            return tuple(() for _ in self.positions)
        return tuple(
            tuple(row[position] for position in positions)
            for row, positions in zip(self.scores_BL.tolist(), self.positions, strict=True)
        )


def _positions(mask_BL: Tensor) -> Ragged:
    return tuple(tuple(at for at, is_set in enumerate(row) if is_set) for row in mask_BL.tolist())


def _values(tokens_BL: Tensor, positions: Ragged) -> Ragged:
    return tuple(
        tuple(row[position] for position in chosen) for row, chosen in zip(tokens_BL.tolist(), positions, strict=True)
    )


def decode(
    model: AnyDenoiser,
    canvas: Canvas,
    sampler: Sampler,
    *,
    stop: Stop | str | int | Iterable[str | int] | None = None,
    seed: int | Sequence[int] | None = None,
) -> Iterator[Step]:
    """Fill the canvas step by step. Batch rows that are done (filled or stopped) leave the batch and cost nothing more.

    Batch row b draws from the stream of `seed + b` (or of its own entry of a sequence of seeds).
    """
    base = base_of(model)
    if not callable(getattr(sampler, "step", None)):
        raise UsageError(f"sampler is {sampler!r}; make one with tabes.sampler(name)")
    base.check(canvas)
    return _loop(model, canvas.to(base.device), sampler, as_stop(stop, base.tokenizer), seed)


def _loop(
    model: AnyDenoiser, canvas: Canvas, sampler: Sampler, stop: Stop | None, seed: int | Sequence[int] | None
) -> Iterator[Step]:
    ledger, unit = model.base.ledger, model.base.full_forward_flops(canvas)
    randomness = Randomness.create(seed, canvas.tokens_BL.shape[0], canvas.tokens_BL.device)
    done_B = ~canvas.masked_BL.any(1)
    keep_B = ~done_B
    live, model = keep_B.nonzero().squeeze(1), model.begin()
    part, randomness = canvas.select(keep_B), randomness.select(keep_B)
    state = sampler.init(part) if live.numel() else None
    idle = 0
    for index in count():
        if not live.numel():
            return
        with torch.no_grad(), ledger.measure(canvas.tokens_BL.device, unit) as costs:
            try:
                move, state = sampler.step(View(part, model, index, randomness), state)
            except NumericsError as error:
                raise _located(error, index, live) from None
            after = part.apply(move)
            stopped_B = _done(after, part, move, stop)
        before, canvas = canvas, _merged(canvas, after, live)
        done_B = done_B.index_put((live,), stopped_B)
        yield Step(index, canvas, before, _spread(move.scores_BL, canvas, live), done_B, costs[0])
        idle = 0 if bool((after.tokens_BL != part.tokens_BL).any()) else idle + 1
        if idle > _PATIENCE:
            raise TabesError(f"the sampler changed nothing in {idle} steps and did not say it was done")
        part = after
        if bool(stopped_B.any()):
            keep_B = ~stopped_B
            live, model = live[keep_B], model.select(keep_B)
            part, randomness, state = part.select(keep_B), randomness.select(keep_B), select(state, keep_B)


def _done(after: Canvas, before: Canvas, move: Move, stop: Stop | None) -> Tensor:
    done_B = ~after.masked_BL.any(1) if move.done_B is None else move.done_B
    return done_B if stop is None else done_B | stop.done(after, before)


def _merged(canvas: Canvas, part: Canvas, live: Tensor) -> Canvas:
    """The whole batch with the rows still alive as they are in `part`."""
    return canvas.with_tokens(canvas.tokens_BL.index_put((live,), part.tokens_BL))


def _spread(scores_BL: Tensor | None, canvas: Canvas, live: Tensor) -> Tensor | None:
    if scores_BL is None:
        return None
    return scores_BL.new_zeros(canvas.tokens_BL.shape).index_put((live,), scores_BL)


def _located(error: NumericsError, index: int, live: Tensor) -> NumericsError:
    """The error with the step and the batch row as the caller counts them."""
    row = None if error.batch_row is None else int(live[error.batch_row])
    return NumericsError(f"step {index}: {error.what}", row, error.position)
