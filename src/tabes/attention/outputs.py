"""The dense stand-in for networks whose attention we cannot replace: constants at the attention modules' outputs.

Everything outside attention works on rows one by one. So where the attention output of a row is replaced by the
remembered one, that row is a constant in every layer, and the rows that are not replaced see exactly what a replay
sees. The whole canvas is computed: correct, but nothing is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tabes.attention.memory import Layer, Memory
from tabes.errors import ModelError

__all__ = ["RecordOutputs", "ReplayOutputs", "Watch", "hook_outputs", "using_outputs"]


class OutputTape(Protocol):
    def attend(self, output_BLd: Tensor, given: Iterable[Any]) -> Tensor: ...


_tape: ContextVar[OutputTape | None] = ContextVar("tabes_outputs_tape", default=None)


@contextmanager
def using_outputs(tape: OutputTape) -> Iterator[None]:
    """Attention modules that were hooked follow `tape` in here, in this thread."""
    token = _tape.set(tape)
    try:
        yield
    finally:
        _tape.reset(token)


class RecordOutputs:
    """Every attention output is kept as a constant."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def attend(self, output_BLd: Tensor, given: Iterable[Any]) -> Tensor:
        self.layers.append(Layer(output_BLd.detach()))
        return output_BLd


class ReplayOutputs:
    """Only the active rows keep what attention gave them."""

    def __init__(self, memory: Memory, active_BL: Tensor) -> None:
        self._memory, self._active_BL1 = memory, active_BL[..., None]
        self.layers: list[Layer] = []

    def attend(self, output_BLd: Tensor, given: Iterable[Any]) -> Tensor:
        if len(self.layers) == len(self._memory.layers):
            raise ModelError("the network made more attention calls in a replay than in the forward it replays")
        old_BLd = self._memory.layers[len(self.layers)].key
        if self._memory.batch_B is not None:
            old_BLd = old_BLd.index_select(0, self._memory.batch_B.to(old_BLd.device))
        merged_BLd = torch.where(self._active_BL1.to(old_BLd.device), output_BLd, old_BLd)
        self.layers.append(Layer(merged_BLd.detach()))
        return merged_BLd


class Watch:
    """Another tape, and what the attention modules were given: the rows (B, L, ...) among their arguments."""

    def __init__(self, tape: RecordOutputs | ReplayOutputs) -> None:
        self.tape = tape
        self.given: list[Tensor] = []

    def attend(self, output_BLd: Tensor, given: Iterable[Any]) -> Tensor:
        shape = output_BLd.shape[:2]
        self.given += [x for x in given if isinstance(x, Tensor) and x.ndim == 3 and x.shape[:2] == shape]
        return self.tape.attend(output_BLd, given)


def hook_outputs(module: nn.Module) -> int:
    """Put the outermost attention modules under the tape in use; returns how many there are."""
    count = 0
    for child in module.children():
        if "Attention" in type(child).__name__:
            if _attend not in child._forward_hooks.values():  # a model opened twice
                child.register_forward_hook(_attend, with_kwargs=True)
            count += 1
        else:
            count += hook_outputs(child)
    return count


def _attend(module: nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any], output: Any) -> Any:
    tape = _tape.get()
    if tape is None:
        return None
    rows = output[0] if isinstance(output, tuple) else output
    if not isinstance(rows, Tensor) or rows.ndim != 3:
        raise ModelError(f"{type(module).__name__} does not return rows (batch, length, width)")
    rows = tape.attend(rows, (*inputs, *keywords.values()))
    return (rows, *output[1:]) if isinstance(output, tuple) else rows
