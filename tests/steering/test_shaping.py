"""Gate, floor, annealing and mixing, against the formulas of the paper written out for one row."""

from __future__ import annotations

from itertools import product
from math import exp, log
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tabes.errors import UsageError
from tabes.presets import sampler
from tabes.steering import Shaping
from tests.steering.scenes import filled, holes, tiny

VOCAB = 7
ENTROPY = (0.0, 0.01, 0.4, 1.2, log(VOCAB))
DROPS = (1.5, -0.5, 0.0, 2.0, 1.0)
CONFIDENCE = (1.0, 0.99, 0.8, 0.5, 0.0)


def shaped(shaping: Shaping, time: float) -> list[float]:
    prediction: Any = SimpleNamespace(entropy_BL=torch.tensor([ENTROPY]), vocab_size=VOCAB)
    found_BL = shaping.scores(torch.tensor([DROPS]), prediction, torch.tensor([CONFIDENCE]), torch.tensor([time]))
    found: list[float] = found_BL[0].tolist()
    return found


def by_hand(drop: float, entropy: float, time: float, choice: dict[str, Any]) -> float:
    gate = min(1.0, max(0.0, 1 - entropy / log(VOCAB))) if choice["gate"] else 1.0
    height = choice["floor_height"] * (time if choice["floor_form"] == "falling" else 1 - time)
    weight = choice["floor_weight"] * (time if choice["floor_annealing"] == "linear" else 1.0)
    return gate * drop - weight * max(0.0, height - entropy) ** 2


@pytest.mark.parametrize("time", [1.0, 0.75, 0.0])
def test_the_formula(time: float) -> None:
    names = ("gate", "floor_weight", "floor_height", "floor_form", "floor_annealing")
    for values in product((False, True), (0.0, 3.0), (0.0, 0.5), ("falling", "rising"), ("none", "linear")):
        choice: dict[str, Any] = dict(zip(names, values, strict=True))
        expected = [by_hand(drop, entropy, time, choice) for drop, entropy in zip(DROPS, ENTROPY, strict=True)]
        assert shaped(Shaping(**choice), time) == pytest.approx(expected, abs=1e-6)


def test_at_the_start_only_the_falling_floor_stands() -> None:
    falling, rising = (Shaping(floor_weight=2.0, floor_height=0.5, floor_form=form) for form in ("falling", "rising"))  # type: ignore[arg-type]
    assert shaped(falling, 1.0)[0] == pytest.approx(DROPS[0] - 2.0 * 0.25)
    assert shaped(rising, 1.0) == pytest.approx(DROPS)
    assert shaped(falling, 0.0) == pytest.approx(DROPS)
    assert shaped(rising, 0.0)[0] == pytest.approx(DROPS[0] - 2.0 * 0.25)


def test_by_default_nothing_is_changed() -> None:
    assert shaped(Shaping(), 0.3) == pytest.approx(DROPS)


def test_mixing_adds_log_confidence() -> None:
    found = shaped(Shaping(gate=True, mix=0.3), 0.5)
    gated = shaped(Shaping(gate=True), 0.5)
    assert [exp(score - 0.3 * other) for score, other in zip(found, gated, strict=True)] == pytest.approx(
        list(CONFIDENCE), abs=1e-6
    )
    assert min(found) > float("-inf"), "a confidence of 0 is not infinitely bad"


def test_every_batch_row_has_its_own_time() -> None:
    prediction: Any = SimpleNamespace(entropy_BL=torch.zeros(2, 1), vocab_size=VOCAB)
    shaping = Shaping(floor_weight=1.0, floor_height=1.0, floor_annealing="linear")
    found_BL = shaping.scores(torch.zeros(2, 1), prediction, torch.ones(2, 1), torch.tensor([1.0, 0.5]))
    assert found_BL.flatten().tolist() == pytest.approx([-1.0, -0.125])


def test_mixing_with_nothing_is_confidence() -> None:
    canvas = holes(9, range(2, 9))
    expected_BL, steps = filled(tiny("bert"), canvas, sampler("confidence"))
    found_BL, mixed = filled(tiny("bert"), canvas, sampler("boe", mix=0.0))
    assert found_BL.equal(expected_BL)
    assert [step.positions for step in mixed] == [step.positions for step in steps]


@pytest.mark.parametrize(
    "wrong", [{"floor_weight": -1.0}, {"floor_height": -0.1}, {"floor_form": "low"}, {"floor_annealing": "cosine"}]
)
def test_wrong_choices_are_refused_with_their_value(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value!r}"):
        Shaping(**wrong)
