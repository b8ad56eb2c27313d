"""The budget that keeps apart what contradicts: its limits, its measure, and toys whose rows move each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tabes import Canvas, Guidance, RowCache
from tabes.budgets import Even, TokensPerStep
from tabes.budgets.compatible import Compatible, pair_shifts
from tabes.errors import UsageError
from tabes.presets import sampler
from tabes.rankings import Confidence
from tabes.sampling import PartSampler
from tabes.steering import scene
from tabes.writers import Argmax
from tests.steering.analytic import coupled, denoiser, mixer
from tests.steering.exact import Exact
from tests.steering.scenes import (
    alone,
    canvas_of,
    exactly,
    filled,
    holes,
    opened,
    precise,
    ragged,
    rows,
    scene_of,
    tiny,
)


def rule(budget: Any) -> PartSampler:
    return PartSampler(Confidence(), budget, Argmax())


def written(model: Any, canvas: Canvas, budget: Any) -> list[tuple[tuple[int, ...], ...]]:
    return [step.positions for step in filled(model, canvas, rule(budget))[1]]


@pytest.mark.parametrize("block_length", [None, 3])
@pytest.mark.parametrize("pool", [1.0, 2.5])
def test_without_a_bound_it_is_even_or_tokens_per_step(block_length: int | None, pool: float) -> None:
    canvas, loose = ragged(block_length=block_length), {"bound": float("inf"), "pool": pool}
    assert written(tiny("bert"), canvas, Compatible(4, **loose)) == written(tiny("bert"), canvas, Even(4))
    found = written(tiny("bert"), canvas, Compatible(tokens_per_step=3, **loose))
    assert found == written(tiny("bert"), canvas, TokensPerStep(3))


def test_without_room_rows_are_written_one_at_a_time_in_the_order_of_the_ranking() -> None:
    canvas = holes(8, range(2, 8))
    found = written(tiny("bert"), canvas, Compatible(tokens_per_step=3, bound=0.0))
    assert found == written(tiny("bert"), canvas, TokensPerStep(1))


def test_with_so_many_steps_it_is_on_time_all_the_same() -> None:
    for bound in (0.0, 0.02, 0.1):
        found = written(tiny("bert"), ragged(), Compatible(3, bound=bound))
        even = written(tiny("bert"), ragged(), Even(3))
        assert [[len(row) for row in step] for step in found] == [[len(row) for row in step] for step in even]
    strict = Compatible(3, bound=0.0, measure="shift", sure=None)
    assert written(tiny("bert"), ragged(), strict) == even, "what is filled up is the ranking's own"


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert"])
def test_a_shift_is_the_distance_between_two_full_forwards(name: str) -> None:
    """One layer, and the pool is all that is masked: a replay of the pool is exact."""
    masked = (1, 3, 4, 6)
    canvas = holes(8, masked)
    model, exact = (
        opened(precise(name, num_hidden_layers=1)),
        Exact(precise(name, num_hidden_layers=1), canvas.tokens_BL[0]),
    )
    shift_LL = pair_shifts(scene_of(model, canvas), canvas.masked_BL)[0]
    before_LV = exact.p(exact.embeddings_LE)
    for i in masked:
        after_LV = exact.p(exact.written({i: int(before_LV[i].argmax())}))
        for j in masked:
            expected = 0.0 if i == j else float((after_LV[j] - before_LV[j]).abs().sum() / 2)
            assert float(shift_LL[i, j]) == pytest.approx(expected, abs=1e-6)
    assert 1e-3 < shift_LL.max() < 1
    others = [row for row in range(8) if row not in masked]
    assert not shift_LL[others].any()
    assert not shift_LL[:, others].any()


def test_a_loss_is_what_the_token_of_the_other_row_loses() -> None:
    masked = (1, 3, 4, 6)
    canvas, family = holes(8, masked), precise("llama", num_hidden_layers=1)
    exact = Exact(family, canvas.tokens_BL[0])
    loss_LL = pair_shifts(scene_of(opened(family), canvas), canvas.masked_BL, "loss")[0]
    before_LV = exact.p(exact.embeddings_LE)
    tokens_L = before_LV.argmax(-1)
    signs = set()
    for i in masked:
        after_LV = exact.p(exact.written({i: int(tokens_L[i])}))
        for j in masked:
            lost = 0.0 if i == j else float(before_LV[j, tokens_L[j]] - after_LV[j, tokens_L[j]])
            assert float(loss_LL[i, j]) == pytest.approx(max(lost, 0.0), abs=1e-6)
            signs.add(lost > 0)
    assert signs == {False, True}, "a gain is no loss"


def test_a_pool_of_some_rows_is_those_rows() -> None:
    canvas = holes(8, range(1, 8))
    pool_BL = rows(canvas, [2, 5, 6])
    shift_LL = pair_shifts(scene_of(exactly("llama"), canvas), pool_BL)[0]
    assert shift_LL.nonzero().tolist() == [[i, j] for i in (2, 5, 6) for j in (2, 5, 6) if i != j]


def test_pairs_of_a_ragged_batch_are_those_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = ragged(8)
    pool_BL = canvas.masked_BL & (canvas.positions_BL % 3 != 0)
    together_BLL = pair_shifts(scene_of(tiny("bert"), canvas), pool_BL)
    for b in range(2):
        content_L = ~canvas.padding_BL[b]
        single_LL = pair_shifts(scene_of(tiny("bert"), alone(canvas, b)), pool_BL[b : b + 1, content_L])[0]
        torch.testing.assert_close(together_BLL[b][content_L][:, content_L], single_LL)
    monkeypatch.setattr(scene, "_ROWS_AT_ONCE", {"cpu": 2 * canvas.tokens_BL.shape[1]})
    torch.testing.assert_close(pair_shifts(scene_of(tiny("bert"), canvas), pool_BL), together_BLL)


def sure(order: list[int], length: int, pairs: dict[tuple[int, int], float]) -> Any:
    """A toy whose confidence falls in this order, and whose rows move each other only where told to."""
    network = coupled(pairs, length)
    bias_LE, head_EV, table_VE = torch.zeros(length, 4).double(), torch.eye(4, 6).double(), network.table_VE.clone()
    table_VE[5] = 0  # masks move nobody
    for place, row in enumerate(order):
        bias_LE[row, place % 4] = 3.0 - 0.3 * place
    return denoiser(replace(network, bias_LE=bias_LE, head_EV=head_EV, table_VE=table_VE))


def first(model: Any, canvas: Canvas, budget: Any) -> list[int]:
    return list(written(model, canvas, budget)[0][0])


def test_what_contradicts_is_not_written_together() -> None:
    canvas = canvas_of([[5, 5, 5, 5]], 5)
    free, bound = sure([0, 1, 2, 3], 4, {}), sure([0, 1, 2, 3], 4, {(1, 0): 2.0})
    assert scene_of(free, canvas).prediction.confidence_BL[0].argsort(descending=True).tolist() == [0, 1, 2, 3]
    strict = Compatible(tokens_per_step=2, bound=0.05, pool=2.0)
    assert first(free, canvas, strict) == [0, 1]
    assert first(bound, canvas, strict) == [0, 2], "the next that fits takes the place"
    assert first(bound, canvas, replace(strict, pool=1.0)) == [0], "with no other in the pool it stays empty"
    assert first(sure([0, 1, 2, 3], 4, {(0, 1): 2.0}), canvas, strict) == [0, 2], "either direction counts"
    shift_LL = pair_shifts(scene_of(bound, canvas), canvas.masked_BL)[0]
    assert shift_LL.nonzero().tolist() == [[0, 1]]
    assert first(bound, canvas, replace(strict, bound=float(shift_LL[0, 1]) + 1e-4)) == [0, 1]


def test_only_who_has_to_be_on_time_looks_for_others_to_take_a_place() -> None:
    """The default pool: with places that may stay empty, the rows the ranking would write and no more."""
    canvas, model = canvas_of([[5, 5, 5, 5]], 5), sure([0, 1, 2, 3], 4, {(1, 0): 2.0})
    assert first(model, canvas, Compatible(tokens_per_step=2, bound=0.05)) == [0]
    assert first(model, canvas, Compatible(num_steps=2, bound=0.05)) == [0, 2]


def test_where_the_model_is_sure_of_all_of_them_nobody_asks() -> None:
    canvas = ragged(8)
    plain = filled(tiny("bert"), canvas, rule(TokensPerStep(3)))[1]
    unasked = filled(tiny("bert"), canvas, rule(Compatible(tokens_per_step=3, bound=0.0, sure=0.0)))[1]
    assert [step.positions for step in unasked] == [step.positions for step in plain]
    assert [step.cost.forward_calls for step in unasked] == [1, 1, 1]
    asked = [written(tiny("bert"), canvas, Compatible(4, bound=0.02, sure=sure)) for sure in (None, 1.0)]
    assert asked[0] == asked[1]


def test_shifts_add_up_over_what_is_in_already() -> None:
    """Rows 0 and 1 each move row 2 a little: less than the bound, but not together."""
    canvas = canvas_of([[5, 5, 5, 5]], 5)
    model = sure([0, 1, 2, 3], 4, {(2, 0): 0.2, (2, 1): 0.2})
    shift_LL = pair_shifts(scene_of(model, canvas), canvas.masked_BL)[0]
    one, other = float(shift_LL[0, 2]), float(shift_LL[1, 2])
    assert min(one, other) > 1e-3
    tight = Compatible(
        tokens_per_step=3, measure="shift", sure=None, bound=max(one, other) + 0.5 * min(one, other), pool=1.0
    )
    assert first(model, canvas, tight) == [0, 1]
    assert first(model, canvas, replace(tight, bound=one + other + 1e-6)) == [0, 1, 2]


def test_a_batch_row_is_the_row_alone() -> None:
    canvas = ragged(8, block_length=5)
    for model in (tiny("bert"), Guidance(tiny("bert"), 0.5), RowCache(tiny("bert"), 2)):
        for budget in (Compatible(4, bound=0.03), Compatible(tokens_per_step=3, bound=0.03)):
            together = written(model, canvas, budget)
            for b in range(2):
                padding = int(canvas.padding_BL[b].sum())
                found = [tuple(row - padding for row in step[b]) for step in together if step[b]]
                assert found == [step[0] for step in written(model, alone(canvas, b), budget)]


@pytest.mark.parametrize("name", ["boe", "lookahead", "boe-verify"])
def test_under_a_steered_ranking(name: str) -> None:
    canvas = ragged(8)
    tokens_BL, steps = filled(tiny("llama"), canvas, sampler(name, budget="compatible", num_steps=4, bound=0.05))
    assert len(steps) == 4
    assert not (tokens_BL == canvas.mask_id).any()


def test_one_at_a_time_needs_no_pairs() -> None:
    steps = filled(tiny("bert"), holes(8, range(2, 8)), rule(Compatible(tokens_per_step=1)))[1]
    assert [step.cost.forward_calls for step in steps] == [1] * 6


def test_a_coupled_network_fills_the_canvas_in_more_steps() -> None:
    model, canvas = denoiser(mixer(9, 6, 4, coupling=0.4)), canvas_of([[5] * 9], 5)
    budgets = [Compatible(tokens_per_step=3, measure="shift", sure=None, bound=bound) for bound in (0.0, 0.5, 9.0)]
    lengths = [len(written(model, canvas, budget)) for budget in budgets]
    assert lengths[0] == 9
    assert lengths[2] == 3
    assert 3 <= lengths[1] <= 9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_steps": 3, "tokens_per_step": 2}, "exclude each other"),
        ({"bound": -0.1}, "bound is -0.1"),
        ({"bound": float("nan")}, "bound is nan"),
        ({"pool": 0.5}, "pool is 0.5"),
        ({"sure": 1.5}, "sure is 1.5"),
        ({"measure": "gain"}, "measure is 'gain'"),
        ({"num_steps": 0}, "num_steps is 0"),
        ({"tokens_per_step": 0}, "tokens_per_step is 0"),
    ],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Compatible(**wrong)
