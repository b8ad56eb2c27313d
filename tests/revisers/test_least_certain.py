"""What is taken back at every step, against the transformers model alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes.budgets import Even, Threshold, TokensPerStep
from tabes.errors import UsageError
from tabes.parts import REVISERS, CountBudget
from tabes.revisers import LeastCertain
from tabes.view import View
from tests.revisers.rules import final, plain_canvas, probabilities, ragged_canvas, rule, run


def least(scores: dict[int, float], count: int) -> set[int]:
    return set(sorted(scores, key=lambda at: (scores[at], at))[:count])


@pytest.mark.parametrize("take_back", [1, 3])
def test_the_least_probable_tokens_are_taken_back(golden_model: tabes.Denoiser, take_back: int) -> None:
    steps = run(golden_model, plain_canvas(), rule(LeastCertain(take_back)))
    for step in steps:
        before, written = step.before, step.before.writable_BL[0] & ~step.before.masked_BL[0]
        p_LV = probabilities(golden_model, before.tokens_BL[0])
        now = {at: float(p_LV[at, before.tokens_BL[0, at]]) for at in written.nonzero().flatten().tolist()}
        room = int(before.masked_BL.sum()) - 1
        expected = least(now, min(take_back, room))
        assert set(step.remasked[0]) == expected
        assert len(step.positions[0]) == 1 + len(expected)  # as many more are written
    assert len(steps) == 12


def test_or_those_that_were_least_probable_when_written(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(), rule(LeastCertain(2, "written"), TokensPerStep(2)))
    then: dict[int, float] = {}
    taken = 0
    for step in steps:
        p_LV = probabilities(golden_model, step.before.tokens_BL[0])
        expected = least(then, min(2, max(int(step.before.masked_BL.sum()) - 2, 0)))
        assert set(step.remasked[0]) == expected
        taken += len(expected)
        then = {at: p for at, p in then.items() if at not in expected}
        then |= {at: float(p_LV[at, step.canvas.tokens_BL[0, at]]) for at in step.positions[0]}
    assert taken > 4


def test_certainty_when_written_reads_no_written_row(golden_model: tabes.Denoiser) -> None:
    now, then = (run(golden_model, plain_canvas(), rule(LeastCertain(1, which))) for which in ("now", "written"))
    assert [step.cost.head_rows for step in then] == [int(step.before.masked_BL.sum()) for step in then]
    assert [step.cost.head_rows for step in now] == [12] * len(now)


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = ragged_canvas()
    for budget in (TokensPerStep(2), Even(4), Threshold(0.5)):
        locked_in = run(golden_model, canvas, rule(None, budget))
        never = (
            LeastCertain(0),
            LeastCertain(3, revise_from=0.0),
            LeastCertain(3, revise_until=1.0),
            LeastCertain(0, "written"),
        )
        for reviser in never:
            steps = run(golden_model, canvas, rule(reviser, budget))
            assert [step.positions for step in steps] == [step.positions for step in locked_in]
            assert final(steps).equal(final(locked_in))
            assert [step.cost.head_rows for step in steps] == [step.cost.head_rows for step in locked_in]


def test_only_within_the_window(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(), rule(LeastCertain(1, "now", 0.75, 0.25)))
    for step in steps:
        time = float(step.before.time_B)
        assert bool(step.remasked[0]) == (0.25 < time <= 0.75)


def test_an_adaptive_budget_writes_more_than_is_taken_back(golden_model: tabes.Denoiser) -> None:
    """One that dares a single row at a time would never get on."""
    steps = run(golden_model, plain_canvas(), rule(LeastCertain(3), Threshold(1.1)))
    assert len(steps) == 12
    assert max(len(step.remasked[0]) for step in steps) == 3
    assert all(len(step.positions[0]) == 1 + len(step.remasked[0]) for step in steps)


class EverySecondStep(CountBudget):
    """Writes nothing of its own in between."""

    def counts(self, view: View, state: Any) -> tuple[Tensor, Any]:
        return torch.full_like(view.canvas.block_B, (view.step + 1) % 2), state


def test_no_more_is_taken_back_than_can_be_written_on_top(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(), rule(LeastCertain(50), EverySecondStep()))
    for step in steps[1:]:
        masks = int(step.before.masked_BL.sum())
        assert len(step.remasked[0]) == min(12 - masks, masks - 1)
        assert len(step.positions[0]) == (1 + len(step.remasked[0]) if masks > 1 else (step.index + 1) % 2)
    assert len(steps) <= 13


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"take_back": -1}, "take_back is -1; it must be 0 or more"),
        ({"take_back": 1.5}, "take_back is 1.5; it must be a whole number"),
        ({"certainty": "later"}, "certainty is 'later'; it must be 'now' or 'written'"),
        ({"revise_from": 1.5}, "revise_from is 1.5; it must be between 0 and 1"),
        ({"revise_until": -0.5}, "revise_until is -0.5; it must be between 0 and 1"),
    ],
)
def test_parameters(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        REVISERS.build("least_certain", **parameters)
    assert str(caught.value) == message


def test_a_huge_vocabulary_in_pieces(golden_model: tabes.Denoiser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not all logits are kept, the written rows go through the head once more, to the same end."""
    whole = run(golden_model, ragged_canvas(), rule(LeastCertain(2)))
    monkeypatch.setattr("tabes.prediction._CHUNK_ELEMENTS", 3 * 67)
    pieces = run(golden_model, ragged_canvas(), rule(LeastCertain(2)))
    assert [step.remasked for step in pieces] == [step.remasked for step in whole]
    assert torch.equal(final(pieces), final(whole))
    assert pieces[3].cost.head_rows > whole[3].cost.head_rows
