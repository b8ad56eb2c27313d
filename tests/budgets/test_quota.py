"""The quota: what is due, what is sure, and the schedule both fall back on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas
from tabes.budgets import Even, Quota
from tabes.budgets.adaptive import Scheduled
from tabes.budgets.blocks import BlockClock
from tabes.parts import BUDGETS
from tests.budgets.fixed import canvas_of, of_confidence, written
from tests.conftest import MASK

ROWS = of_confidence([0.5, 0.3, 0.9, 0.7, 0.96])


def test_all_above_the_threshold_if_they_fill_the_quota() -> None:
    assert written(Quota(num_steps=5, threshold=0.6), ROWS) == [2, 3, 4]
    assert written(Quota(tokens_per_step=3, threshold=0.6), ROWS) == [2, 3, 4]
    assert written(Quota(tokens_per_step=4, threshold=0.6), ROWS) == [0, 2, 3, 4]
    assert written(Quota(threshold=0.99), ROWS) == [4]


@pytest.mark.parametrize(
    ("masks", "steps", "counts"),
    [(10, 4, [3, 3, 2, 2, 2]), (32, 12, [3] * 8 + [2] * 4 + [2]), (5, None, [1] * 6), (3, 9, [1] * 4)],
)
def test_the_schedule_is_lladas_split_whatever_was_written(masks: int, steps: int | None, counts: list[int]) -> None:
    canvas, budget = canvas_of(masks), Quota(steps)
    clock: BlockClock = budget.init(canvas)
    found = []
    for _ in counts:
        found.append(int(budget.due(canvas, clock)))
        clock = clock.tick(canvas)
    assert found == counts


def final(model: tabes.Denoiser, **parameters: Any) -> list[tabes.Step]:
    canvas = Canvas.create(torch.tensor([[3, 4, 5], [7, 8, 9]]), mask_id=MASK, max_new_tokens=14, block_length=5)
    return list(tabes.decode(model, canvas, tabes.sampler("confidence", **parameters)))


@pytest.mark.parametrize("num_steps", [None, 5, 9])
def test_nothing_is_sure_enough_is_even(num_steps: int | None, golden_model: tabes.Denoiser) -> None:
    even = final(golden_model, num_steps=num_steps)
    for budget in ({"budget": "quota", "threshold": 1.1}, {"budget": "stability", "divergence": 0.0}):
        mine = final(golden_model, num_steps=num_steps, **budget)
        assert [step.positions for step in mine] == [step.positions for step in even]
        assert mine[-1].canvas.tokens_BL.equal(even[-1].canvas.tokens_BL)


def test_a_quota_of_one_is_a_strict_threshold(golden_model: tabes.Denoiser) -> None:
    mine = final(golden_model, budget="quota", threshold=0.4)
    theirs = final(golden_model, budget="threshold", threshold=0.4, strict=True)
    assert [step.positions for step in mine] == [step.positions for step in theirs]
    assert len(mine) < 14


def test_it_is_never_slower_than_its_schedule(golden_model: tabes.Denoiser) -> None:
    for name in ("quota", "stability"):
        assert issubclass(BUDGETS.find(name), Scheduled)
    assert len(final(golden_model, budget="quota", num_steps=6, threshold=0.5)) <= 6
    assert len(final(golden_model, budget=Even(6))) == 6
