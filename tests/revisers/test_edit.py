"""Editing, against the transformers model alone; its golden trace is in test_golden.py."""

from __future__ import annotations

import pytest

import tabes
from tabes.budgets import Even, TokensPerStep
from tabes.errors import UsageError
from tabes.parts import REVISERS
from tabes.revisers import Edit
from tests.revisers.rules import final, plain_canvas, probabilities, ragged_canvas, rule, run


def edits(model: tabes.Denoiser, step: tabes.Step, threshold: float, block: int) -> list[int]:
    """The rows of a block that were written before and that the network would now have otherwise."""
    before = step.before
    p_LV = probabilities(model, before.tokens_BL[0])
    ours = before.writable_BL[0] & ~before.masked_BL[0] & (before.block_BL[0] == block)
    best = p_LV.max(-1)
    wanted = ours & (best.values > threshold) & (best.indices != before.tokens_BL[0])
    return [int(at) for at in wanted.nonzero()]


def test_what_is_edited_and_for_how_long(golden_model: tabes.Denoiser) -> None:
    threshold, most = 0.35, 3
    steps = run(golden_model, plain_canvas(block_length=6), rule(Edit(threshold, most), TokensPerStep(2)))
    block, after, seen = 0, None, set()
    for step in steps:
        if after is None:
            block = int(step.before.block_B)
        else:
            assert not step.positions[0], "a step after the last mask only edits"
        assert list(step.rewritten[0]) == edits(golden_model, step, threshold, block)
        full = not bool((step.canvas.masked_BL & (step.canvas.block_BL == block)).any())
        if after is not None:
            after = after + 1 if step.rewritten[0] and after < most else None
            seen.add("none" if not step.rewritten[0] else "some")
        elif full:
            after = 1
    assert after is None and bool(steps[-1].done_B)
    assert seen


def test_it_stops_after_a_step_that_edits_nothing(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(), rule(Edit(0.999, 5), TokensPerStep(1)))
    assert not any(step.rewritten[0] for step in steps)
    assert [len(step.positions[0]) for step in steps] == [1] * 12 + [0]


def test_the_next_blocks_clock_stands_still(golden_model: tabes.Denoiser) -> None:
    steps = run(golden_model, plain_canvas(block_length=6), rule(Edit(0.2, 4), Even(6)))
    assert [len(step.positions[0]) for step in steps if step.positions[0]] == [2] * 6
    assert len(steps) > 6 + 2


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = ragged_canvas(block_length=4)
    locked_in = run(golden_model, canvas, rule(None, TokensPerStep(2)))
    never = run(golden_model, canvas, rule(Edit(1.0, 0), TokensPerStep(2)))
    assert [step.positions for step in never] == [step.positions for step in locked_in]
    assert final(never).equal(final(locked_in))
    # With steps after the last mask there is one for every block, which edits nothing.
    one_more = run(golden_model, canvas, rule(Edit(1.0, 5), TokensPerStep(2)))
    assert final(one_more).equal(final(locked_in))
    blocks = len(set(canvas.block_BL[1].tolist()) - {-1})
    assert len(one_more) == len(locked_in) + blocks
    # A threshold of 0 edits whatever is not the most probable token.
    always = run(golden_model, canvas, rule(Edit(0.0, 2), TokensPerStep(2)))
    assert sum(len(row) for step in always for row in step.rewritten) > 0


def test_parameters() -> None:
    for parameters, message in (
        ({"editing_threshold": 1.1}, "editing_threshold is 1.1; it must be between 0 and 1"),
        ({"max_post_steps": -1}, "max_post_steps is -1; it must be 0 or more"),
    ):
        with pytest.raises(UsageError) as caught:
            REVISERS.build("edit", **parameters)
        assert str(caught.value) == message
