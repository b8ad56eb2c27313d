"""Classifier-free guidance as a denoiser wrapper: one doubled batch, counted as the double work it is.

    logits = u + (s + 1)(c - u)

where c sees the prompt and u sees masks in its place (LLaDA's convention: scale 0 is no guidance).
Shapes: B batch rows, L canvas rows, N predicted rows, V vocabulary; the doubled batch has the rows with prompt first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, AnyMemory, Denoiser
from tabes.errors import UsageError
from tabes.prediction import LogitSource, Prediction

__all__ = ["Guidance"]


@dataclass(frozen=True)
class Guidance:
    """`denoiser` guided away from what it would say without the prompt; `scale` 0 changes nothing."""

    denoiser: AnyDenoiser
    scale: float

    def __post_init__(self) -> None:
        if not self.scale >= 0:
            raise UsageError(f"cfg_scale is {self.scale}; it must be 0 or more")

    @property
    def base(self) -> Denoiser:
        return self.denoiser.base

    def begin(self) -> Guidance:
        return Guidance(self.denoiser.begin(), self.scale)

    def select(self, keep_B: Tensor) -> Guidance:
        return Guidance(self.denoiser.select(_twice(keep_B)), self.scale)

    @property
    def takes_offers(self) -> bool:
        return False

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        """A cache inside would need both halves; what is offered is their combination."""

    def predict(
        self,
        canvas: Canvas,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        both = self._both(canvas)
        twice_B = None if time_B is None else _twice(time_B)
        doubled = self.denoiser.predict(both, _twice(rows_BL), remember=remember, time_B=twice_B)
        memory = _GuidedMemory(doubled.memory, canvas.writable_BL) if remember else None
        return self._combined(doubled, rows_BL, statistics, memory)

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
        if not isinstance(memory, _GuidedMemory):
            raise UsageError(
                "this memory was not remembered by a guided denoiser; remember and replay with the same one"
            )
        read_BL = rows_BL if read_BL is None else read_BL & rows_BL
        doubled = self.denoiser.replay(
            memory.both,
            _twice(rows_BL),
            tokens_BL=None if tokens_BL is None else self._both_tokens(tokens_BL, memory.writable_BL),
            embeddings_BLE=None
            if embeddings_BLE is None
            else self._both_embeddings(embeddings_BLE, memory.writable_BL),
            read_BL=_twice(read_BL),
            remember=remember,
            beside=beside,
        )
        updated = _GuidedMemory(doubled.memory, memory.writable_BL) if remember else None
        return self._combined(doubled, read_BL, statistics, updated)

    def _both(self, canvas: Canvas) -> Canvas:
        index_B = torch.arange(canvas.tokens_BL.shape[0], device=canvas.tokens_BL.device)
        return canvas.select(_twice(index_B)).with_tokens(self._both_tokens(canvas.tokens_BL, canvas.writable_BL))

    def _both_tokens(self, tokens_BL: Tensor, writable_BL: Tensor) -> Tensor:
        return torch.cat([tokens_BL, torch.where(writable_BL, tokens_BL, self.base.mask_id)])

    def _both_embeddings(self, embeddings_BLE: Tensor, writable_BL: Tensor) -> Tensor:
        mask_E = self.base.network.embed(torch.tensor([self.base.mask_id], device=embeddings_BLE.device))[0]
        return torch.cat([embeddings_BLE, torch.where(writable_BL[..., None], embeddings_BLE, mask_E)])

    def _combined(
        self, doubled: Prediction, rows_BL: Tensor, statistics: Iterable[str], memory: _GuidedMemory | None
    ) -> Prediction:
        source, computed_B = _Combined(doubled.source, self.scale), doubled.computed_B[: len(rows_BL)]
        return Prediction(rows_BL, source, doubled.impossible, statistics, memory, computed_B)


@dataclass(frozen=True)
class _Combined:
    """The guided logits: the first half of `doubled` saw the prompt, the second half did not."""

    doubled: LogitSource
    scale: float

    @property
    def vocab_size(self) -> int:
        return self.doubled.vocab_size

    def __len__(self) -> int:
        return len(self.doubled) // 2

    def pick(self, index_M: Tensor) -> _Combined:
        return _Combined(self.doubled.pick(torch.cat([index_M, index_M + len(self)])), self.scale)

    def logits(self, rows: slice) -> Tensor:
        with_NV = self.doubled.logits(rows)
        without_NV = self.doubled.logits(slice(rows.start + len(self), rows.stop + len(self)))
        return without_NV + (self.scale + 1.0) * (with_NV - without_NV)


@dataclass(frozen=True)
class _GuidedMemory:
    """The memory of the doubled batch, seen as one of B rows."""

    both: AnyMemory
    writable_BL: Tensor

    @property
    def tokens_BL(self) -> Tensor | None:
        tokens_BL = self.both.tokens_BL
        return None if tokens_BL is None else tokens_BL[: self.writable_BL.shape[0]]

    @property
    def time_B(self) -> Tensor | None:
        time_B = self.both.time_B
        return None if time_B is None else time_B[: self.writable_BL.shape[0]]

    def with_time(self, time_B: Tensor) -> Self:
        return type(self)(self.both.with_time(_twice(time_B)), self.writable_BL)

    def select(self, batch: Tensor) -> Self:
        index = batch.nonzero().squeeze(1) if batch.dtype == torch.bool else batch
        both = self.both.select(torch.cat([index, index + self.writable_BL.shape[0]]))
        return type(self)(both, self.writable_BL[index])

    def expand(self, k: int) -> Self:
        index_B = torch.arange(self.writable_BL.shape[0], device=self.writable_BL.device)
        return self.select(index_B.repeat_interleave(k))


def _twice(value_B: Tensor) -> Tensor:
    return torch.cat([value_B, value_B])
