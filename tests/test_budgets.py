"""Budgets: known answers, and what holds for every number of masks, steps and blocks."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabes import Canvas, TabesError
from tabes.budgets import Cosine, Even, TokensPerStep
from tabes.parts import BUDGETS, CountBudget
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
        assert len(found) <= masks, "a step wrote nothing"
    return found


def recorded() -> list[tuple[int, int, list[int]]]:
    file = json.loads((GOLDEN / "schedules" / "llada_split.json").read_text())
    return [(case["masks"], case["steps"], case["per_step"]) for case in file["counts"]]


@pytest.mark.parametrize(("masks", "steps", "per_step"), recorded())
def test_even_is_lladas_split(masks: int, steps: int, per_step: list[int]) -> None:
    assert counts(Even(steps), masks) == [count for count in per_step if count]


def test_cosine_known_answers() -> None:
    """MaskGIT's counts; the mask its last step leaves over is filled by the same step here."""
    assert counts(Cosine(12), 128) == [2, 3, 5, 8, 9, 11, 13, 13, 16, 15, 17, 16]
    assert counts(Cosine(8), 64) == [2, 3, 6, 8, 10, 11, 12, 12]


def test_limits() -> None:
    assert counts(Even(), 7) == counts(TokensPerStep(1), 7) == counts(Even(7), 7) == [1] * 7
    assert counts(Cosine(1), 7) == counts(Even(1), 7) == counts(TokensPerStep(9), 7) == [7]
    assert counts(Even(3), 7, block_length=99) == counts(Even(3), 7)


def test_steps_are_shared_between_blocks() -> None:
    assert counts(Even(6), 12, block_length=4) == [2] * 6
    assert counts(Even(5), 12, block_length=4) == [2, 2, 2, 2, 4]
    assert counts(Even(4), 10, block_length=4) == [2, 2, 4, 2]
    with pytest.raises(TabesError, match="num_steps is 2 but there are 3 blocks"):
        counts(Even(2), 12, block_length=4)


@given(st.integers(1, 60), st.integers(1, 70), st.one_of(st.none(), st.integers(1, 61)))
@settings(deadline=None, max_examples=80)
def test_even_and_cosine_write_everything_in_time(masks: int, steps: int, block_length: int | None) -> None:
    blocks = -(-masks // (block_length or masks))
    for budget in (Even(steps), Cosine(steps)):
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
    parameter = next(iter(BUDGETS.parameters(name)))
    with pytest.raises(TabesError, match=f"{parameter} is 0; it must be 1 or more"):
        BUDGETS.build(name, **{parameter: 0})


def test_two_ways_to_say_how_many_exclude_each_other() -> None:
    with pytest.raises(TabesError, match="exclude each other"):
        sampler("confidence", num_steps=3, tokens_per_step=2)
    with pytest.raises(TabesError, match="besides a ready-made budget"):
        sampler("confidence", num_steps=3, budget=Even(2))
    with pytest.raises(TabesError, match="unknown budget 'cosin'; did you mean cosine"):
        sampler("confidence", budget="cosin")
    with pytest.raises(TabesError, match="unknown parameter of budget 'cosine' 'tokens_per_step'"):
        sampler("confidence", budget="cosine", tokens_per_step=3)
