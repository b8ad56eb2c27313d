"""Tokens that must not come, as a denoiser wrapper: impossible for every rule (LLaDA's logits_eos_inf).

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser, Denoiser, base_of
from tabes.errors import UsageError
from tabes.prediction import Prediction

__all__ = ["Suppress", "end_ids"]


@dataclass(frozen=True)
class Suppress:
    """`denoiser` that never proposes the tokens `ids`; "end" means the model's end-of-text tokens."""

    denoiser: AnyDenoiser
    ids: int | Literal["end"] | Iterable[int | Literal["end"]] = "end"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", _checked(base_of(self.denoiser), self.ids))

    @property
    def base(self) -> Denoiser:
        return self.denoiser.base

    def begin(self) -> Suppress:
        return Suppress(self.denoiser.begin(), self.ids)

    def select(self, keep_B: Tensor) -> Suppress:
        return Suppress(self.denoiser.select(keep_B), self.ids)

    @property
    def takes_offers(self) -> bool:
        return self.denoiser.takes_offers

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        self.denoiser.offer(canvas, prediction)

    def predict(self, canvas: Canvas, rows_BL: Tensor, **arguments: Any) -> Prediction:
        """As the denoiser inside does."""
        return self.denoiser.predict(canvas, rows_BL, **arguments).without(self._ids)

    def replay(self, memory: Any, rows_BL: Tensor, **arguments: Any) -> Prediction:
        """As the denoiser inside does."""
        return self.denoiser.replay(memory, rows_BL, **arguments).without(self._ids)

    @property
    def _ids(self) -> tuple[int, ...]:
        assert isinstance(self.ids, tuple)
        return self.ids


def end_ids(base: Denoiser, otherwise: str) -> tuple[int, ...]:
    """The model's end-of-text tokens; if it names none, one sentence that ends with what to do about it."""
    if not base.eos_ids:
        raise UsageError(f"{base.name} names no end-of-text token; {otherwise}")
    return base.eos_ids


def _checked(base: Denoiser, ids: int | str | Iterable[int | str]) -> tuple[int, ...]:
    if isinstance(ids, str) and ids != "end":
        raise UsageError(f"suppress is {ids!r}; give token ids, or 'end'")
    found = (ids,) if isinstance(ids, int | str) else tuple(ids)
    last = base.network.vocab_size - 1
    known = dict.fromkeys(end_ids(base, "give the ids to suppress") if "end" in found else ())
    for one in found:
        if one == "end":
            continue
        if isinstance(one, bool) or not isinstance(one, int) or not 0 <= one <= last:
            raise UsageError(f"suppress has {one!r}; give token ids from 0 to {last}, or 'end'")
        known[one] = None
    return tuple(known)
