"""Names for parts: one small table instead of ladders of `if name == ...`.

Other packages plug in by entry points: one in the group `tabes.rankings` (`.budgets`, `.writers`, `.revisers`,
`.kernels`) names a class, which is imported when its name is first asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from tabes.errors import UnknownNameError, UsageError
from tabes.settings import Setting, describe

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name. A part is a frozen dataclass; its fields are its parameters. `base` is what all inherit."""

    def __init__(self, kind: str, base: type[Any] | None = None) -> None:
        self.kind, self.base = kind, base
        self._classes: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[type[T]], type[T]]:
        """Class decorator: make the part known as `name`."""

        def add(part: type[T]) -> type[T]:
            if name in self._classes:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            self._classes[name] = part
            return part

        return add

    def names(self) -> tuple[str, ...]:
        return tuple(sorted({*self._classes, *self._offered}))

    def __contains__(self, name: object) -> bool:
        return name in self._classes or name in self._offered

    def find(self, name: str) -> type[T]:
        if name not in self._classes:
            self._classes[name] = self._loaded(name)
        return self._classes[name]

    def settings(self, name: str) -> tuple[Setting, ...]:
        """The parameters of the part called `name`."""
        return describe(self.find(name))

    def parameters(self, name: str) -> dict[str, Any]:
        """Parameter names and defaults."""
        return {known.name: known.default for known in self.settings(name)}

    def build(self, name: str, **parameters: Any) -> T:
        """The part called `name`, or one sentence on which parameter it does not have."""
        known = self.parameters(name)
        for unknown in parameters.keys() - known.keys():
            raise UnknownNameError(f"parameter of {self.kind} '{name}'", unknown, known)
        try:
            return self.find(name)(**parameters)
        except TypeError as error:
            raise UsageError(f"{self.kind} '{name}': {error}") from None

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        """What installed packages offer under names that are not taken."""
        return {point.name: point for point in entry_points(group=f"tabes.{self.kind}s")}

    def _loaded(self, name: str) -> type[T]:
        if name not in self._offered:
            raise UnknownNameError(self.kind, name, self.names())
        point = self._offered[name]
        try:
            part = point.load()
        except Exception as error:
            raise UsageError(f"{self.kind} '{name}' of {_package(point)} cannot be imported: {error}") from error
        if not isinstance(part, type):
            raise UsageError(f"{self.kind} '{name}' of {_package(point)} is {part!r}; it must be a class")
        if self.base is not None and not issubclass(part, self.base):
            where = f"{self.base.__module__}.{self.base.__name__}"
            raise UsageError(
                f"{self.kind} '{name}' of {_package(point)} is no {where}; make {part.__name__} inherit it"
            )
        return part


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
