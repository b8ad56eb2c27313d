"""The prefilter: who may compete."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tabes.errors import UsageError
from tabes.steering import Prefilter
from tabes.steering.candidates import top

CONFIDENCE = (0.9, 0.2, 0.6, 0.8, 0.5, 0.95, 0.7)
OPEN = (True, True, True, True, True, False, True)
# Orders of their own, so that the wrong statistic picks other rows.
STATISTICS: Any = SimpleNamespace(
    margin_BL=torch.tensor([[0.1, 0.6, 0.5, 0.2, 0.4, 0.9, 0.3]]),
    entropy_BL=torch.tensor([[0.6, 0.5, 0.1, 0.4, 0.2, 0.0, 0.3]]),
)


def chosen(count: int = 1, **choice: Any) -> list[int]:
    found_BL = Prefilter(**choice).chosen(
        torch.tensor([OPEN]), STATISTICS, torch.tensor([CONFIDENCE]), torch.tensor([count])
    )
    return [int(row) for row in found_BL[0].nonzero()]


@pytest.mark.parametrize(
    ("choice", "count", "expected"),
    [
        ({}, 1, [0, 1, 2, 3, 4, 6]),
        ({"rho": 0.5}, 1, [0, 3, 6]),
        ({"rho": 0.34}, 1, [0, 3, 6]),
        ({"rho": 0.01}, 2, [0, 3]),
        ({"most": 2}, 1, [0, 3]),
        ({"most": 2}, 2, [0, 2, 3, 6]),
        ({"most": 2, "rho": 0.5}, 2, [0, 3, 6]),
        ({"by": "margin", "rho": 0.5}, 1, [1, 2, 4]),
        ({"by": "entropy", "rho": 0.5}, 1, [2, 4, 6]),
        ({"delta": 0.11}, 1, [0, 3]),
        ({"delta": 0.11}, 3, [0, 2, 3, 6]),
        ({"delta": 1.0}, 1, [0, 1, 2, 3, 4, 6]),
        ({"delta": 0.21, "rho": 0.34}, 1, [0, 3, 6]),
        ({"sure": 0.9}, 1, [0]),
        ({"sure": 0.91}, 1, [0, 1, 2, 3, 4, 6]),
        ({"sure": 0.75}, 3, [0, 1, 2, 3, 4, 6]),
        ({"sure": 0.65}, 3, [0, 3, 6]),
        # By margin alone the surest row would be missing.
        ({"by": "margin", "most": 2, "delta": 1.0}, 1, [0, 1, 2]),
    ],
)
def test_known_answers(choice: dict[str, Any], count: int, expected: list[int]) -> None:
    assert chosen(count, **choice) == expected


PREFILTERS = st.builds(
    Prefilter,
    by=st.sampled_from(["confidence", "margin", "entropy"]),
    rho=st.none() | st.floats(0.01, 1.0),
    delta=st.none() | st.floats(0.0, 1.0),
    most=st.none() | st.integers(1, 5),
    sure=st.none() | st.floats(0.0, 1.0),
)


@settings(max_examples=60, deadline=None)
@given(prefilter=PREFILTERS, count=st.integers(0, 9), open_=st.lists(st.booleans(), min_size=7, max_size=7))
def test_enough_rows_stay_in_and_all_are_open(prefilter: Prefilter, count: int, open_: list[bool]) -> None:
    open_BL = torch.tensor([open_])
    found_BL = prefilter.chosen(open_BL, STATISTICS, torch.tensor([CONFIDENCE]), torch.tensor([count]))
    assert not (found_BL & ~open_BL).any()
    assert int(found_BL.sum()) >= min(count, sum(open_))


@settings(max_examples=60, deadline=None)
@given(prefilter=PREFILTERS, count=st.integers(1, 4))
def test_a_batch_row_is_the_row_alone(prefilter: Prefilter, count: int) -> None:
    def twice(value_BL: Tensor) -> Tensor:
        return torch.cat([value_BL, value_BL.flip(1)])

    statistics: Any = SimpleNamespace(**{name: twice(value) for name, value in vars(STATISTICS).items()})
    open_BL, confidence_BL = twice(torch.tensor([OPEN])), twice(torch.tensor([CONFIDENCE]))
    found_BL = prefilter.chosen(open_BL, statistics, confidence_BL, torch.tensor([count, 7]))
    alone_BL = prefilter.chosen(open_BL[:1], STATISTICS, confidence_BL[:1], torch.tensor([count]))
    assert found_BL[:1].equal(alone_BL)


def test_a_share_is_rounded_up_and_never_by_rounding_errors() -> None:
    for length in (1, 7, 10, 81, 100):
        open_BL = torch.ones(1, length, dtype=torch.bool)
        for percent in range(1, 101):
            found_BL = Prefilter(rho=percent / 100).chosen(
                open_BL, STATISTICS, torch.linspace(0, 1, length)[None], torch.tensor([1])
            )
            assert int(found_BL.sum()) == ceil(Fraction(percent, 100) * length), (percent, length)


def test_equal_values_go_to_the_lowest_row() -> None:
    open_BL = torch.tensor([[False, True, True, True, True]])
    assert top(open_BL, torch.ones(1, 5), torch.tensor([2])).tolist() == [[False, True, True, False, False]]
    assert not top(open_BL, torch.ones(1, 5), torch.tensor([0])).any()


@pytest.mark.parametrize(
    "wrong", [{"by": "luck"}, {"rho": 0.0}, {"rho": 1.1}, {"delta": -0.1}, {"sure": 1.1}, {"most": 0}]
)
def test_wrong_choices_are_refused(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value!r}; it must be"):
        Prefilter(**wrong)
