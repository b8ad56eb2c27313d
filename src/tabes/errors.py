"""The errors a user of tabes can meet. Each message is one sentence: what was wrong, its value, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["CombinationError", "ModelError", "NumericsError", "TabesError", "UnknownNameError", "UsageError"]


class TabesError(Exception):
    """Root of everything this package raises on purpose."""


class UsageError(TabesError, ValueError):
    """An argument, a prompt or a canvas that cannot be used."""


class UnknownNameError(UsageError):
    """A name nobody registered; the message lists the near ones."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(names)}."
        super().__init__(f"unknown {kind} '{name}'; {hint}")


class CombinationError(UsageError):
    """Two parts that cannot work together; the message names both and says why."""


class ModelError(TabesError):
    """A checkpoint that cannot be loaded, or a network that does not do what its config says."""


class NumericsError(TabesError, ArithmeticError):
    """NaN or infinite values met while decoding; the message has the step and the batch row."""

    def __init__(self, what: str, batch_row: int | None = None, position: int | None = None) -> None:
        self.what, self.batch_row, self.position = what, batch_row, position
        place = [f"{name} {at}" for name, at in (("batch row", batch_row), ("position", position)) if at is not None]
        super().__init__(f"{what} at {', '.join(place)}" if place else what)
