"""FLOPs of a network's matrix products, taken from the calls it makes and not from its config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from tabes.attention import Record

__all__ = ["LinearFlops", "attention_flops", "count_linear"]


class LinearFlops:
    """What the linear modules did: FLOPs per row, and the widths of their outputs."""

    def __init__(self, rows: int) -> None:
        self.rows, self.flops = rows, 0.0
        self.widths: set[int] = set()

    def __call__(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        columns_in, columns_out = inputs[0].shape[-1], output.shape[-1]
        # Projections of something else than rows (relative positions) are a constant, not work per row.
        if inputs[0].numel() == self.rows * columns_in:
            self.flops += 2.0 * columns_in * columns_out
            self.widths.add(columns_out)


@contextmanager
def count_linear(module: nn.Module, rows: int) -> Iterator[LinearFlops]:
    """Counts every call, so a layer that is shared counts each time it runs."""
    count = LinearFlops(rows)
    linears = [m for m in module.modules() if isinstance(m, nn.Linear | Conv1D)]
    handles = [m.register_forward_hook(count) for m in linears]
    try:
        yield count
    finally:
        for handle in handles:
            handle.remove()


def attention_flops(tape: Record) -> float:
    """FLOPs per pair of a query and a key, summed over the calls: one product for scores, one for values."""
    total = 0.0
    for (_, heads, _, width), layer in zip(tape.query_shapes, tape.layers, strict=True):
        assert layer.value is not None
        total += 2.0 * heads * (width + layer.value.shape[-1])
    return total
