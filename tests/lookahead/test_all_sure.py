"""The budget that writes everything open once all of it is sure."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas
from tabes.errors import UsageError
from tabes.presets import sampler
from tests.conftest import MASK
from tests.steering.scenes import filled

RULE: dict[str, Any] = {"budget": "all_sure"}


def canvas_of(**arguments: Any) -> Canvas:
    prompt_BP = torch.tensor([[3, 4, 5, 6], [7, 8, MASK, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, max_new_tokens=12, **arguments)


@pytest.mark.parametrize("sure", [0.25, 0.35, 0.5])
def test_by_the_definition(golden_model: tabes.Denoiser, sure: float) -> None:
    at_once = 0
    steps = filled(golden_model, canvas_of(block_length=6), sampler("confidence", sure=sure, **RULE))[1]
    for step in steps:
        open_BL = step.before.open_BL
        p_BL = golden_model.predict(step.before, open_BL).confidence_BL
        for row in range(2):
            if open_BL[row].any():
                all_sure = bool((p_BL[row][open_BL[row]] >= sure).all())
                assert (len(step.positions[row]) == int(open_BL[row].sum())) == (
                    all_sure or bool(open_BL[row].sum() == 1)
                )
                at_once += all_sure and int(open_BL[row].sum()) > 2
    assert at_once


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of()
    plain_BL = filled(golden_model, canvas, sampler("confidence"))[0]
    assert filled(golden_model, canvas, sampler("confidence", sure=None, **RULE))[0].equal(plain_BL)
    assert len(filled(golden_model, canvas, sampler("confidence", sure=0, **RULE))[1]) == 1
    by_two = filled(golden_model, canvas, sampler("confidence", sure=None, budget="all_sure", tokens_per_step=2))[1]
    assert [len(step.positions[0]) for step in by_two][:6] == [2] * 6


def test_nothing_is_tried_where_all_is_sure(golden_model: tabes.Denoiser) -> None:
    """The budget says so before the ranking asks."""
    steps = filled(golden_model, canvas_of(), sampler("info-gain", sure=0))[1]
    assert [step.cost.forward_tokens for step in steps] == [2 * 16]
    tried = filled(golden_model, canvas_of(), sampler("info-gain", sure=1))[1]
    assert tried[0].cost.forward_tokens > 2 * 2 * 16


def test_steps_and_tokens_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        sampler("confidence", budget="all_sure", num_steps=3, tokens_per_step=2)
