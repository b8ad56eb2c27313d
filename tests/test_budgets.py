"""Budgets: known answers, and what holds for every number of masks, steps and blocks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabes import Canvas, TabesError
from tabes.budgets import Coins, Curve, Dream, Even, TokensPerStep
from tabes.parts import BUDGETS, CountBudget, ranked
from tabes.presets import sampler
from tabes.randomness import Randomness
from tabes.view import View
from tests.conftest import GOLDEN

MASK = 9


def counts(budget: CountBudget, masks: int, block_length: int | None = None, given: int = 0) -> list[int]:
    """Counts a budget gives when the lowest open rows are written, no network involved."""
    canvas = Canvas.create(torch.ones(1, given).long(), mask_id=MASK, max_new_tokens=masks, block_length=block_length)
    randomness = Randomness.create(0, 1, torch.device("cpu"))
    state, found = budget.init(canvas), []
    while bool(canvas.masked_BL.any()):
        view = View(canvas, None, len(found), randomness)  # type: ignore[arg-type]
        count_B, state = budget.counts(view, state)
        write_BL = canvas.open_BL & (canvas.open_BL.cumsum(1) <= count_B[:, None])
        found.append(int(write_BL.sum()))
        canvas = canvas.with_tokens(torch.where(write_BL, 1, canvas.tokens_BL))
        assert len(found) <= masks or isinstance(budget, Dream), "a step wrote nothing"
    return found


def walked(budget: Coins, canvas: Canvas, seed: int = 0) -> list[int]:
    """How many rows the coins write at every step of one batch row."""
    randomness = Randomness.create(seed, 1, torch.device("cpu"))
    state, found = budget.init(canvas), []
    while bool(canvas.masked_BL.any()):
        view = View(canvas, None, len(found), randomness)  # type: ignore[arg-type]
        order = ranked(canvas.open_BL, torch.zeros(canvas.tokens_BL.shape), None, None)  # type: ignore[arg-type]
        write_BL, state = budget.cut(view, order, torch.zeros(1).long(), state)
        found.append(int(write_BL.sum()))
        canvas = canvas.with_tokens(torch.where(write_BL, 1, canvas.tokens_BL))
    return found


def recorded() -> list[tuple[int, int, list[int]]]:
    file = json.loads((GOLDEN / "schedules" / "llada_split.json").read_text())
    return [(case["masks"], case["steps"], case["per_step"]) for case in file["counts"]]


@pytest.mark.parametrize(("masks", "steps", "per_step"), recorded())
def test_even_is_lladas_split(masks: int, steps: int, per_step: list[int]) -> None:
    assert counts(Even(steps), masks) == [count for count in per_step if count]


def test_cosine_known_answers() -> None:
    """MaskGIT's counts; the mask its last step leaves over is filled by the same step here."""
    assert counts(Curve(12), 128) == [2, 3, 5, 8, 9, 11, 13, 13, 16, 15, 17, 16]
    assert counts(Curve(8), 64) == [2, 3, 6, 8, 10, 11, 12, 12]


