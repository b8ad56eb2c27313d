"""Parameters that say what they are: a default, the values that make sense, one line of help.

A part is a frozen dataclass whose fields are made with `setting`: `check` refuses values outside the range, `describe`
lists them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from math import inf
from typing import Any

from tabes.errors import UsageError

__all__ = ["Range", "Setting", "as_in", "check", "describe", "setting"]

_KEY = "tabes"


@dataclass(frozen=True)
class Range:
    """The values that make sense: numbers within the bounds (None does not bind), or one of the choices, or either.

    `or_none`: None is one more.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[Any, ...] = ()
    whole: bool = False
    or_none: bool = False

    def __contains__(self, value: object) -> bool:
        if value is None:
            return self.or_none
        if any(value == choice and type(value) is type(choice) for choice in self.choices):
            return True
        if not self.numeric:
            return not self.choices
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (self.most is None or value <= self.most)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        words = [self._bounds] if self.numeric else []
        return " or ".join(words + [repr(choice) for choice in self.choices])

    def refusal(self, value: object) -> str:
        """What a value outside must be instead."""
        is_number = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if self.choices or is_number:
            return str(self)
        return "a whole number" if self.whole else "a number"

    @property
    def _bounds(self) -> str:
        if self.least is not None and self.most is not None:
            return f"between {self.least} and {self.most}"
        bounds = (
            ("{} or more", self.least),
            ("above {}", self.above),
            ("at most {}", self.most),
            ("below {}", self.below),
        )
        said = [words.format(value) for words, value in bounds if value not in (None, inf, -inf)]
        return " and ".join(said) or ("a whole number" if self.whole else "a number")

    @property
    def numeric(self) -> bool:
        """Whether numbers make sense."""
        return self.whole or any(bound is not None for bound in (self.least, self.above, self.most, self.below))


@dataclass(frozen=True)
class Setting:
    """One parameter of a part, for people."""

    name: str
    default: Any
    range: Range
    help: str


def setting(
    default: Any,
    help: str,  # noqa: A002 - the word everybody uses for it
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[Any] = (),
    whole: bool = False,
    or_none: bool = False,
) -> Any:
    """A dataclass field that knows its range and its help."""
    span = Range(least, above, most, below, tuple(choices), whole, or_none or default is None)
    return field(default=default, metadata={_KEY: (span, help)})


def as_in(part: type[Any], name: str, **default: Any) -> Any:
    """The same parameter as the field `name` of `part`, its range and help said there once; maybe another `default`."""
    one = next(known for known in fields(part) if known.name == name)
    return field(metadata=one.metadata, **{"default": one.default, **default})


def check(part: Any) -> None:
    """Raise for the first parameter whose value makes no sense."""
    for known in describe(type(part)):
        value = getattr(part, known.name)
        if value not in known.range:
            raise UsageError(f"{known.name} is {value!r}; it must be {known.range.refusal(value)}")


def describe(part: type[Any]) -> tuple[Setting, ...]:
    """The parameters of a part, in the order of its fields."""
    if not is_dataclass(part):
        return ()
    found = []
    for one in fields(part):
        span, text = one.metadata.get(_KEY, (Range(), ""))
        found.append(Setting(one.name, None if one.default is MISSING else one.default, span, text))
    return tuple(found)
