"""Counter-based streams: uniform, independent, and a matter of the row alone."""

from __future__ import annotations

import pytest
import torch
from scipy import stats

from tabes.errors import UsageError
from tabes.randomness import Randomness

CPU = torch.device("cpu")


def positions(batch: int, length: int) -> torch.Tensor:
    return torch.arange(length).expand(batch, -1)


def test_uniform() -> None:
    numbers = Randomness.create(0, 50, CPU).uniform("test", 3, positions(50, 400)).flatten()
    assert numbers.dtype == torch.float64
    assert bool(((numbers > 0) & (numbers < 1)).all())
    assert stats.kstest(numbers.numpy(), "uniform").pvalue > 0.01
    assert numbers.unique().numel() == numbers.numel()


def test_a_row_of_a_batch_draws_what_it_would_alone() -> None:
    batch = Randomness.create(7, 3, CPU).uniform("test", 2, positions(3, 9))
    alone = Randomness.create(9, 1, CPU).uniform("test", 2, positions(1, 9))
    assert batch[2:].equal(alone)
    assert Randomness.create([7, 9], 2, CPU).uniform("test", 2, positions(2, 9))[1:].equal(alone)


def test_purpose_step_and_seed_change_everything() -> None:
    draws = [
        Randomness.create(seed, 1, CPU).uniform(purpose, step, positions(1, 500))[0]
        for seed in (0, 1, 2**63, -1)
        for purpose in ("a", "b")
        for step in (0, 1)
    ]
    for i, first in enumerate(draws):
        for second in draws[:i]:
            assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 0.2


def test_no_seed_means_another_draw_every_time() -> None:
    first, second = (Randomness.create(None, 1, CPU).uniform("a", 0, positions(1, 5)) for _ in range(2))
    assert not first.equal(second)


@pytest.mark.parametrize("seed", [[1], [1, 2, 3], "ab", [1.0, 2.0]])
def test_seeds_must_fit_the_batch(seed: object) -> None:
    with pytest.raises(UsageError, match="seed is"):
        Randomness.create(seed, 2, CPU)  # type: ignore[arg-type]
