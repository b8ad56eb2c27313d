"""What all steered rankings share: who is steered, what comes after the candidates, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import RowCache
from tabes.errors import UsageError
from tabes.prediction import Prediction
from tabes.presets import sampler
from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.lookahead import LookaheadRanking
from tabes.steering import Lookahead, TotalEntropy
from tabes.steering.order import in_front
from tests.steering.analytic import denoiser, mixer
from tests.steering.scenes import (
    PRESETS,
    alone,
    canvas_of,
    filled,
    holes,
    order,
    ragged,
    scene_of,
    scores,
    steered,
    tiny,
    view_of,
)

pytestmark = pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
STEERED = sorted(set(PRESETS) - {"boe-literal"})


def test_candidates_come_first_then_confidence() -> None:
    canvas = holes(10, range(2, 10))
    scene = scene_of(tiny("llama"), canvas)
    confidence_L = scene.prediction.confidence_BL[0]
    by_confidence = order(confidence_L[None], canvas)
    ranking = Boe(candidates=3)
    found = order(scores(ranking, tiny("llama"), canvas), canvas)
    chosen_BL = torch.zeros_like(canvas.padding_BL).index_fill(1, torch.tensor(by_confidence[:3]), True)
    drops_BL = ranking.drops(scene, chosen_BL, view_of(tiny("llama"), canvas))
    assert found[:3] == sorted(by_confidence[:3], key=lambda row: -float(drops_BL[0, row]))
    assert found[3:] == by_confidence[3:]
    assert found[:3] != by_confidence[:3], "steering changed nothing"


@pytest.mark.parametrize("name", STEERED)
def test_the_last_mask_is_not_steered(name: str) -> None:
    steps = filled(tiny("llama"), holes(9, range(2, 9)), sampler(name))[1]
    assert steps[0].cost.forward_calls > 1
    assert (steps[-1].cost.forward_calls, steps[-1].cost.backward_calls) == (1, 0)


@pytest.mark.parametrize("name", STEERED)
def test_with_as_many_candidates_as_tokens_to_write_it_is_confidence(name: str) -> None:
    canvas = holes(9, range(2, 9))
    expected_BL = filled(tiny("llama"), canvas, sampler("confidence", num_steps=3))[0]
    for limit in ({"rho": 1e-6, "candidates": None}, {"delta": 0.0}, {"candidates": 1}, {"sure": 0.0}, {"writes": 1}):
        tokens_BL, steps = filled(tiny("llama"), canvas, steered(name, num_steps=3, **limit))  # type: ignore[arg-type]
        assert tokens_BL.equal(expected_BL)
        assert [step.cost.forward_calls for step in steps] == [1, 1, 1]
    steps = filled(tiny("llama"), canvas, steered(name, num_steps=3, rho=None, candidates=None))[1]
    assert steps[0].cost.forward_calls > 1


@pytest.mark.parametrize("rho", [0.05, 0.4, 1.0])
def test_the_count_is_written_whatever_the_candidates(rho: float) -> None:
    steps = filled(tiny("bert"), ragged(), steered("boe", rho=rho, num_steps=2))[1]
    assert [[len(row) for row in step.positions] for step in steps] == [[4, 4], [3, 4]]


def test_the_count_is_written_when_every_write_harms() -> None:
    """Rows sure of themselves until any other is written."""
    network = mixer(5, 6, 4, seed=3, coupling=0.1)
    sure_LE = 2 * network.head_EV[:, 0].expand(5, 4)
    model = denoiser(replace(network, bias_LE=sure_LE, mix_LL=-network.mix_LL.abs()))
    canvas = canvas_of([[5] * 5], 5)
    drops_BL = Lookahead().drops(scene_of(model, canvas), canvas.masked_BL)
    rule = sampler("lookahead", tokens_per_step=2, candidates=5)
    tokens_BL, steps = filled(model, canvas, rule)
    assert bool((drops_BL <= 0).all()), "not the case this test is about"
    assert [len(step.positions[0]) for step in steps] == [2, 2, 1]
    assert 5 not in tokens_BL


def test_a_row_that_is_not_steered_has_the_scores_it_has_alone() -> None:
    canvas = ragged()
    together_BL = scores(Boe(), tiny("llama"), canvas, counts=[9, 1])
    single_BL = scores(Boe(), tiny("llama"), alone(canvas, 0), counts=[9])
    torch.testing.assert_close(together_BL[0, 3:], single_BL[0])


@pytest.mark.parametrize("lowest", [0.0, -1e-9, 3.0, -1e6, 1e30])
def test_the_order_of_who_comes_after_survives_float32(lowest: float) -> None:
    then_BL = torch.cat([torch.linspace(1e-9, 1e-8, 500), torch.tensor([0.3, 0.3, 1.0, 0.5])])[None]
    first_BL = (torch.arange(504) >= 502)[None]
    scores_BL = torch.where(then_BL == 1.0, lowest, lowest + 1.0)
    found_L = in_front(first_BL, scores_BL, then_BL)[0]
    expected = [*((503, 502) if scores_BL[0, 502] < scores_BL[0, 503] else (502, 503)), 500, 501, *range(499, -1, -1)]
    assert found_L.argsort(descending=True, stable=True).tolist() == expected
    assert len(set(found_L[:502].tolist())) == 502
    assert found_L[first_BL[0]].equal(scores_BL[first_BL])


@pytest.mark.parametrize("prefilter", ["confidence", "entropy", "margin"])
def test_a_prefilter_takes_no_second_run_of_the_head(prefilter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the vocabulary is so large that logits are not kept."""
    monkeypatch.setattr("tabes.prediction._CHUNK_ELEMENTS", 3 * 60)
    steps = filled(tiny("bert"), holes(9, range(2, 9)), sampler("boe", prefilter=prefilter, sure=0.0))[1]
    assert [step.cost.head_rows for step in steps] == [7, 6, 5, 4, 3, 2, 1]


