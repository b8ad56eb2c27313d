"""How paths are drawn and how one is chosen, against enumeration and counting."""

from __future__ import annotations

from itertools import combinations, permutations
from math import exp, sqrt
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas
from tabes.errors import UsageError
from tabes.presets import sampler
from tabes.randomness import Randomness
from tabes.rankings import InfoGain, Lookum
from tabes.steering.paths import Paths, drawn, gumbel, nearest
from tabes.view import View
from tests.conftest import MASK
from tests.steering.scenes import filled

BATCH = 4000


def view_of(model: tabes.Denoiser, canvas: Canvas) -> View:
    """Batch rows that are the same but for their streams."""
    return View(canvas, model, 0, Randomness.create(0, len(canvas.tokens_BL), torch.device("cpu")))


def crowd(batch: int = BATCH, length: int = 5) -> Canvas:
    return Canvas.create(torch.full((batch, length), MASK), mask_id=MASK)


def sets(paths: Paths, b: int) -> list[tuple[int, ...]]:
    return [tuple(write_L.nonzero().flatten().tolist()) for write_L in paths.write_BKL[b][paths.valid_BK[b]]]


def luce(weights: list[float], chosen: tuple[int, ...]) -> float:
    """The probability of a set when its members are drawn one after the other by their weights."""
    total = 0.0
    for order in permutations(chosen):
        left, p = sum(weights), 1.0
        for member in order:
            p *= weights[member] / left
            left -= weights[member]
        total += p
    return total


def near(count: int, of: int, p: float) -> bool:
    """Within five standard errors."""
    return abs(count / of - p) < 5 * sqrt(p * (1 - p) / of) + 1e-9


@pytest.mark.parametrize("count", [1, 2, 3])
def test_draws_are_by_weight_without_replacement(golden_model: tabes.Denoiser, count: int) -> None:
    weights, canvas = [0.9, 0.1, 0.5, 0.3, 0.7], crowd()
    keys_BTL = torch.tensor(weights).double().log() + gumbel(view_of(golden_model, canvas), "test", 2)
    open_BL = canvas.open_BL.clone()
    open_BL[:, 3] = False
    paths = drawn(open_BL, keys_BTL, torch.full((BATCH,), count))
    assert paths.write_BKL.sum(2).unique().tolist() == [count]
    weights[3] = 0.0
    first = [sets(paths, b)[0] for b in range(BATCH)]
    for chosen in combinations((0, 1, 2, 4), count):
        assert near(first.count(chosen), BATCH, luce(weights, chosen)), chosen
    other = [sets(paths, b)[1] for b in range(BATCH)]
    assert near(
        sum(map(tuple.__eq__, first, other)),
        BATCH,
        sum(luce(weights, c) ** 2 for c in combinations((0, 1, 2, 4), count)),
    )


def test_nearest_exchanges_the_last() -> None:
    open_BL = torch.tensor([[True, True, False, True, True], [False, True, False, False, False]])
    value_BL = torch.tensor([[0.1, 0.9, 1.0, 0.5, 0.7], [0.9, 0.2, 0.9, 0.9, 0.9]])
    paths = nearest(open_BL, value_BL, torch.tensor([2, 2]), 4)
    assert sets(paths, 0) == [(1, 4), (1, 3), (0, 1)]
    assert sets(paths, 1) == [(1,)], "no more rows than there are"
    assert sets(nearest(open_BL, value_BL, torch.tensor([0, 1]), 2), 0) == []


def test_equal_sets_are_one_path() -> None:
    one, two, none = [True, False, True], [False, True, True], [False] * 3
    write_BKL = torch.tensor([[one, two, one, two, none, [True] * 3]])
    assert sets(Paths.of(write_BKL).distinct(9), 0) == [(0, 2), (1, 2), (0, 1, 2)]
    assert sets(Paths.of(write_BKL).distinct(2), 0) == [(0, 2), (1, 2)]
    invalid = Paths(write_BKL, torch.tensor([[False, True, True, True, False, True]]))
    assert sets(invalid.distinct(9), 0) == [(1, 2), (0, 2), (0, 1, 2)], "what is not valid hides nothing"


def confidences(batch: int) -> Tensor:
    return torch.tensor([0.9, 0.2, 0.6, 0.5, 0.4]).expand(batch, 5)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("greedy", [True, False])
def test_the_pool_bounds_what_is_drawn(golden_model: tabes.Denoiser, greedy: bool, count: int) -> None:
    canvas = crowd(300)
    view, count_B = view_of(golden_model, canvas), torch.full((300,), count)
    for ranking, pool in (
        (Lookum(pool=3, paths=2, greedy=greedy), {0, 2, 3}),
        (Lookum(pool=None, pool_threshold=0.45, paths=3, greedy=greedy), {0, 2, 3}),
        (Lookum(pool=4, pool_threshold=0.1, paths=3, greedy=greedy), {0, 2, 3, 4}),
        (Lookum(pool=1, paths=2, greedy=greedy), {0, 2} if count == 1 else {0, 2, 3}),
    ):
        paths = ranking._drawn(view, None, confidences(300), count_B)  # type: ignore[arg-type]
        found = [sets(paths, b) for b in range(300)]
        assert {row for row_sets in found for one in row_sets for row in one} <= pool
        assert all(len(one) == count for row_sets in found for one in row_sets)
        assert all(len(set(row_sets)) == len(row_sets) <= ranking.paths for row_sets in found)
        assert all(len(row_sets) >= min(ranking.paths, len(pool) - count + 1) for row_sets in found)
        if len(pool) > count + 1:
            assert len({tuple(row_sets) for row_sets in found}) > 1
        if greedy:
            assert all(row_sets[0] == tuple(sorted((0, 2)[:count])) for row_sets in found)
        elif len(pool) > count:
            assert any(row_sets[0] != tuple(sorted((0, 2)[:count])) for row_sets in found)


