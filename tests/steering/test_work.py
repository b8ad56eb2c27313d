"""The bank of work: what steering may spend, what it says it will, and what it spends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tabes import Guidance, RowCache
from tabes.denoiser import AnyDenoiser
from tabes.models import Work
from tabes.presets import sampler
from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.lookahead import LookaheadRanking
from tabes.steering.work import Bank, Price, affordable
from tests.steering.analytic import denoiser, mixer
from tests.steering.scenes import alone, canvas_of, filled, holes, ragged, scene_of, tiny, view_of

pytestmark = pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
LONG = holes(24, range(6, 24))


def share(model: AnyDenoiser, canvas: Any, name: str, plain_model: AnyDenoiser | None = None, **choice: Any) -> float:
    """What the whole decode costs over what confidence costs, less 1."""
    plain = filled(plain_model or model, canvas, sampler("confidence"))[1]
    steered = filled(model, canvas, sampler(name, **choice))[1]
    spent = [sum(step.cost.forward_equivalents for step in steps) for steps in (steered, plain)]
    return spent[0] / spent[1] - 1


@pytest.mark.parametrize("name", ["boe", "boe-paper", "boe-dense", "boe-verify", "lookahead"])
@pytest.mark.parametrize("model", ["llama", "bert"])
def test_a_decode_stays_within_its_bound_and_uses_it(model: str, name: str) -> None:
    found = [share(tiny(model), LONG, name, work=work) for work in (0.1, 0.2, 0.5)]
    assert all(extra <= work for extra, work in zip(found, (0.1, 0.2, 0.5), strict=True))
    assert found[2] > 0.2
    assert share(tiny(model), LONG, name) > 0.5, "without a bound it would be more"


@pytest.mark.parametrize("choice", [{"injection": "alone"}, {"self_term": "exclude"}, {"expansion": "gauss"}])
def test_so_it_does_whatever_importance_is(choice: dict[str, Any]) -> None:
    assert 0.1 < share(tiny("llama"), LONG, "boe", work=0.2, **choice) <= 0.2


@pytest.mark.parametrize("wrapper", ["guidance", "cache"])
def test_so_it_does_behind_wrappers(wrapper: str) -> None:
    model = Guidance(tiny("llama"), 0.5) if wrapper == "guidance" else RowCache(tiny("llama"), 4)
    assert share(model, LONG, "boe", tiny("llama") if wrapper == "cache" else None, work=0.2) <= 0.2


def test_on_a_row_cache_the_bound_is_over_plain_decoding_on_it() -> None:
    assert share(RowCache(tiny("llama"), 100), LONG, "boe", work=0.2) <= 0.2


@pytest.mark.parametrize("name", ["boe", "boe-verify", "lookahead"])
@pytest.mark.parametrize("model", [tiny("llama"), RowCache(tiny("llama"), 100)], ids=["plain", "cache"])
def test_so_it_is_in_blocks(model: AnyDenoiser, name: str) -> None:
    canvas = canvas_of(LONG.tokens_BL.tolist(), block_length=6)
    assert 0 < share(model, canvas, name, work=0.2, probes="block") <= 0.2


@pytest.mark.parametrize("name", ["boe", "lookahead"])
def test_with_a_heavy_head_too(name: str) -> None:
    """Plain decoding runs the head on the open rows only."""
    network = replace(mixer(40, 9, 4), work=Work(linear=100.0, attention=1.0, head=5000.0))
    canvas = canvas_of([[0] * 30 + [8] * 10], 8)
    assert share(denoiser(network), canvas, name, work=0.2) <= 0.2


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: RowCache(model, 3)], ids=["plain", "cache"])
@pytest.mark.parametrize("block_length", [None, 5])
def test_with_a_bound_a_batch_row_is_still_the_row_alone(wrap: Any, block_length: int | None) -> None:
    """On a cache too, which may have taken an offer for one and not for all."""
    for seed in range(4):
        canvas, model = ragged(12, block_length=block_length), wrap(tiny("bert"))
        tokens_BL = torch.where(canvas.masked_BL, canvas.tokens_BL, (canvas.tokens_BL * (seed + 3)) % 50 + 6)
        canvas = canvas.with_tokens(torch.where(canvas.padding_BL, 1, tokens_BL))
        rule = sampler("lookahead", work=0.3)
        steps = filled(model, canvas, rule)[1]
        single = filled(model, alone(canvas, 0), rule)[1]
        together = [tuple(row - 3 for row in step.positions[0]) for step in steps]
        assert [positions for positions in together if positions] == [step.positions[0] for step in single]


RANKINGS = [
    Boe(),
    Boe(expansion="gauss"),
    Boe(injection="alone"),
    Boe(self_term="exclude", expansion="gauss"),
    Boe(backward="dense"),
    LookaheadRanking(probes="uncertain", probe_share=0.3),
    LookaheadRanking(),
    LookaheadRanking(horizon=2, beam=2),
    LookaheadRanking(horizon=2, beam=3, candidates=2),
    BoeVerify(),
    BoeVerify(verify=3, horizon=2),
    LookaheadRanking(horizon=3, beam=3),
    LookaheadRanking(horizon=4, beam=2),
]


@pytest.mark.parametrize("ranking", RANKINGS, ids=repr)
@pytest.mark.parametrize("name", ["llama", "mpnet"])
def test_the_price_is_what_the_ledger_counts(ranking: Any, name: str) -> None:
    """As closely as an estimate has to be: later copies have fewer rows."""
    canvas, model = holes(14, range(4, 14)), tiny(name)
    scene, chosen_BL = scene_of(model, canvas), canvas.masked_BL & (canvas.positions_BL < 9)
    price, before = ranking.price(scene), model.ledger.flops
    with torch.no_grad():
        ranking.drops(scene, chosen_BL, view_of(model, canvas))
    expected = float(price.of(chosen_BL))
    assert model.ledger.flops - before == pytest.approx(expected, rel=0.12)


def test_the_price_of_a_large_vocabulary() -> None:
    network = replace(mixer(12, 300, 8), work=Work(linear=100.0, attention=1.0, head=2.0 * 8 * 300))
    canvas, model = canvas_of([[0, 1] + [299] * 10], 299), denoiser(network)
    scene, ranking = scene_of(model, canvas), Boe()
    before = model.ledger.flops
    with torch.no_grad():
        ranking.drops(scene, canvas.masked_BL, view_of(model, canvas))
    assert model.ledger.flops - before == pytest.approx(float(ranking.price(scene).of(canvas.masked_BL)), rel=0.12)


def test_a_bank_saves_up_and_pays() -> None:
    canvas = canvas_of([[0, 5, 5], [5, 5, 5]])
    bank = Bank.empty(canvas).earn(0.25, torch.tensor([400.0, 400.0])).earn(0.25, torch.tensor([400.0, 400.0]))
    assert bank.flops_B.tolist() == [200.0, 200.0], "a quarter of it, twice"
    price = Price(torch.tensor([50.0, 50.0]), torch.tensor([80.0, 40.0]))
    confidence_BL = torch.tensor([[0.1, 0.7, 0.6], [0.3, 0.2, 0.4]])
    chosen_BL = affordable(torch.ones(2, 3, dtype=torch.bool), confidence_BL, price, bank)
    assert chosen_BL.tolist() == [[False, True, False], [True, True, True]]
    assert bank.pay(price.of(chosen_BL)).flops_B.tolist() == [70.0, 30.0]
    nobody_BL = torch.zeros(2, 3, dtype=torch.bool)
    assert bank.pay(price.of(nobody_BL)).flops_B.tolist() == [200.0, 200.0]
    poor = Bank.empty(canvas)
    assert not affordable(torch.ones(2, 3, dtype=torch.bool), confidence_BL, price, poor).any()
    assert bank.select(torch.tensor([False, True])).flops_B.shape == (1,)


def test_a_price_paid_once_lets_all_candidates_in() -> None:
    canvas = canvas_of([[5, 5, 5]])
    price = Price(torch.tensor([100.0]), torch.tensor([0.0]))
    chosen_BL = canvas.masked_BL
    confidence_BL = torch.rand(1, 3)
    assert affordable(chosen_BL, confidence_BL, price, Bank(torch.tensor([100.5]))).all()
    assert not affordable(chosen_BL, confidence_BL, price, Bank(torch.tensor([99.0]))).any()


def test_so_small_a_share_that_nothing_is_ever_steered_is_confidence() -> None:
    plain_BL, plain = filled(tiny("llama"), LONG, sampler("confidence"))
    found_BL, steps = filled(tiny("llama"), LONG, sampler("boe", work=1e-6))
    assert found_BL.equal(plain_BL)
    assert [step.cost.forward_calls for step in steps] == [step.cost.forward_calls for step in plain]
