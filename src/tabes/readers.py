"""Readers of `Step`: progress bars and streamers. The loop knows none of them."""

from __future__ import annotations

from typing import Any, Protocol

from tabes.canvas import Canvas
from tabes.decoding import Step
from tabes.errors import UsageError
from tabes.stop import ended

__all__ = ["Progress", "Reader", "Stream", "Streamer"]


class Reader(Protocol):
    """Sees the canvas before the first step, every step, and the end."""

    def begin(self, canvas: Canvas) -> None: ...

    def step(self, step: Step) -> None: ...

    def end(self) -> None: ...


class Progress:
    """A progress bar over the tokens to fill."""

    def __init__(self, description: str = "decoding") -> None:
        self.description = description
        self._bar: Any = None
        self._total = 0

    def begin(self, canvas: Canvas) -> None:
        from tqdm.auto import tqdm

        self._total = int(canvas.masked_BL.sum())
        self._bar = tqdm(total=self._total, desc=self.description, unit="tok", leave=False)

    def step(self, step: Step) -> None:
        self._bar.n = self._total - int((step.canvas.masked_BL & ~step.done_B[:, None]).sum())
        self._bar.refresh()

    def end(self) -> None:
        self._bar.close()


class Streamer(Protocol):
    """What transformers calls a streamer. `put_draft(ids)` is called too where it exists."""

    def put(self, value: Any) -> None: ...

    def end(self) -> None: ...


class Stream:
    """Feeds a transformers streamer: the prompt, then tokens once everything before them stands, drafts where wanted.

    A sampler that revises keeps everything but drafts for the end, since a token that stands may still change. What is
    written behind an end-of-text token is no text and is not sent.
    """

    def __init__(self, streamer: Streamer, *, revises: bool, ends: tuple[int, ...] = ()) -> None:
        self.streamer, self.revises, self.ends = streamer, revises, ends
        self._sent = 0
        self._last: Canvas | None = None

    def begin(self, canvas: Canvas) -> None:
        if canvas.tokens_BL.shape[0] != 1:
            raise UsageError(f"a streamer takes one prompt at a time, not {canvas.tokens_BL.shape[0]}")
        self._last = canvas
        given_L = (canvas.masked_BL[0].cumsum(0) == 0) & ~canvas.padding_BL[0]
        self._sent = int((canvas.masked_BL[0].cumsum(0) == 0).sum())
        self.streamer.put(canvas.tokens_BL[:, given_L].cpu())

    def step(self, step: Step) -> None:
        self._last = step.canvas
        if not self.revises:
            self._flush(step.canvas)
        put_draft = getattr(self.streamer, "put_draft", None)
        if put_draft is not None and bool(step.canvas.masked_BL.any()):
            put_draft(step.canvas.tokens_BL[:, self._sent :].cpu())

    def end(self) -> None:
        if self._last is not None:
            self._flush(self._last)
        self.streamer.end()

    def _flush(self, canvas: Canvas) -> None:
        stands = int((canvas.masked_BL[0].cumsum(0) == 0).sum())
        if stands > self._sent:
            text_L = ~ended(canvas, self.ends)[0, self._sent : stands]
            if bool(text_L.any()):
                self.streamer.put(canvas.tokens_BL[0, self._sent : stands][text_L].cpu())
            self._sent = stands