CURVES: dict[str, Callable[[float, int], float]] = {
    "cosine": lambda r, n: math.cos(math.pi / 2 * r),
    "linear": lambda r, n: 1 - r,
    "power": lambda r, n: 1 - r**3,
    "log": lambda r, n: -math.log2(r) / math.log2(n),
    "exp": lambda r, n: 1 - 2 ** (-math.log2(n) * (1 - r)),
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize(("masks", "steps"), [(128, 12), (77, 10), (30, 29)])
def test_every_curve_keeps_what_maskgit_keeps(curve: str, masks: int, steps: int) -> None:
    """Between one more mask written and one mask left, floor(n curve(r)) are kept."""
    left, expected = masks, []
    for step in range(1, steps):
        kept = math.floor(masks * CURVES[curve](step / steps, masks) + 1e-7)
        kept = min(max(kept, 1), left - 1) if left > 1 else 0
        expected.append(left - kept)
        left = kept
    expected.append(left)
    assert counts(Curve(steps, curve, 3.0), masks) == [count for count in expected if count]


def test_curves_are_named_and_checked() -> None:
    assert set(CURVES) == set(BUDGETS.settings("curve")[1].range.choices)
    with pytest.raises(TabesError, match="curve is 'sine'; it must be 'cosine' or"):
        Curve(3, "sine")
    with pytest.raises(TabesError, match="exponent is 0; it must be above 0"):
        Curve(3, "power", 0)


def recorded_of_dream() -> list[tuple[int, int, float, list[int]]]:
    file = json.loads((GOLDEN / "schedules" / "dream_counts.json").read_text())
    return [(case["masks"], case["steps"], case["eps"], case["per_step"]) for case in file["counts"]]


@pytest.mark.parametrize(("masks", "steps", "eps", "per_step"), recorded_of_dream())
def test_dream_counts(masks: int, steps: int, eps: float, per_step: list[int]) -> None:
    assert counts(Dream(steps, eps), masks) == per_step


@pytest.mark.parametrize(("masks", "steps"), [(256, None), (256, 256), (128, 64)])
def test_dream_counts_known_answers(masks: int, steps: int | None) -> None:
    """A wasted first step where there are as many steps as masks, and what rounding left over in the last."""
    per_step = masks // (steps or masks)
    assert counts(Dream(steps), masks) == [per_step - 1, *[per_step] * ((steps or masks) - 2), per_step + 1]


def test_dream_is_even_without_rounding_and_eps() -> None:
    """Half a step more than whole numbers need: floor(n (1 - s/t)) is then n / steps."""
    assert counts(Dream(5, eps=1e-30), 13) == [2, 2, 3, 3, 3]
    assert sorted(counts(Dream(5, eps=1e-30), 13), reverse=True) == counts(Even(5), 13)


@given(st.integers(1, 40), st.integers(1, 60), st.one_of(st.none(), st.integers(1, 41)))
@settings(deadline=None, max_examples=60)
def test_dream_and_coins_write_everything_at_the_last_step(masks: int, steps: int, block_length: int | None) -> None:
    blocks = -(-masks // (block_length or masks))
    if blocks > steps:
        return
    found = counts(Dream(steps), masks, block_length)
    assert sum(found) == masks and len(found) <= steps
    canvas = Canvas.create(torch.ones(1, 0).long(), mask_id=MASK, max_new_tokens=masks, block_length=block_length)
    taken = walked(Coins(steps), canvas, seed=steps)
    assert sum(taken) == masks and len(taken) <= steps


def test_limits() -> None:
    assert counts(Even(), 7) == counts(TokensPerStep(1), 7) == counts(Even(7), 7) == [1] * 7
    assert counts(Even(1), 7) == counts(TokensPerStep(9), 7) == counts(Dream(1), 7) == [7]
    assert walked(Coins(1), Canvas.create(torch.ones(1, 0).long(), mask_id=MASK, max_new_tokens=7)) == [7]
    for curve in CURVES:
        assert counts(Curve(1, curve), 7) == [7]
        assert counts(Curve(3, curve), 1) == [1]
    assert counts(Curve(5, "linear"), 100) == counts(Curve(5, "power", 1.0), 100) == counts(Even(5), 100)
    assert counts(Curve(10, "linear"), 100) == [10] * 10, "rounding takes nothing off a whole number"
    assert counts(Even(3), 7, block_length=99) == counts(Even(3), 7)


def test_steps_are_shared_between_blocks() -> None:
    assert counts(Even(6), 12, block_length=4) == [2] * 6
    assert counts(Even(5), 12, block_length=4) == [2, 2, 2, 2, 4]
    assert counts(Even(4), 10, block_length=4) == [2, 2, 4, 2]
    with pytest.raises(TabesError, match="num_steps is 2 but there are 3 blocks"):
        counts(Even(2), 12, block_length=4)


@given(st.integers(1, 60), st.integers(1, 70), st.one_of(st.none(), st.integers(1, 61)))
@settings(deadline=None, max_examples=80)
def test_even_and_curves_write_everything_in_time(masks: int, steps: int, block_length: int | None) -> None:
    blocks = -(-masks // (block_length or masks))
    for budget in (Even(steps), *(Curve(steps, curve) for curve in CURVES)):
        if blocks > steps:
            continue
        found = counts(budget, masks, block_length)
        assert sum(found) == masks
        assert min(found) >= 1
        assert len(found) <= steps
        if isinstance(budget, Even):
            assert len(found) == min(steps, masks) or block_length is not None
            if blocks == 1:
                assert max(found) - min(found) <= 1
                assert all(first >= second for first, second in pairwise(found))


@pytest.mark.parametrize("name", BUDGETS.names())
def test_bad_parameters(name: str) -> None:
    for known in BUDGETS.settings(name):
        bad = 0 if 0 not in known.range and known.name != "curve" else "nonsense"
        with pytest.raises(TabesError, match=f"{known.name} is {bad!r}; it must be "):
            BUDGETS.build(name, **{known.name: bad})


def test_two_ways_to_say_how_many_exclude_each_other() -> None:
    with pytest.raises(TabesError, match="exclude each other"):
        sampler("confidence", num_steps=3, tokens_per_step=2)
    with pytest.raises(TabesError, match="besides a ready-made budget"):
        sampler("confidence", num_steps=3, budget=Even(2))
    with pytest.raises(TabesError, match="unknown budget 'curv'; did you mean curve"):
        sampler("confidence", budget="curv")
    with pytest.raises(TabesError, match="unknown parameter of budget 'curve' 'tokens_per_step'"):
        sampler("confidence", budget="curve", tokens_per_step=3)


@pytest.mark.parametrize("what", ["budget", "reviser"])
def test_a_part_that_is_no_name_and_no_part(what: str) -> None:
    with pytest.raises(TabesError, match=f"{what} is 3; give a name"):
        sampler("confidence", **{what: 3})
