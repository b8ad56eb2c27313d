"""Row-cached decoding: a full forward now and then, in between only the rows that matter are recomputed.

Between refreshes a step replays the rows it reads (the masked ones of the current block) and those written since;
every other row keeps the keys and values it had. Any rule can run on it. `every=1` is exact. A timed network hears the
time of the last refresh. Costs and quality: docs/row-cache.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Self

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, AnyMemory, Denoiser
from tabes.errors import UsageError
from tabes.prediction import Prediction

__all__ = ["RowCache"]

_NEVER = 1 << 62
"""The age of a batch row that was not asked yet."""


class RowCache:
    """`denoiser` with a full forward every `every` steps, or whenever a batch row enters a new block (`every="block"`).

    The one denoiser that remembers from call to call, so each decoding takes a fresh one with `begin`.
    """

    def __init__(self, denoiser: AnyDenoiser, every: int | Literal["block"] = 4) -> None:
        if every != "block" and (not isinstance(every, int) or every < 1):
            raise UsageError(f"every is {every!r}; give a number of steps from 1 on, or 'block'")
        self.denoiser = denoiser
        self.every: int | Literal["block"] = every
        self._memory: AnyMemory | None = None
        self._age_B: Tensor | None = None
        self._block_B: Tensor | None = None
        self._offered: tuple[Canvas, Prediction] | None = None

    @property
    def base(self) -> Denoiser:
        return self.denoiser.base

    def begin(self) -> Self:
        return type(self)(self.denoiser.begin(), self.every)

    def select(self, keep_B: Tensor) -> Self:
        kept = type(self)(self.denoiser.select(keep_B), self.every)
        if self._memory is not None and self._age_B is not None and self._block_B is not None:
            kept._memory = self._memory.select(keep_B.nonzero().squeeze(1))
            kept._age_B, kept._block_B = self._age_B[keep_B], self._block_B[keep_B]
        return kept

    def predict(
        self,
        canvas: Canvas,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        asked_B = rows_BL.any(1)
        stale_B = self._stale(canvas, asked_B)
        offered, self._offered = self._offered, None
        if offered is not None and not bool(stale_B.any()) and _is_for(offered, canvas, rows_BL):
            prediction = offered[1].wanting(statistics)
        elif self._memory is not None and not bool(asked_B.any()):
            return Prediction(rows_BL, _Nothing(self.base.network.vocab_size), (self.base.mask_id,), (), self._memory)
        elif self._memory is None or bool(stale_B.all()):
            prediction = self.denoiser.predict(canvas, rows_BL, statistics=statistics, remember=True, time_B=time_B)
        else:
            wanted_BL = (rows_BL | _changed(canvas, self._memory) | stale_B[:, None]) & asked_B[:, None]
            prediction = self.denoiser.replay(
                _refreshed(self._memory, canvas.time_B if time_B is None else time_B, stale_B),
                wanted_BL & ~canvas.padding_BL,
                tokens_BL=canvas.tokens_BL,
                read_BL=rows_BL,
                statistics=statistics,
                remember=True,
            )
        self._memory = prediction.memory
        return prediction

    def replay(
        self,
        memory: AnyMemory,
        rows_BL: Tensor,
        *,
        tokens_BL: Tensor | None = None,
        embeddings_BLE: Tensor | None = None,
        read_BL: Tensor | None = None,
        statistics: Iterable[str] = (),
        remember: bool = False,
        beside: bool = False,
    ) -> Prediction:
        return self.denoiser.replay(
            memory,
            rows_BL,
            tokens_BL=tokens_BL,
            embeddings_BLE=embeddings_BLE,
            read_BL=read_BL,
            statistics=statistics,
            remember=remember,
            beside=beside,
        )

    @property
    def takes_offers(self) -> bool:
        return True

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        self._offered = canvas, prediction

    def _stale(self, canvas: Canvas, asked_B: Tensor) -> Tensor:
        """Which batch rows are due for a full forward; per row, so that a row of a batch decodes as it would alone.

        Alone a batch row of which nothing is asked would not be called: nothing happens to it, nor does it grow older.
        """
        block_B = canvas.block_B
        if self._memory is None or self._age_B is None or self._block_B is None:
            self._age_B = torch.where(asked_B, 0, _NEVER)
            self._block_B = torch.where(asked_B, block_B, -1)
            return torch.ones_like(asked_B)
        age_B = self._age_B + (_changed(canvas, self._memory).any(1) & asked_B)
        due_B = block_B != self._block_B if self.every == "block" else age_B >= self.every
        stale_B = due_B & asked_B
        self._age_B = torch.where(stale_B, 0, age_B)
        self._block_B = torch.where(asked_B, block_B, self._block_B)
        return stale_B


class _Nothing:
    """The rows of a prediction that nothing was asked of."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def __len__(self) -> int:
        return 0

    def pick(self, index_M: Tensor) -> _Nothing:
        return self

    def logits(self, rows: slice) -> Tensor:
        return torch.zeros(0, self.vocab_size)


def _is_for(offered: tuple[Canvas, Prediction], canvas: Canvas, rows_BL: Tensor) -> bool:
    """Whether an offered replay is of this canvas and these rows (the batch may have shrunk since)."""
    there, prediction = offered
    same_shape = there.tokens_BL.shape == canvas.tokens_BL.shape
    return same_shape and there.tokens_BL.equal(canvas.tokens_BL) and prediction.rows_BL.equal(rows_BL)


def _refreshed(memory: AnyMemory, time_B: Tensor, stale_B: Tensor) -> AnyMemory:
    """A stale batch row is replayed whole, so for a timed network that is a forward at the time of now."""
    if memory.time_B is None:
        return memory
    return memory.with_time(torch.where(stale_B, time_B, memory.time_B))


def _changed(canvas: Canvas, memory: AnyMemory) -> Tensor:
    """Rows whose token is another than the one remembered."""
    tokens_BL = memory.tokens_BL
    return torch.ones_like(canvas.padding_BL) if tokens_BL is None else canvas.tokens_BL != tokens_BL
