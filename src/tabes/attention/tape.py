"""What our attention function does with a call: pass it through, remember it, or replay chosen rows of it.

Calls are told apart by their order, not by their module: ALBERT calls one module many times. Which tape is in use is
a context variable, so threads that share a network do not see each other's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from tabes.attention.memory import Layer, Memory, Slots
from tabes.errors import ModelError

__all__ = ["Plain", "Record", "Replay", "Tape", "current", "using"]

Call = tuple[Tensor, Tensor, Tensor | None]  # keys (B, H, L, D), values (B, H, L, D), mask


class Tape(Protocol):
    """What happens to the keys, the values and the mask of an attention call before it is computed."""

    masks: bool  # whether the network has to build its masks

    def attend(self, query_BHRD: Tensor, key_BHRD: Tensor, value_BHRD: Tensor, mask: Tensor | None) -> Call: ...

    def saving(self) -> AbstractContextManager[Any]:
        """Around the attention itself: how what its backward needs is kept."""


_tape: ContextVar[Tape | None] = ContextVar("tabes_attention_tape", default=None)


def current() -> Tape | None:
    """The tape in use; None where nobody set one and attention is just attention."""
    return _tape.get()


@contextmanager
def using(tape: Tape) -> Iterator[None]:
    """Our attention function follows `tape` in here, in this thread."""
    token = _tape.set(tape)
    try:
        yield
    finally:
        _tape.reset(token)


class Plain:
    """Attention as it is."""

    masks = True

    def attend(self, query_BHRD: Tensor, key_BHRD: Tensor, value_BHRD: Tensor, mask: Tensor | None) -> Call:
        return key_BHRD, value_BHRD, mask

    def saving(self) -> AbstractContextManager[Any]:
        return nullcontext()


class Record(Plain):
    """Attention as it is, and every call's keys, values and mask are kept as constants."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.query_shapes: list[torch.Size] = []

    def attend(self, query_BHRD: Tensor, key_BHRD: Tensor, value_BHRD: Tensor, mask: Tensor | None) -> Call:
        self.query_shapes.append(query_BHRD.shape)
        self.layers.append(Layer(key_BHRD.detach(), value_BHRD.detach(), mask))
        return key_BHRD, value_BHRD, mask


class _Merged(NamedTuple):
    """Remembered keys or values in which the rows of a replay are new."""

    old_BHLD: Tensor
    new_BHRD: Tensor
    slots: Slots
    batch_B: Tensor | None

    @property
    def shape(self) -> torch.Size:
        _, heads, length, width = self.old_BHLD.shape
        return torch.Size((self.new_BHRD.shape[0], heads, length, width))

    def merge(self) -> Tensor:
        # Models lay heads out as (B, L, H, D): seen so, a row is one contiguous run and most flattening is a view.
        merged = self.slots.put(self.old_BHLD.transpose(1, 2), self.new_BHRD.transpose(1, 2), self.batch_B)
        return merged.transpose(1, 2)


class Replay:
    """The queries are those of chosen rows; their keys and values replace the remembered ones.

    The masks are the remembered ones, so the network need not build any.
    """

    masks = False

    def __init__(self, memory: Memory, slots: Slots, *, remember: bool) -> None:
        self._memory, self._slots, self._remember = memory, slots, remember
        self._masks: dict[tuple[int, bool], Tensor] = {}  # layers share masks: gather each once
        self._recipes: dict[int, _Merged] = {}  # of this call's keys and values, by where they lie
        self._calls = 0
        self.layers: list[Layer] = []

    def attend(self, query_BHRD: Tensor, key_BHRD: Tensor, value_BHRD: Tensor, mask: Tensor | None) -> Call:
        old = self._remembered()
        assert old.value is not None
        self._recipes.clear()
        key_BHLD, value_BHLD = self._merge(old.key, key_BHRD), self._merge(old.value, value_BHRD)
        if self._remember:
            self.layers.append(Layer(key_BHLD.detach(), value_BHLD.detach(), self._selected(old.mask)))
        return key_BHLD, value_BHLD, self._gathered(old.mask)

    def finish(self) -> None:
        if self._calls != len(self._memory.layers):
            raise ModelError("the network made fewer attention calls in a replay than in the forward it replays")

    def saving(self) -> AbstractContextManager[Any]:
        """The backward would keep every merged key and value; it keeps the new rows and merges again."""
        recipes = dict(self._recipes)

        def pack(saved: Tensor) -> Tensor | _Merged:
            recipe = recipes.get(_place(saved))
            return recipe if recipe is not None and recipe.shape == saved.shape else saved

        def unpack(kept: Tensor | _Merged) -> Tensor:
            return kept if isinstance(kept, Tensor) else kept.merge()

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def _remembered(self) -> Layer:
        """What the forward remembered of the call that is being made."""
        if self._calls == len(self._memory.layers):
            raise ModelError("the network made more attention calls in a replay than in the forward it replays")
        self._calls += 1
        return self._memory.layers[self._calls - 1]

    def _merge(self, old_BHLD: Tensor, new_BHRD: Tensor) -> Tensor:
        recipe = _Merged(old_BHLD, new_BHRD, self._slots, self._memory.batch_B)
        merged_BHLD = recipe.merge()
        if merged_BHLD.requires_grad:
            self._recipes[_place(merged_BHLD)] = recipe._replace(new_BHRD=new_BHRD.detach())
        return merged_BHLD

    def _selected(self, mask: Tensor | None) -> Tensor | None:
        """The mask of the selected batch rows, for the next replay."""
        batch_B = self._memory.batch_B
        if mask is None or batch_B is None or mask.shape[0] == 1:
            return mask
        key = (id(mask), False)
        if key not in self._masks:
            self._masks[key] = mask[batch_B.to(mask.device)]
        return self._masks[key]

    def _gathered(self, mask: Tensor | None) -> Tensor | None:
        """The replayed rows of a (B, h, L, L) mask; a mask of keys alone, (B, h, 1, L), stays as small as it is."""
        if mask is None or mask.shape[2] == 1:
            return self._selected(mask)
        key = (id(mask), True)
        if key not in self._masks:
            rows_BR = self._slots.rows_BR.to(mask.device)
            self._masks[key] = mask[self._stored(mask)[:, None], :, rows_BR].transpose(1, 2)  # (B, h, R, L)
        return self._masks[key]

    def _stored(self, mask: Tensor) -> Tensor:
        """Which row of the mask each batch row uses."""
        batch_B = torch.arange(self._slots.rows_BR.shape[0], device=mask.device)
        if mask.shape[0] == 1:
            return torch.zeros_like(batch_B)
        return batch_B if self._memory.batch_B is None else self._memory.batch_B.to(mask.device)


def _place(x: Tensor) -> int:
    """Where its numbers lie; tensors without numbers, of which memory is planned, have no address but a storage too."""
    place: int = x.untyped_storage()._cdata
    return place
