"""How many bytes of tensors are alive: every storage is counted once, from the operation that makes it to its end.

Works for real tensors and for such that have no numbers (fake ones): the same code, the same storages. What it does
not see is what torch's kernels and the matrix library take for themselves while they run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["Live"]


class Live(TorchDispatchMode):
    """Counts while it is entered; `known` tensors (the weights) were there before and are no part of it.

    Attributes:
        bytes: Alive now.
        peak: The most that were alive.
    """

    def __init__(self, known: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._sizes: dict[int, int] = {}
        self._known = {tensor.untyped_storage()._cdata for tensor in known}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._count(leaf)
        return result

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        place = storage._cdata
        if place in self._known or place in self._sizes:
            return
        self._sizes[place] = storage.nbytes()
        self.bytes += self._sizes[place]
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._forget, place)

    def _forget(self, place: int) -> None:
        self.bytes -= self._sizes.pop(place)
