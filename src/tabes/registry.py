"""Names for parts: one small table instead of ladders of `if name == ...`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Generic, TypeVar

from tabes.errors import UnknownNameError, UsageError

__all__ = ["Registry"]

T = TypeVar("T")


class Registry(Generic[T]):
    """Classes by name. A part is a frozen dataclass; its fields are its parameters."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
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
        return tuple(sorted(self._classes))

    def find(self, name: str) -> type[T]:
        if name not in self._classes:
            raise UnknownNameError(self.kind, name, self._classes)
        return self._classes[name]

    def parameters(self, name: str) -> dict[str, Any]:
        """Parameter names and defaults."""
        part = self.find(name)
        return {f.name: None if f.default is MISSING else f.default for f in fields(part)} if is_dataclass(part) else {}

    def build(self, name: str, **parameters: Any) -> T:
        """The part called `name`, or one sentence on which parameter it does not have."""
        known = self.parameters(name)
        for unknown in parameters.keys() - known.keys():
            raise UnknownNameError(f"parameter of {self.kind} '{name}'", unknown, known)
        try:
            return self.find(name)(**parameters)
        except TypeError as error:
            raise UsageError(f"{self.kind} '{name}': {error}") from None
