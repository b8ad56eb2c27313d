"""Immutable values with a leading batch axis: one way to drop or repeat batch rows, whatever the value holds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor

__all__ = ["Batched", "select", "where"]


class Batched:
    """Mixin for frozen dataclasses whose tensors all have the batch as their first axis.

    A sampler's state is a `Batched` (or None): when rows of the batch are done the loop keeps the others with `select`.
    """

    def select(self, batch: Tensor) -> Self:
        """The same value for the batch rows in `batch` (int64 indices or a bool mask)."""
        this = cast(Any, self)
        changes = {field.name: select(getattr(self, field.name), batch) for field in fields(this)}
        return cast(Self, replace(this, **changes))


def select(value: Any, batch: Tensor) -> Any:
    """Rows of a tensor or of a `Batched`; tuples item by item; anything else is shared by all rows and kept."""
    if isinstance(value, Tensor):
        return value[batch]
    if hasattr(value, "select"):
        return value.select(batch)
    if isinstance(value, tuple):
        return tuple(select(item, batch) for item in value)
    return value


def where(condition_B: Tensor, value: Any, other: Any) -> Any:
    """`value` in the batch rows where the condition is set, `other` elsewhere: of two of a kind, item by item."""
    if isinstance(value, Tensor):
        return torch.where(condition_B.view(-1, *[1] * (value.ndim - 1)), value, other)
    if isinstance(value, tuple):
        return tuple(where(condition_B, one, another) for one, another in zip(value, other, strict=True))
    if isinstance(value, Batched):
        this = cast(Any, value)
        names = [field.name for field in fields(this)]
        return replace(this, **{name: where(condition_B, getattr(this, name), getattr(other, name)) for name in names})
    return other
