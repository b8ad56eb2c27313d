"""The loop's phases, counted; its golden traces are in test_golden.py."""

from __future__ import annotations

import pytest

import tabes
from tabes.budgets import Even, Threshold, TokensPerStep
from tabes.errors import UsageError
from tabes.parts import REVISERS, Budget
from tabes.revisers import Loop
from tests.revisers.rules import final, plain_canvas, probabilities, ragged_canvas, rule, run


def kinds(steps: list[tabes.Step], row: int = 0) -> list[int]:
    """What each step did to the number of masks: -2 writes two, 1 takes one back."""
    return [len(step.remasked[row]) - len(step.positions[row]) for step in steps]


def test_phases(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(), rule(Loop(0.5, 3, 2), TokensPerStep(1)))
    assert kinds(steps) == [-1] * 6 + [2, -2] * 3 + [-1] * 6


def test_the_share_is_rounded_down(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(5), rule(Loop(0.5, 1, 1), TokensPerStep(1)))
    assert kinds(steps) == [-1] * 2 + [1, -1] + [-1] * 3


def test_a_block_that_is_filled_in_one_step(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(block_length=6), rule(Loop(0.5, 2, 1), TokensPerStep(6)))
    assert kinds(steps) == ([-6] + [1, -1] * 2) * 2


def test_taking_back_and_writing_at_once(golden_model: tabes.Denoiser) -> None:
    """ReMDM on LLaDA: a round is one forward, and what it takes back it does not write."""
    steps = run(golden_model, plain_canvas(), rule(Loop(0.5, 4, 2, "written", True), TokensPerStep(1)))
    assert kinds(steps) == [-1] * 6 + [0] * 4 + [-1] * 6
    assert [len(step.remasked[0]) for step in steps[6:10]] == [2] * 4
    assert [step.cost.head_rows for step in steps] == [int(step.before.masked_BL.sum()) for step in steps]
    # In a full canvas nothing can be written in the first round, so two masks are left for the budget.
    full = run(golden_model, plain_canvas(), rule(Loop(1.0, 3, 2, "now", True), TokensPerStep(4)))
    assert kinds(full) == [-4] * 3 + [2, 0, 0] + [-2]


def test_every_block_is_looped_over(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(block_length=6), rule(Loop(0.5, 2, 1), TokensPerStep(1)))
    assert kinds(steps) == ([-1] * 3 + [1, -1] * 2 + [-1] * 3) * 2


def test_a_full_block_is_looped_over_before_the_next_begins(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(block_length=6), rule(Loop(1.0, 2, 4), TokensPerStep(3)))
    assert kinds(steps) == ([-3, -3] + [4, -4] * 2) * 2
    for step in steps:
        revised = [*step.remasked[0], *step.positions[0]]
        assert len({int(step.canvas.block_BL[0, at]) for at in revised}) == 1


@pytest.mark.parametrize("budget", [Even(4), Threshold(0.3), Threshold(0.0)])
def test_the_budgets_clock_stands_still(golden_model: tabes.Denoiser, budget: Budget) -> None:
    """Without what the loop does, the steps of `even` are the steps of `even`."""
    looped = kinds(run(golden_model, plain_canvas(), rule(Loop(0.75, 5, 1), budget)))
    start = looped.index(1)
    assert looped[start : start + 10] == [1, -1] * 5
    locked_in = kinds(run(golden_model, plain_canvas(), rule(None, budget)))
    if isinstance(budget, Even):
        assert looped[:start] + looped[start + 10 :] == locked_in
    else:
        assert looped[:start] == locked_in[:start]


@pytest.mark.parametrize("certainty", ["now", "written"])
@pytest.mark.parametrize("at_once", [False, True])
def test_the_least_certain_are_taken_back(golden_model: tabes.Denoiser, certainty: str, at_once: bool) -> None:
    steps = run(golden_model, plain_canvas(), rule(Loop(0.75, 4, 2, certainty, at_once)))
    then: dict[int, float] = {}
    for step in steps:
        p_LV = probabilities(golden_model, step.before.tokens_BL[0])
        if step.remasked[0]:
            now = {at: float(p_LV[at, step.before.tokens_BL[0, at]]) for at in then}
            scores = then if certainty == "written" else now
            assert set(step.remasked[0]) == set(sorted(scores, key=lambda at: scores[at])[:2])
        then = {at: p for at, p in then.items() if at not in step.remasked[0]}
        then |= {at: float(p_LV[at, step.canvas.tokens_BL[0, at]]) for at in step.positions[0]}
    assert sum(len(step.remasked[0]) for step in steps) == 8


def test_limits(golden_model: tabes.Denoiser) -> None:
    for arguments in ({}, {"block_length": 4}):
        canvas = ragged_canvas(**arguments)
        locked_in = run(golden_model, canvas, rule(None, TokensPerStep(2)))
        for reviser in (Loop(loops=0), Loop(take_back=0), Loop(loops=0, certainty="written")):
            steps = run(golden_model, canvas, rule(reviser, TokensPerStep(2)))
            assert [step.positions for step in steps] == [step.positions for step in locked_in]
            assert final(steps).equal(final(locked_in))
            assert [step.cost.head_rows for step in steps] == [step.cost.head_rows for step in locked_in]


def test_parameters() -> None:
    for parameters, message in (
        ({"loop_share": 0.0}, "loop_share is 0.0; it must be above 0 and at most 1"),
        ({"loops": -1}, "loops is -1; it must be 0 or more"),
        ({"take_back": True}, "take_back is True; it must be a whole number"),
        ({"certainty": 1}, "certainty is 1; it must be 'now' or 'written'"),
    ):
        with pytest.raises(UsageError) as caught:
            REVISERS.build("loop", **parameters)
        assert str(caught.value) == message
