"""Threshold, factor and entropy bound: known answers, limits, and what holds for all distributions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import tabes
from tabes.budgets import EntropyBound, Factor, Threshold
from tabes.parts import Budget, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.rankings import Confidence, Entropy, LeftToRight, Margin
from tabes.sampling import PartSampler
from tabes.view import View
from tests.budgets.fixed import canvas_of, of_confidence, order_of, prediction_of, view_of, written

RULES: dict[str, Callable[[float], Budget]] = {
    "threshold": lambda size: Threshold(1 / (size + 1e-9)),
    "factor": Factor,
    "entropy_bound": EntropyBound,
}
RANKINGS: list[Ranking] = [Confidence(), Entropy(), Margin(), LeftToRight()]


def with_entropy(nats: float) -> list[float]:
    """A distribution over two of five tokens with this entropy, by bisection."""
    low, high = 0.5, 1.0
    for _ in range(60):
        p = (low + high) / 2
        entropy = -p * torch.tensor(p).log().item() - (1 - p) * torch.tensor(1 - p).log().item()
        low, high = (p, high) if entropy > nats else (low, p)
    return [low, 1 - low, 0.0, 0.0, 0.0]


def test_entropy_bound_known_answers() -> None:
    """Running sum less running maximum: 0, .01, .03, .08."""
    rows = [with_entropy(nats) for nats in (0.4, 0.01, 0.05, 0.02)]
    assert written(EntropyBound(0.1), rows, Entropy()) == [0, 1, 2, 3]
    assert written(EntropyBound(0.05), rows, Entropy()) == [1, 2, 3]
    assert written(EntropyBound(0.02), rows, Entropy()) == [1, 3]
    assert written(EntropyBound(0.0), rows, Entropy()) == [1]


def test_the_entropy_bounds_whatever_the_order() -> None:
    """In the order of the rows: 0, .01, .06, .08."""
    rows = [with_entropy(nats) for nats in (0.4, 0.01, 0.05, 0.02)]
    assert written(EntropyBound(0.07), rows, LeftToRight()) == [0, 1, 2]


def test_factor_known_answers() -> None:
    """Thresholds at factor 1: any, 2/3, 3/4, 4/5."""
    assert written(Factor(1.0), of_confidence([0.3, 0.76, 0.77, 0.81])) == [1, 2, 3]
    assert written(Factor(1.0), of_confidence([0.79, 0.81, 0.82, 0.83])) == [1, 2, 3]
    assert written(Factor(1.0), of_confidence([0.66, 0.6])) == [0]
    assert written(Factor(1.0), of_confidence([0.68, 0.74, 0.9])) == [1, 2]
    assert written(Factor(1.0), of_confidence([0.67, 0.68])) == [0, 1]


def test_the_first_row_does_not_stop_the_others() -> None:
    """It is written however unsure it is: the second of the order decides about the second."""
    assert written(Factor(1.0), of_confidence([0.3, 0.9, 0.5, 0.95]), LeftToRight()) == [0, 1]


def test_threshold_known_answers() -> None:
    rows = of_confidence([0.5, 0.3, 0.9, 0.7])
    assert written(Threshold(0.6), rows) == [2, 3]
    assert written(Threshold(0.95), rows) == [2]
    assert written(Threshold(0.6), rows, LeftToRight()) == [0, 2, 3]


def test_a_strict_threshold_leaves_out_what_is_exactly_there() -> None:
    rows = [[0.5, 0.5, 0, 0, 0], [0.9, 0.1, 0, 0, 0], [0.5, 0.25, 0.25, 0, 0]]
    assert written(Threshold(0.5), rows) == [0, 1, 2]
    assert written(Threshold(0.5, strict=True), rows) == [1]


@pytest.mark.parametrize("ranking", RANKINGS)
def test_limits(ranking: Ranking) -> None:
    rows = of_confidence([0.5, 0.3, 0.9, 0.7])
    first = written(Threshold(2.0), rows, ranking)
    assert len(first) == 1
    assert first == written(Factor(0.0), rows, ranking) == written(EntropyBound(0.0), rows, ranking)
    for everything in (Threshold(0.0), Factor(5.0), EntropyBound(float("inf")), Factor(float("inf"))):
        assert written(everything, rows, ranking) == [0, 1, 2, 3]


distributions = st.integers(1, 12).flatmap(
    lambda rows: st.lists(st.lists(st.floats(1e-6, 1.0), min_size=5, max_size=5), min_size=rows, max_size=rows).map(
        lambda weights: torch.tensor(weights) / torch.tensor(weights).sum(1, keepdim=True)
    )
)


@pytest.mark.parametrize("name", RULES)
@given(p_NV=distributions, sizes=st.lists(st.floats(0, 8), min_size=2, max_size=4), ranking=st.sampled_from(RANKINGS))
@settings(deadline=None, max_examples=60)
def test_what_is_written_grows_with_the_parameter(
    name: str, p_NV: Tensor, sizes: list[float], ranking: Ranking
) -> None:
    found = [set(written(RULES[name](size), p_NV, ranking)) for size in sorted(sizes)]
    assert all(found), "a step wrote nothing"
    assert all(small <= large for small, large in pairwise(found))


@pytest.mark.parametrize("name", ["factor", "entropy_bound"])
@given(p_NV=distributions, size=st.floats(0, 8), ranking=st.sampled_from(RANKINGS))
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_a_prefix_that_ends_where_the_rule_fails(
    name: str, p_NV: Tensor, size: float, ranking: Ranking
) -> None:
    canvas = canvas_of(len(p_NV))
    view = view_of(canvas)
    order = order_of(view, prediction_of(canvas, p_NV), ranking)
    rows = sorted(range(len(p_NV)), key=lambda at: int(order.rank_BL[0, at + 2]))
    count = len(written(RULES[name](size), p_NV, ranking))
    assert sorted(rows[:count]) == written(RULES[name](size), p_NV, ranking)
    confidence, entropy = p_NV.amax(1).double(), -(p_NV.double() * p_NV.double().log()).sum(1)

    def slack(n: int) -> float:
        """How far the n-th row is from failing."""
        if name == "factor":
            return float(confidence[rows[n - 1]]) - (1 - size / (n + 1))
        first = entropy[rows[:n]]
        return size - float(first.sum() - first.max())

    assert all(slack(n) > -1e-4 for n in range(2, count + 1))
    assert count == len(p_NV) or slack(count + 1) < 1e-4


@pytest.mark.parametrize("name", ["threshold", "factor", "entropy-bound"])
def test_what_is_foreseen_is_what_confidence_writes(name: str, golden_model: tabes.Denoiser) -> None:
    """Steering is told how many rows are about to be written, though nothing is ranked yet."""
    canvas = tabes.Canvas.create(torch.tensor([[3, 4], [5, 6]]), mask_id=66, max_new_tokens=12, block_length=6)
    given: dict[str, Any] = {
        "threshold": {"threshold": 0.3},
        "factor": {"factor": 2.0},
        "entropy-bound": {"bound": 2.0},
    }
    foreseen: list[list[int]] = []

    class Spy(Confidence):
        def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
            assert proposal.count_B is not None
            foreseen.append(proposal.count_B.tolist())
            return super().scores(view, prediction, proposal)

    budget = name.replace("-", "_")
    made = tabes.sampler("confidence", budget=budget, **given[name])
    assert isinstance(made, PartSampler)
    rule = PartSampler(Spy(), made.budget, made.writer)
    steps = list(tabes.decode(golden_model, canvas, rule))
    counts = [[len(row) for row in step.positions if row] for step in steps]
    assert foreseen == counts
    assert max(max(row) for row in counts) > 1, "nothing was written at once"


def test_bad_parameters_are_refused() -> None:
    for name, parameters, message in (
        ("threshold", {"threshold": -0.1}, "threshold is -0.1; it must be 0 or more"),
        ("threshold", {"strict": 1}, "strict is 1; it must be False or True"),
        ("factor", {"factor": float("nan")}, "factor is nan"),
        ("entropy-bound", {"bound": "much"}, "bound is 'much'; it must be a number"),
        ("klass", {"history": 0}, "history is 0"),
        ("klass", {"ready": "some"}, "ready is 'some'"),
        ("quota", {"num_steps": 4, "tokens_per_step": 2}, "exclude each other"),
    ):
        with pytest.raises(tabes.TabesError, match=message):
            tabes.sampler(name, **parameters)