def test_the_reversed_control_reverses_the_candidates() -> None:
    canvas = holes(9, range(2, 9))
    forth, back = (order(scores(Boe(sign=sign), tiny("llama"), canvas), canvas) for sign in (1, -1))
    assert forth == back[::-1]


def test_verifying_all_is_lookahead_and_verifying_one_is_importance() -> None:
    canvas = holes(9, range(2, 9))
    found = {
        ranking: order(scores(ranking, tiny("llama"), canvas), canvas)
        for ranking in (BoeVerify(verify=9), LookaheadRanking(candidates=None), BoeVerify(verify=1), Boe())
    }
    every, lookahead, one, importance = found.values()
    assert every == lookahead
    assert one == importance
    assert every != one


@pytest.mark.parametrize(
    "shaping",
    [
        {},
        {"gate": True},
        {"objective": "information_gain"},
        {"floor_weight": 5.0, "floor_height": 4.0},
        {"mix": 0.01},
    ],
)
def test_what_was_not_verified_comes_after_what_was(shaping: dict[str, Any]) -> None:
    """Whatever the shaping: only verified rows have a drop to compare."""
    for seed in range(20):
        model = denoiser(mixer(8, 9, 4, seed=seed, coupling=0.5))
        canvas = canvas_of([[0, 8, 8, 8, 8, 8, 8, 8]], 8)
        scene, ranking = scene_of(model, canvas), BoeVerify(verify=2, **shaping)
        importance_BL = ranking.importance.drops(scene, canvas.masked_BL)
        assert set(order(scores(ranking, model, canvas), canvas)[:2]) == set(order(importance_BL, canvas)[:2])


def test_the_reversed_control_verifies_what_looks_worst() -> None:
    canvas = holes(9, range(2, 9))
    importance_BL = Boe().drops(scene_of(tiny("llama"), canvas), canvas.masked_BL, view_of(tiny("llama"), canvas))
    found = order(scores(BoeVerify(verify=2, sign=-1), tiny("llama"), canvas), canvas)
    assert set(found[:2]) == set(order(-importance_BL, canvas)[:2])
    assert found[2:] == order(-importance_BL, canvas)[2:]


@dataclass(frozen=True)
class Costly(TotalEntropy):
    """Writing even rows costs more than any drop."""

    def charge(self, prediction: Prediction) -> Tensor:
        return 1e3 * (torch.arange(prediction.rows_BL.shape[1]) % 2 == 0).expand(prediction.rows_BL.shape)


def test_what_writing_costs_is_taken_off() -> None:
    canvas = holes(9, range(2, 9))
    found = order(scores(Boe(objective=Costly()), tiny("llama"), canvas), canvas)
    plain = order(scores(Boe(), tiny("llama"), canvas), canvas)
    assert found == [row for row in plain if row % 2] + [row for row in plain if not row % 2]


def test_a_users_objective_may_be_an_object_anywhere() -> None:
    tokens_BL, _ = filled(RowCache(tiny("bert"), 2), ragged(), sampler("lookahead", objective=Costly()))
    assert 5 not in tokens_BL


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objective": "entropi"}, "entropy"),
        ({"probes": "all"}, "probes is 'all'"),
        ({"probe_count": 3}, "probe_count=3"),
        ({"prefilter": "luck"}, "prefilter is 'luck'"),
        ({"rho": 0.0}, "rho is 0.0"),
        ({"delta": 1.5}, "delta is 1.5"),
        ({"candidates": 0}, "candidates is 0"),
        ({"sure": -0.1}, "sure is -0.1"),
        ({"work": 0.0}, "work is 0.0"),
        ({"writes": 0}, "writes is 0"),
        ({"delta": "x"}, "delta is 'x'; it must be a number"),
        ({"candidates": True}, "candidates is True; it must be a whole number"),
        ({"floor_weight": -1.0}, "floor_weight is -1.0"),
        ({"floor_form": "flat"}, "floor_form is 'flat'"),
        ({"gate": 1}, "gate is 1; it must be False or True"),
        ({"mix": "much"}, "mix is 'much'; it must be a number"),
        ({"sign": 2}, "sign is 2; it must be 1 or -1"),
        ({"expansion": 2.0}, "expansion is 2.0; it must be between 0 and 1 or 'gauss'"),
    ],
)
def test_wrong_parameters_are_refused_before_anything_runs(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sampler("boe", **wrong)


@pytest.mark.parametrize("name", ["boe", "boe-verify", "lookahead"])
def test_the_presets_steer_only_where_one_token_is_written(name: str) -> None:
    canvas, model = holes(9, range(2, 9)), tiny("llama")
    tokens_BL, steps = filled(model, canvas, sampler(name, tokens_per_step=3))
    assert tokens_BL.equal(filled(model, canvas, sampler("confidence", tokens_per_step=3))[0])
    assert [step.cost.forward_calls for step in steps] == [1, 1, 1]
    one_by_one = filled(model, canvas, sampler(name, delta=None))[1]
    assert all(step.cost.forward_calls > 1 for step in one_by_one[:-1])


def test_an_empty_canvas_takes_no_step() -> None:
    canvas = canvas_of([[7, 8, 9], [10, 11, 12]])
    for name in STEERED:
        assert list(tabes.decode(tiny("llama"), canvas, sampler(name))) == []