def test_information_gain_draws_by_tempered_confidence(golden_model: tabes.Denoiser) -> None:
    canvas, temperature = crowd(), 0.4
    ranking = InfoGain(candidates=2, position_temperature=temperature)
    count_B = torch.ones(BATCH, dtype=torch.int64)
    paths = ranking._drawn(view_of(golden_model, canvas), None, confidences(BATCH), count_B)  # type: ignore[arg-type]
    weights = [exp(value / temperature) for value in confidences(1)[0].tolist()]
    found = [sets(paths, b) for b in range(BATCH)]
    assert all(row_sets[0] == (0,) for row_sets in found)
    for row in range(1, 5):
        assert near(sum(row_sets[1:] == [(row,)] for row_sets in found), BATCH, weights[row] / sum(weights))
    assert near(sum(len(row_sets) == 1 for row_sets in found), BATCH, weights[0] / sum(weights))


def test_importance_resampling(golden_model: tabes.Denoiser) -> None:
    """exp(reward x rows / temperature); what was not tried never wins, and 0 takes the best."""
    view = view_of(golden_model, crowd())
    worth_BK = torch.tensor([-1.0, -torch.inf, -0.4, -0.7, -torch.inf]).expand(BATCH, 5)
    chosen = Lookum(resampling=2.5)._chosen(view, worth_BK).tolist()
    weights = [exp(5 * w / 2.5) if w > -9 else 0.0 for w in worth_BK[0].tolist()]
    for path, weight in enumerate(weights):
        assert near(chosen.count(path), BATCH, weight / sum(weights)), path
    assert set(Lookum(resampling=0.0)._chosen(view, worth_BK).tolist()) == {2}
    assert set(Lookum(resampling=1e-9)._chosen(view, worth_BK).tolist()) == {2}
    shifted = Lookum(resampling=2.5)._chosen(view, worth_BK - 900).tolist()
    assert shifted == chosen, "only differences count"


def canvas_of(batch: int = 3, **arguments: Any) -> Canvas:
    prompt_BP = torch.tensor([[3, 4, 5, 6], [7, 8, MASK, 1], [10, 2, 30, 14]])[:batch]
    return Canvas.create(prompt_BP, mask_id=MASK, max_new_tokens=12, **arguments)


LIMITS: dict[str, tuple[str, dict[str, Any]]] = {
    "one greedy path": ("lookum", {"paths": 1}),
    "nothing is certain enough": ("lookum", {"pool": None, "pool_threshold": 1.0, "paths": 4}),
    "one candidate": ("info-gain", {"candidates": 1, "sure": None}),
    "no noise": ("info-gain", {"position_temperature": 0, "sure": None}),
}


@pytest.mark.parametrize("evaluate", ["full", "replay"])
@pytest.mark.parametrize("block_length", [None, 5])
@pytest.mark.parametrize("limit", list(LIMITS))
def test_limits_that_are_confidence(
    golden_model: tabes.Denoiser, limit: str, block_length: int | None, evaluate: str
) -> None:
    name, parameters = LIMITS[limit]
    canvas = canvas_of(block_length=block_length)
    mine_BL, mine = filled(golden_model, canvas, sampler(name, num_steps=6, evaluate=evaluate, **parameters))
    plain_BL, plain = filled(golden_model, canvas, sampler("confidence", num_steps=6))
    assert mine_BL.equal(plain_BL)
    assert [step.scores for step in mine] == [step.scores for step in plain]
    assert [step.cost.forward_tokens for step in mine] == [step.cost.forward_tokens for step in plain]


def test_the_defaults_are_not_confidence(golden_model: tabes.Denoiser) -> None:
    confident_BL = filled(golden_model, canvas_of(), sampler("confidence", num_steps=6))[0]
    found = [filled(golden_model, canvas_of(), sampler(name, num_steps=6))[0] for name in ("lookum", "info-gain")]
    assert not any(tokens_BL.equal(confident_BL) for tokens_BL in found)


def test_the_winner_comes_first(golden_model: tabes.Denoiser) -> None:
    """So a budget that writes more takes the most confident of the others on top, and one that writes less a part."""
    canvas = canvas_of(1)
    two = filled(golden_model, canvas, sampler("lookum", tokens_per_step=2, resampling=5.0), seed=8)[1][0]
    scores = dict(zip(two.positions[0], two.scores[0], strict=True))
    assert all(0 < score <= 1 for score in scores.values()), "of those written the score is the confidence"


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("lookum", {"paths": 0}),
        ("lookum", {"pool": 0}),
        ("lookum", {"pool_threshold": 1.2}),
        ("lookum", {"resampling": -1}),
        ("lookum", {"verifier": "margin"}),
        ("lookum", {"evaluate": "fast"}),
        ("lookum", {"greedy": 1}),
        ("info-gain", {"candidates": 2.5}),
        ("info-gain", {"position_temperature": float("inf")}),
        ("info-gain", {"charge": -1}),
        ("info-gain", {"scope": "prompt"}),
        ("beam", {"beams": 0}),
        ("beam", {"branch": 0}),
        ("beam", {"num_steps": 3, "tokens_per_step": 2}),
    ],
)
def test_wrong_parameters(name: str, wrong: dict[str, Any]) -> None:
    first = next(iter(wrong))
    with pytest.raises(UsageError, match=first):
        sampler(name, **wrong)
