"""What must hold for every reviser with every budget, wrapper, writer and shape of canvas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.budgets import Draft, Even, Threshold, TokensPerStep
from tabes.denoiser import AnyDenoiser
from tabes.parts import Budget, Reviser
from tabes.revisers import Edit, LeastCertain, Loop, Verify
from tests.conftest import MASK
from tests.pairwise import pairwise
from tests.revisers.rules import SEED, alone, final, plain_canvas, ragged_canvas, rule, run

REVISERS: dict[str, Reviser] = {
    "least_certain": LeastCertain(2),
    "least_certain-many": LeastCertain(50),
    "least_certain-written": LeastCertain(2, "written", 0.9, 0.2),
    "loop": Loop(0.6, 3, 2),
    "loop-full": Loop(1.0, 2, 50),
    "loop-written": Loop(0.5, 3, 2, "written"),
    "loop-at-once": Loop(0.5, 3, 2, "written", True),
    "loop-full-at-once": Loop(1.0, 3, 50, "now", True),
    "edit": Edit(0.3, 3),
    "verify": Verify(0.6),
    "verify-all": Verify(1.0),
}
BUDGETS: dict[str, Budget] = {
    "even": Even(10),
    "one": TokensPerStep(1),
    "three": TokensPerStep(3),
    "threshold": Threshold(0.4),
    "draft": Draft(0.3),
    "everything": Threshold(0.0),
}
WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "guidance": lambda model: Guidance(model, 0.7),
    "cache": lambda model: RowCache(model, 3),
    "cache-blocks": lambda model: RowCache(model, "block"),
    "guided-cache": lambda model: Guidance(RowCache(model, 2), 0.5),
}
SHAPES: dict[str, dict[str, Any]] = {"whole": {}, "blocks": {"block_length": 4}, "rows": {"block_length": 1}}
AXES = {
    "reviser": [*REVISERS],
    "budget": [*BUDGETS],
    "wrapper": [*WRAPPERS],
    "shape": [*SHAPES],
    "temperature": [0.0, 0.8],
}


def check(model: AnyDenoiser, canvas: Canvas, sampler: Any) -> list[tabes.Step]:
    """Everything is filled, nothing given is touched, and a batch row decodes as it would alone."""
    steps = run(model, canvas, sampler)
    tokens_BL = final(steps)
    assert not bool(steps[-1].canvas.masked_BL.any()), "a mask was left over"
    assert bool(steps[-1].done_B.all())
    assert tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL]), "a given token changed"
    assert tokens_BL.equal(final(run(model, canvas, sampler))), "the second run differs"
    for row in range(len(tokens_BL)):
        single = run(model, alone(canvas, row), sampler, SEED + row)
        content_L = ~canvas.padding_BL[row]
        assert final(single)[0].equal(tokens_BL[row][content_L]), "a row alone differs"
        assert len(single) == next(at for at, step in enumerate(steps, 1) if step.done_B[row])
    return steps


@pytest.mark.parametrize("case", pairwise(AXES), ids=lambda case: "-".join(map(str, case.values())))
def test_any_combination(golden_model: tabes.Denoiser, case: dict[str, Any]) -> None:
    model = WRAPPERS[case["wrapper"]](golden_model)
    sampler = rule(REVISERS[case["reviser"]], BUDGETS[case["budget"]], case["temperature"])
    steps = check(model, ragged_canvas(**SHAPES[case["shape"]]), sampler)
    for step in steps:
        for row in range(2):
            kinds = (step.positions[row], step.remasked[row], step.rewritten[row])
            assert len(set().union(*kinds)) == sum(map(len, kinds))
            if not case["reviser"].startswith("edit"):
                assert not step.rewritten[row]


@pytest.mark.parametrize("name", REVISERS)
@pytest.mark.parametrize("shape", ["whole", "blocks"])
def test_it_does_revise(golden_model: tabes.Denoiser, name: str, shape: str) -> None:
    """The tests above would pass on revisers that do nothing."""
    budget = TokensPerStep(2 if name.startswith("verify") else 1)
    steps = check(golden_model, ragged_canvas(20, **SHAPES[shape]), rule(REVISERS[name], budget))
    revised = sum(len(row) for step in steps for row in (*step.remasked, *step.rewritten))
    assert revised > 0


@pytest.mark.parametrize("name", REVISERS)
def test_infilling(golden_model: tabes.Denoiser, name: str) -> None:
    """Holes with given tokens between them, a whole block of which is given."""
    prompt = [3, MASK, 14, MASK, MASK, 9, 8, 7, 6, 5, 21, MASK, MASK, 30, MASK, MASK, MASK, 2]
    for arguments in ({}, {"block_length": 4}):
        canvas = Canvas.create(torch.tensor([prompt, prompt[::-1]]), mask_id=MASK, **arguments)
        check(golden_model, canvas, rule(REVISERS[name], TokensPerStep(2)))


def test_what_is_taken_back_stays_in_its_block(golden_model: tabes.Denoiser) -> None:
    for name, reviser in REVISERS.items():
        for step in run(golden_model, plain_canvas(block_length=4), rule(reviser, TokensPerStep(2))):
            revised = [*step.remasked[0], *step.rewritten[0]]
            blocks = {int(step.canvas.block_BL[0, at]) for at in revised}
            assert len(blocks) <= 1, name
            later = {int(step.canvas.block_BL[0, at]) for at in step.positions[0]}
            assert not blocks or not later or blocks == later, name


@pytest.mark.parametrize("name", REVISERS)
def test_one_hole(golden_model: tabes.Denoiser, name: str) -> None:
    canvas = Canvas.create(torch.tensor([[3, MASK, 14]]), mask_id=MASK)
    check(golden_model, canvas, rule(REVISERS[name]))
