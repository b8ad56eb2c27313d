from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tabes.bench.statistics import paired_difference
from tabes.errors import UsageError


def _pair(wins: int, losses: int, ties: int) -> tuple[list[float], list[float]]:
    return [0.0] * wins + [1.0] * losses + [1.0] * ties, [1.0] * wins + [0.0] * losses + [1.0] * ties


def test_difference_and_counts() -> None:
    found = paired_difference(*_pair(wins=7, losses=2, ties=11))
    assert (found.wins, found.losses) == (7, 2)
    assert found.difference == pytest.approx(5 / 20)
    assert found.low < found.difference < found.high


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (5, 2), (20, 3), (9, 9)])
def test_the_p_value_is_the_exact_binomial_one(wins: int, losses: int) -> None:
    found = paired_difference(*_pair(wins, losses, ties=4))
    expected = stats.binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert found.p_value == pytest.approx(expected)


def test_swapping_the_rules_turns_the_interval_round() -> None:
    first, this = _pair(wins=9, losses=1, ties=30)
    there, back = paired_difference(first, this), paired_difference(this, first)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


def test_rules_that_agree_everywhere_are_not_known_to_be_equal() -> None:
    few, many = (paired_difference(*_pair(0, 0, ties=items)) for items in (20, 2000))
    assert few.low < 0 < few.high
    assert many.high - many.low < (few.high - few.low) / 50


@pytest.mark.parametrize(("win", "loss"), [(0.1, 0.1), (0.3, 0.05), (0.02, 0.0)])
def test_the_interval_covers_the_truth_as_often_as_it_says(win: float, loss: float) -> None:
    rng = np.random.default_rng(0)
    hits = []
    for wins, losses, ties in rng.multinomial(64, [win, loss, 1 - win - loss], size=1000):
        found = paired_difference(*_pair(int(wins), int(losses), int(ties)))
        hits.append(found.low <= win - loss <= found.high)
    # Three standard errors of 1000 draws below 95 %; rare differences are covered more often, never less.
    assert np.mean(hits) > 0.929


def test_shares_are_bootstrapped_like_the_normal_interval() -> None:
    rng = np.random.default_rng(1)
    first = rng.uniform(size=400)
    this = first + rng.normal(0.1, 0.2, size=400)
    found = paired_difference(first.tolist(), this.tolist())
    gaps = this - first
    reach = 1.96 * gaps.std() / 20
    assert found.method == "paired bootstrap" and found.p_value is None
    assert (found.low, found.high) == pytest.approx((gaps.mean() - reach, gaps.mean() + reach), abs=0.1 * reach)
    assert found == paired_difference(first.tolist(), this.tolist())


def test_pairing_is_what_makes_it_narrow() -> None:
    rng = np.random.default_rng(2)
    first = rng.uniform(size=200)
    close = paired_difference(first.tolist(), (first + 0.01).tolist())
    loose = paired_difference(first.tolist(), (rng.permutation(first) + 0.01).tolist())
    assert close.high - close.low < 0.01 * (loose.high - loose.low)


@pytest.mark.parametrize(("first", "this"), [([], []), ([1.0], [1.0, 0.0])])
def test_unequal_or_no_items_are_refused(first: list[float], this: list[float]) -> None:
    with pytest.raises(UsageError, match="same items"):
        paired_difference(first, this)
