"""Stopping early (`generate_until`): a row is done when a stop phrase stands and everything before it is unmasked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["Stop", "as_stop", "ended"]


@dataclass(frozen=True)
class Stop:
    """Stop ids and stop strings. Strings need a tokenizer to read the text, and a look at every row that grew."""

    ids: tuple[int, ...] = ()
    strings: tuple[str, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None

    def __post_init__(self) -> None:
        if self.strings and self.tokenizer is None:
            raise UsageError(f"stop string {self.strings[0]!r} needs a tokenizer and the model has none; give stop ids")
        if "" in self.strings:
            raise UsageError("an empty stop string would stop everything at once; leave it out")

    def done(self, canvas: Canvas, before: Canvas | None = None) -> Tensor:
        """Which batch rows (B,) are done. With `before`, rows whose readable text did not grow are not read again."""
        readable_BL = readable(canvas)
        done_B = torch.zeros_like(readable_BL[:, 0])
        if self.ids:
            ids = torch.tensor(self.ids, device=readable_BL.device)
            done_B |= (torch.isin(canvas.tokens_BL, ids) & readable_BL & canvas.writable_BL).any(1)
        if self.strings:
            grew_B = readable_BL.any(1) if before is None else (readable_BL & ~readable(before)).any(1)
            for row in (grew_B & ~done_B).nonzero().squeeze(1).tolist():
                done_B[row] = self.cut(self._text(canvas.tokens_BL[row][readable_BL[row]])) is not None
        return done_B

    def cut(self, text: str) -> str | None:
        """The text before the first stop string, or None when there is none."""
        found = [at for at in (text.find(string) for string in self.strings) if at >= 0]
        return text[: min(found)] if found else None

    def _text(self, ids: Tensor) -> str:
        if self.tokenizer is None:
            raise UsageError("stop strings need a tokenizer")
        return str(self.tokenizer.decode(ids.tolist(), skip_special_tokens=False))


def readable(canvas: Canvas) -> Tensor:
    """Rows from the first writable one up to the first mask: the text that stands (B, L)."""
    started_BL = canvas.writable_BL.cumsum(1) > 0
    unmasked_BL = canvas.masked_BL.cumsum(1) == 0
    return started_BL & unmasked_BL & ~canvas.padding_BL


def ended(canvas: Canvas, ends: tuple[int, ...]) -> Tensor:
    """Written rows from an end-of-text token on, up to the next given row: they are no text (B, L)."""
    ids = torch.tensor(ends, device=canvas.tokens_BL.device, dtype=torch.int64)
    ends_BL = torch.isin(canvas.tokens_BL, ids).cumsum(1)
    before_BL = torch.where(canvas.writable_BL, 0, ends_BL).cummax(1).values
    return canvas.writable_BL & (ends_BL > before_BL)


def as_stop(
    stop: Stop | str | int | Iterable[str | int] | None, tokenizer: PreTrainedTokenizerBase | None
) -> Stop | None:
    """A string, an id or several of either as one `Stop`; None stays None."""
    if stop is None or isinstance(stop, Stop):
        return stop
    phrases = [stop] if isinstance(stop, str | int) else list(stop)
    for phrase in phrases:
        if isinstance(phrase, bool) or not isinstance(phrase, str | int):
            raise UsageError(f"stop has {phrase!r}; give strings or token ids")
    ids = tuple(phrase for phrase in phrases if isinstance(phrase, int))
    return Stop(ids, tuple(phrase for phrase in phrases if isinstance(phrase, str)), tokenizer)
