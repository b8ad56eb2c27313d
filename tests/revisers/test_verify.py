"""Verification: who is asked, how many are taken back, and what it refuses; its golden traces are in test_golden.py."""

from __future__ import annotations

import pytest
import torch

import tabes
from tabes import Denoiser
from tabes.budgets import Draft, Threshold, TokensPerStep
from tabes.errors import CombinationError, ModelError, UsageError
from tabes.parts import BUDGETS, REVISERS, Budget, ranked
from tabes.revisers import Verify
from tests.revisers.rules import final, plain_canvas, ragged_canvas, rule, run
from tests.shadows import dense
from tests.tiny import DENSE, REFUSED, REPLAYING

TINY_MASK = 5


def tiny(name: str) -> Denoiser:
    family = {**REPLAYING, **DENSE, **REFUSED}[name]
    return Denoiser(family.network(), None, TINY_MASK, name=name)


def tiny_canvas(**arguments: int) -> tabes.Canvas:
    return tabes.Canvas.create(torch.tensor([[9, 8, 7, 11]]), mask_id=TINY_MASK, max_new_tokens=10, **arguments)


@pytest.mark.parametrize("name", ["llama-grouped", "modernbert", "albert", "roberta"])
def test_tokens_that_a_shadow_does_not_hold_are_taken_back(name: str) -> None:
    """Against one dense forward of canvas and shadows under a 4-D mask, step by step."""
    model, threshold, taken = tiny(name), 0.4, 0
    steps = run(model, tiny_canvas(block_length=5), rule(Verify(threshold), TokensPerStep(3)))
    wrote = 0
    for step in steps:
        before, tokens_L = step.before, step.before.tokens_BL[0]
        rows_L = before.writable_BL[0] & (before.block_BL[0] == before.block_B[0])
        rows = rows_L.nonzero().flatten().tolist()
        _, hidden_Rd = dense(name, tokens_L, rows, torch.full((len(rows),), TINY_MASK))
        logits_RV = model.network.head(hidden_Rd).double()
        logits_RV[:, TINY_MASK] = -torch.inf
        p_RV = torch.softmax(logits_RV, -1)
        held = {at: float(p_RV[slot, tokens_L[at]]) for slot, at in enumerate(rows) if tokens_L[at] != TINY_MASK}
        weak = sorted((at for at in held if held[at] < threshold), key=lambda at: held[at])
        most = wrote - 1 if len(step.positions[0]) > 1 else 0
        assert set(step.remasked[0]) == set(weak[: max(most, 0)])
        wrote = len(step.positions[0])
        taken += len(step.remasked[0])
    assert taken > 0


@pytest.mark.parametrize("budget", [TokensPerStep(4), Draft(0.0), Draft(0.3), Threshold(0.5)])
def test_it_ends_though_nothing_ever_holds(golden_model: tabes.Denoiser, budget: Budget) -> None:
    canvas = plain_canvas(30)
    steps = run(golden_model, canvas, rule(Verify(1.0), budget))
    assert len(steps) <= 30
    masks = [int(step.before.masked_BL.sum()) for step in steps] + [0]
    written = [len(step.positions[0]) for step in steps]
    assert masks[-2] == written[-1]
    for at, step in enumerate(steps):
        assert len(step.remasked[0]) <= max(written[at - 1] - 1 if at else 0, 0)
        assert masks[at + 1] <= 30 - at - written[at]  # a mask is filled for good at every step
    assert sum(len(step.remasked[0]) for step in steps) > 0


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = ragged_canvas(block_length=5)
    for reviser, budget in (
        (Verify(0.0), Draft(0.3)),
        (Verify(0.0), TokensPerStep(2)),
        (Verify(0.9), TokensPerStep(1)),
    ):
        locked_in = run(golden_model, canvas, rule(None, budget))
        steps = run(golden_model, canvas, rule(reviser, budget))
        assert [step.positions for step in steps] == [step.positions for step in locked_in]
        assert final(steps).equal(final(locked_in))
        assert [step.cost.forward_tokens for step in steps] == [step.cost.forward_tokens for step in locked_in]


def test_a_draft_is_capped() -> None:
    """At most max(5, 70 %), never more than 20; at 1 only the best row."""
    for masks, most in ((3, 3), (7, 5), (10, 7), (40, 20)):
        canvas = tabes.Canvas.create(torch.tensor([[1]]), mask_id=TINY_MASK, max_new_tokens=masks)
        model = tiny("bert")
        prediction = model.predict(canvas, canvas.masked_BL)
        view = tabes.view.View(canvas, model, 0, tabes.randomness.Randomness.create(0, 1, torch.device("cpu")))
        proposal = rule(None).writer.propose(view, prediction)
        order = ranked(canvas.open_BL, prediction.confidence_BL, prediction, proposal)
        nothing_B = torch.zeros_like(canvas.block_B)
        wide_BL, _ = Draft(0.0).cut(view, order, nothing_B, None)
        assert wide_BL.equal(order.rank_BL < most)
        narrow_BL, _ = Draft(1.0).cut(view, order, nothing_B, None)
        assert narrow_BL.equal(order.rank_BL == 0)


@pytest.mark.filterwarnings("ignore::tabes.models.dense.DenseReplayWarning")
def test_what_cannot_be_verified_says_so_at_the_first_step() -> None:
    with pytest.raises(CombinationError, match=r"\(the reviser 'verify'\) do not work with mpnet"):
        run(tiny("mpnet"), tiny_canvas(), rule(Verify(), Draft()))
    shifted = tiny("llama")
    shifted.network.shifted = True
    with pytest.raises(CombinationError, match=r"\(the reviser 'verify'\) do not work with llama, whose rows predict"):
        run(shifted, tiny_canvas(), rule(Verify(), Draft()))
    with pytest.raises((CombinationError, ModelError), match="cannot replay rows"):
        run(tiny("fnet"), tiny_canvas(), rule(Verify(), Draft()))


def test_parameters() -> None:
    for registry, name, parameters, message in (
        (REVISERS, "verify", {"threshold_back": 2}, "threshold_back is 2; it must be between 0 and 1"),
        (BUDGETS, "draft", {"draft_threshold": -1}, "draft_threshold is -1; it must be between 0 and 1"),
        (BUDGETS, "draft", {"draft_share": 0}, "draft_share is 0; it must be above 0 and at most 1"),
        (BUDGETS, "draft", {"draft_least": 0}, "draft_least is 0; it must be 1 or more"),
        (BUDGETS, "draft", {"draft_most": 2.5}, "draft_most is 2.5; it must be a whole number"),
    ):
        with pytest.raises(UsageError) as caught:
            registry.build(name, **parameters)
        assert str(caught.value) == message
