"""Networks that know the time: steering looks at what they would say after the step, not at what they say now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tabes import Canvas, Guidance, RowCache
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.presets import sampler
from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.lookahead import LookaheadRanking
from tabes.steering import Importance, Lookahead, Scene
from tests.steering.analytic import Mixer, denoiser, mixer
from tests.steering.scenes import alone, canvas_of, filled, proposal_of, ragged, rows, steered, view_of

LENGTH, VOCAB, MASK = 7, 6, 5
TOKENS = [0, MASK, MASK, 2, MASK, 3, MASK]
HOLES = [row for row, token in enumerate(TOKENS) if token == MASK]
CANVAS = canvas_of([TOKENS], MASK)
STEP = 1e-3


def timed(length: int = LENGTH, vocab: int = VOCAB, **changes: Any) -> Mixer:
    return replace(mixer(length, vocab, 4, seed=2, coupling=0.4), timed=True, told=[], **changes)


@torch.no_grad()
def scene_at(model: AnyDenoiser, canvas: Canvas, counts: list[int] | None = None) -> Scene:
    """As a step sees it that writes so many rows."""
    view = view_of(model, canvas)
    prediction = view.predict(canvas.masked_BL, statistics=("entropy", "top_token", "top_logit"), remember=True)
    count_B = None if counts is None else torch.tensor(counts)
    return Scene.of(view, prediction, proposal_of(prediction, count_B))


class ByHand:
    """What the toy says of embeddings at a time, from its formula; guided if there is a scale."""

    def __init__(self, network: Mixer, scale: float = 0.0) -> None:
        self.network, self.scale = network, scale
        self.embeddings_LE = network.table_VE[torch.tensor(TOKENS)]

    def logits(self, embeddings_LE: Tensor, time: float) -> Tensor:
        net = self.network
        hidden_LE = (1 - time) * net.bias_LE + (1 + 2 * time) * net.mix_LL @ embeddings_LE
        return (hidden_LE @ net.head_EV)[:, :MASK]

    def p(self, embeddings_LE: Tensor, time: float) -> Tensor:
        given = [row for row in range(LENGTH) if row not in HOLES]
        without_LE = embeddings_LE.clone()
        without_LE[given] = self.network.table_VE[MASK]
        with_LV, without_LV = (self.logits(one, time) for one in (embeddings_LE, without_LE))
        return (without_LV + (self.scale + 1) * (with_LV - without_LV)).softmax(-1)

    def left(self, embeddings_LE: Tensor, time: float, but: int) -> float:
        p_LV = self.p(embeddings_LE, time)
        return float(-torch.special.xlogy(p_LV, p_LV).sum(-1)[[row for row in HOLES if row != but]].sum())

    def slope(self, row: int, now: float, after: float) -> float:
        """The soft write is of what is predicted now; how much it helps is seen after."""
        delta_E = self.p(self.embeddings_LE, now)[row] @ self.network.table_VE[:MASK] - self.network.table_VE[MASK]

        def left(step: float) -> float:
            embeddings_LE = self.embeddings_LE.clone()
            embeddings_LE[row] += step * delta_E
            return self.left(embeddings_LE, after, row)

        return (8 * (left(-STEP) - left(STEP)) - (left(-2 * STEP) - left(2 * STEP))) / (12 * STEP)

    def drop(self, row: int, now: float, after: float) -> float:
        embeddings_LE = self.embeddings_LE.clone()
        embeddings_LE[row] = self.network.table_VE[int(self.p(embeddings_LE, now)[row].argmax())]
        return self.left(self.embeddings_LE, after, row) - self.left(embeddings_LE, after, row)


WRAPPERS: dict[str, tuple[Callable[[Denoiser], AnyDenoiser], float]] = {
    "plain": (lambda model: model, 0.0),
    "guidance": (lambda model: Guidance(model, 0.7), 0.7),
    "cache": (lambda model: RowCache(model, 2), 0.0),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("backward", ["replay", "dense"])
def test_importance_is_a_finite_difference_at_the_time_after_the_step(wrapper: str, count: int, backward: str) -> None:
    network, (wrap, scale) = timed(), WRAPPERS[wrapper]
    by_hand, after = ByHand(network, scale), (len(HOLES) - count) / len(HOLES)
    rule = Importance(0.0, self_term="exclude", backward=backward)  # type: ignore[arg-type]
    drops_L = rule.drops(scene_at(wrap(denoiser(network)), CANVAS, [count]), CANVAS.masked_BL)[0, HOLES]
    expected = torch.tensor([by_hand.slope(row, 1.0, after) for row in HOLES], dtype=torch.float64)
    torch.testing.assert_close(drops_L, expected, rtol=1e-6, atol=1e-7)
    assert (drops_L - torch.tensor([by_hand.slope(row, 1.0, 1.0) for row in HOLES])).abs().min() > 1e-3


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_drop_is_that_of_full_forwards_at_the_time_after_the_step(wrapper: str, count: int) -> None:
    network, (wrap, scale) = timed(), WRAPPERS[wrapper]
    by_hand, after = ByHand(network, scale), (len(HOLES) - count) / len(HOLES)
    drops_L = Lookahead().drops(scene_at(wrap(denoiser(network)), CANVAS, [count]), CANVAS.masked_BL)[0, HOLES]
    expected = [by_hand.drop(row, 1.0, after) for row in HOLES]
    assert drops_L.tolist() == pytest.approx(expected, abs=1e-10)
    assert expected != pytest.approx([by_hand.drop(row, 1.0, 1.0) for row in HOLES], abs=1e-3)


def test_a_step_makes_two_full_forwards() -> None:
    network = timed()
    steps = filled(denoiser(network), CANVAS, steered("boe"))[1]
    # The step's own forward, one at the next time, a replay of the masks; the last mask has no rival.
    assert [step.cost.forward_calls for step in steps] == [3, 3, 3, 1]
    assert [step.cost.forward_tokens for step in steps] == [2 * LENGTH + masks for masks in (4, 3, 2)] + [LENGTH]
    assert network.told == [[1.0], [0.75], [0.75], [0.5], [0.5], [0.25], [0.25]]


def test_verifying_shares_the_second_forward() -> None:
    network = timed()
    filled(denoiser(network), CANVAS, steered("boe-verify"))
    assert network.told == [[1.0], [0.75], [0.75], [0.5], [0.5], [0.25], [0.25]]


def test_the_time_after_is_that_after_all_writes_of_the_step() -> None:
    network = timed()
    filled(denoiser(network), CANVAS, steered("lookahead", tokens_per_step=2))
    assert network.told == [[1.0], [0.5], [0.5]]


@pytest.mark.parametrize("name", ["boe", "lookahead", "boe-verify", "confidence"])
def test_who_knows_no_time_is_told_none(name: str) -> None:
    network = replace(timed(), timed=False)
    steps = filled(denoiser(network), CANVAS, sampler(name) if name == "confidence" else steered(name))[1]
    assert network.told == [None] * len(steps)
    if name == "boe":
        assert steps[0].cost.forward_tokens == LENGTH + len(HOLES)


def test_both_halves_of_a_guided_batch_are_told() -> None:
    network = timed()
    filled(Guidance(denoiser(network), 0.7), CANVAS, steered("boe"))
    assert network.told == [[time, time] for time in (1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25)]


@pytest.mark.parametrize("wrapper", ["plain", "guidance"])
@pytest.mark.parametrize("choice", [{}, {"tokens_per_step": 2}, {"work": 0.5}], ids=repr)
@pytest.mark.parametrize("name", ["boe", "boe-verify", "lookahead", "boe-dense"])
def test_a_batch_row_is_the_row_alone(name: str, choice: dict[str, Any], wrapper: str) -> None:
    canvas = ragged(6, block_length=4)
    tokens_BL = torch.where(canvas.masked_BL, MASK, canvas.tokens_BL % MASK)
    canvas = replace(canvas, tokens_BL=tokens_BL, mask_id=MASK)
    model = WRAPPERS[wrapper][0](denoiser(timed(int(canvas.positions_BL.max()) + 1)))
    rule = steered(name, **choice)
    together = filled(model, canvas, rule)[1]
    for b in range(2):
        padding = int(canvas.padding_BL[b].sum())
        found = [tuple(row - padding for row in step.positions[b]) for step in together if step.positions[b]]
        assert found == [step.positions[0] for step in filled(model, alone(canvas, b), rule)[1]]


def test_a_broken_batch_row_of_a_timed_network_takes_no_other_along() -> None:
    """Selected scenes make forwards of their own, which a cache must not take for steps."""
    network = timed(poison=3, poisoned="logits")
    canvas = canvas_of([TOKENS, [3, *TOKENS[1:]]], MASK)
    for wrap, _ in WRAPPERS.values():
        for rule in (Importance(), Lookahead()):
            drops_BL = rule.drops(scene_at(wrap(denoiser(network)), canvas), canvas.masked_BL)
            single_BL = rule.drops(scene_at(wrap(denoiser(network)), CANVAS), CANVAS.masked_BL)
            torch.testing.assert_close(drops_BL[:1], single_BL)
            assert drops_BL[1, HOLES].isnan().all()


def test_what_was_tried_at_another_time_is_no_offer() -> None:
    """A cache hears the time of its last refresh."""

    class Deaf(RowCache):
        takes_offers = False  # type: ignore[assignment]

    found = [
        filled(wrap(denoiser(timed()), 100), CANVAS, steered("lookahead"))[1]  # type: ignore[operator]
        for wrap in (RowCache, Deaf)
    ]
    for one, other in zip(*found, strict=True):
        assert one.scores[0] == pytest.approx(other.scores[0])
        assert one.cost.forward_calls == other.cost.forward_calls


RANKINGS = [Boe(), Boe(injection="alone"), LookaheadRanking(), LookaheadRanking(horizon=2), BoeVerify()]


@pytest.mark.parametrize("ranking", RANKINGS, ids=repr)
def test_the_price_has_the_second_forward(ranking: Any) -> None:
    network = timed(14)
    canvas = canvas_of([[0, 1, 2, 3] + [MASK] * 10], MASK)
    model, chosen_BL = denoiser(network), rows(canvas, range(4, 9))
    scene = scene_at(model, canvas)
    before = model.ledger.flops
    with torch.no_grad():
        ranking.drops(scene, chosen_BL, view_of(model, canvas))
    assert model.ledger.flops - before == pytest.approx(float(ranking.price(scene).of(chosen_BL)), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_behind_a_row_cache_a_row_hears_the_time_it_would_alone(seed: int) -> None:
    """Rows enter their blocks at different steps: one is refreshed beside another that is not."""
    network = replace(mixer(8, VOCAB, 4, seed=seed, coupling=0.4), timed=True, told=[])
    M = MASK
    canvas = canvas_of([[0, M, M, M, M, M, M, M], [M, 1, 1, 2, M, M, M, M]], M, block_length=4)
    for wrap in (lambda model: RowCache(model, "block"), lambda model: Guidance(RowCache(model, "block"), 0.5)):
        together_BL, _ = filled(wrap(denoiser(network)), canvas, sampler("confidence"))
        for b in range(2):
            assert together_BL[b].equal(filled(wrap(denoiser(network)), alone(canvas, b), sampler("confidence"))[0][0])
