"""The low-variance objective has the mean of the definition, whatever the schedule."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tabes.schedules import SCHEDULES, LinearSchedule, Schedule
from tabes.training.objective import Masking, mask_by_count, mask_by_time, nelbo, paired_error

EVERY = list(SCHEDULES.values())
LENGTH = 6


def tokens(batch: int) -> Tensor:
    return torch.zeros(batch, LENGTH, dtype=torch.long)


def costs(masking: Masking) -> Tensor:
    """A made-up cross-entropy that depends on the row and, not linearly, on everything that is hidden."""
    hidden = masking.hidden.double()
    per_row = torch.arange(1, LENGTH + 1) * (1 + 0.1 * hidden.sum(1, keepdim=True)) + hidden[:, :1] * hidden[:, 1:2]
    return (per_row * hidden).sum(1) * masking.weight


def exact() -> float:
    """The mean of `costs` by enumeration: n uniform on 1..L, then all subsets of n rows alike."""
    total = 0.0
    for subset in range(1, 2**LENGTH):
        hidden = torch.tensor([[bool(subset >> row & 1) for row in range(LENGTH)]])
        count = int(hidden.sum())
        chance = 1 / LENGTH / math.comb(LENGTH, count)
        total += chance * float(costs(Masking(hidden, torch.tensor([LENGTH / count], dtype=torch.float64))))
    return total


def test_masking_by_count_is_unbiased() -> None:
    drawn = costs(mask_by_count(tokens(60_000), torch.Generator().manual_seed(0)))
    assert abs(float(drawn.mean()) - exact()) < 5 * float(drawn.std()) / math.sqrt(len(drawn))


@pytest.mark.parametrize("schedule", EVERY)
def test_the_definition_has_the_same_mean_for_every_schedule(schedule: Schedule) -> None:
    drawn = costs(mask_by_time(tokens(400_000), schedule, torch.Generator().manual_seed(1)))
    assert abs(float(drawn.mean()) - exact()) < 5 * float(drawn.std()) / math.sqrt(len(drawn))
    assert 5 * float(drawn.std()) / math.sqrt(len(drawn)) < 0.05 * exact(), "too noisy to show anything"


def test_masking_by_count_is_less_noisy() -> None:
    by_count = costs(mask_by_count(tokens(20_000), torch.Generator().manual_seed(2)))
    by_time = costs(mask_by_time(tokens(20_000), LinearSchedule(), torch.Generator().manual_seed(2)))
    assert by_count.std() < 0.8 * by_time.std()


@pytest.mark.parametrize("schedule", EVERY)
def test_weights_are_what_the_schedule_implies(schedule: Schedule) -> None:
    """w = -alpha' / (1 - alpha), alpha' by autograd."""
    t = torch.linspace(0.01, 0.99, 50, dtype=torch.float64, requires_grad=True)
    alpha = schedule.alpha(t)
    (slope,) = torch.autograd.grad(alpha.sum(), t)
    torch.testing.assert_close(schedule.weight(t), -slope / (1 - alpha))
    torch.testing.assert_close(schedule.rate(t), torch.autograd.grad(schedule.sigma(t).sum(), t)[0])
    ends = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
    assert float(ends[0]) == 1.0
    assert 0.0 <= float(ends[1]) <= 1.001e-3


def test_counts_are_spread_over_the_batch() -> None:
    masking = mask_by_count(torch.zeros(12, 81, dtype=torch.long), torch.Generator().manual_seed(3))
    count = masking.hidden.sum(1)
    torch.testing.assert_close(masking.weight, 81 / count)
    assert (count.diff() >= 0).all()
    assert count[0] <= 7
    assert count[-1] >= 75


def test_a_model_that_knows_nothing_pays_the_uniform_price() -> None:
    """L tokens out of V at log V each, for every mask: the estimator is exact, not only right on average."""
    masking = mask_by_count(tokens(9), torch.Generator().manual_seed(4))
    loss = nelbo(torch.zeros(9, LENGTH, 7), tokens(9), masking)
    torch.testing.assert_close(loss, torch.full((9,), LENGTH * math.log(7)))


def test_seen_rows_cost_nothing() -> None:
    masking = mask_by_count(tokens(9), torch.Generator().manual_seed(4))
    logits = torch.zeros(9, LENGTH, 7).masked_fill(~masking.hidden[:, :, None], 50.0)
    logits[:, :, 0] = torch.where(masking.hidden, 0.0, -50.0)  # the seen rows are predicted wrongly on purpose
    torch.testing.assert_close(nelbo(logits, tokens(9), masking), torch.full((9,), LENGTH * math.log(7)))


def test_paired_error_leaves_out_what_stratifying_removes() -> None:
    """A steady trend over the batch is no noise; independent noise of size s gives s / sqrt(N)."""
    noise = torch.randn(4000, generator=torch.Generator().manual_seed(5)) * 2
    expected = 2 / math.sqrt(4000)
    assert paired_error(noise + torch.linspace(0, 100, 4000)) == pytest.approx(expected, rel=0.1)
