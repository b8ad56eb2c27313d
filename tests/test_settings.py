"""Parameters that say what they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest

from tabes.errors import UsageError
from tabes.settings import Range, Setting, as_in, check, describe, setting


@dataclass(frozen=True)
class Oven:
    heat: float = setting(180.0, "degrees", above=0, most=300)
    mode: str = setting("fan", "how heat moves", choices=("fan", "grill"))
    shelf: int | None = setting(None, "counted from below", least=1, whole=True)
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Bakery:
    warmth: float = as_in(Oven, "heat")
    style: str = as_in(Oven, "mode", default="grill")


@pytest.mark.parametrize(
    ("span", "inside", "outside"),
    [
        (Range(least=0, most=1), [0, 1, 0.5], [-0.1, 1.1, nan, "x", True, None]),
        (Range(above=0, below=1), [0.5], [0, 1, nan]),
        (Range(least=1, whole=True), [1, 10**9], [0, 1.0, True, "1"]),
        (Range(above=-inf, below=inf, or_none=True), [0, -1e30, None], [inf, -inf, nan, "x"]),
        (Range(choices=("a", "b")), ["a"], ["c", 0, None]),
        (Range(choices=(False, True)), [False, True], [0, 1]),
        (Range(choices=(1, -1)), [1, -1], [1.0, True, 0]),
        (Range(least=0, most=1, choices=("gauss",)), [0, 0.5, "gauss"], ["x", 2, nan]),
        (Range(or_none=True), ["anything", None, 3], []),
    ],
)
def test_what_lies_in_a_range(span: Range, inside: list[Any], outside: list[Any]) -> None:
    assert all(value in span for value in inside)
    assert not any(value in span for value in outside)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heat": 0.0}, "heat is 0.0; it must be above 0 and at most 300"),
        ({"heat": "hot"}, "heat is 'hot'; it must be a number"),
        ({"mode": "steam"}, "mode is 'steam'; it must be 'fan' or 'grill'"),
        ({"shelf": 0}, "shelf is 0; it must be 1 or more"),
        ({"shelf": 1.5}, "shelf is 1.5; it must be a whole number"),
    ],
)
def test_a_wrong_value_gets_one_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Oven(**wrong)
    assert str(caught.value) == message


def test_ranges_read_well() -> None:
    assert str(Range(least=0, most=1, choices=("gauss",))) == "between 0 and 1 or 'gauss'"
    assert str(Range(above=-inf, below=inf)) == "a number"
    assert str(Range(above=0, below=inf)) == "above 0"
    assert str(Range()) == ""


def test_a_part_lists_its_parameters_in_order() -> None:
    found = describe(Oven)
    assert [one.name for one in found] == ["heat", "mode", "shelf", "names"]
    assert found[0] == Setting("heat", 180.0, Range(above=0, most=300), "degrees")
    assert found[2].range.or_none
    assert describe(int) == ()


def test_a_parameter_may_be_that_of_another_part() -> None:
    warmth, style = describe(Bakery)
    assert warmth == Setting("warmth", 180.0, describe(Oven)[0].range, "degrees")
    assert (style.default, style.range) == ("grill", describe(Oven)[1].range)
