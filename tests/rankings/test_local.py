"""Confidence, margin and entropy: noise, whose distribution is read, end tokens last; left to right and random."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, TabesError
from tabes.parts import RANKINGS, Proposal, Ranking, Writer, ranked
from tabes.prediction import Prediction
from tabes.randomness import Randomness
from tabes.rankings import Confidence, LeftToRight, Margin, Random
from tabes.rankings.local import Local
from tabes.sampling import PartSampler
from tabes.view import View
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK

LOCAL = ("confidence", "margin", "entropy")


class Given:
    """A head that says these logits."""

    def __init__(self, logits_NV: Tensor) -> None:
        self.logits_NV = logits_NV
        self.vocab_size = logits_NV.shape[1]
        self.rows = 0

    def __len__(self) -> int:
        return len(self.logits_NV)

    def pick(self, index_M: Tensor) -> Given:
        return Given(self.logits_NV[index_M])

    def logits(self, rows: slice) -> Tensor:
        self.rows += len(self.logits_NV[rows])
        return self.logits_NV[rows].clone()


def asked(ranking: Ranking, writer: Writer, logits_NV: Tensor, **model: Any) -> tuple[Tensor, Proposal]:
    """Scores (N,) and the proposal for N rows of one batch row; the mask is the last word."""
    N, V = logits_NV.shape
    canvas = Canvas.create(torch.full((1, N), V - 1), mask_id=V - 1)
    view = View(canvas, Stub(**model), 0, Randomness.create(5, 1, torch.device("cpu")))
    statistics = writer.statistics | ranking.statistics
    prediction = Prediction(canvas.masked_BL, Given(logits_NV), (V - 1,), statistics)
    proposal = writer.propose(view, prediction, ranking.reads)
    return ranking.scores(view, prediction, proposal)[0], proposal


class Stub:
    """As much of a denoiser as a ranking sees."""

    name, eos_ids = "stub", ()

    def __init__(self, eos_ids: Iterable[int] = ()) -> None:
        self.eos_ids = tuple(eos_ids)  # type: ignore[assignment]

    @property
    def base(self) -> Stub:
        return self


def some(rows: int = 40, words: int = 30, spread: float = 2.0) -> Tensor:
    return torch.randn(rows, words, generator=torch.Generator().manual_seed(3)) * spread


def restated(logits_V: Tensor, temperature: float, top_p: float | None, top_k: int | None) -> dict[int, float]:
    """Dream's order, one word at a time in float64: temperature, top-p with the word that crosses it, top-k."""
    p_V = (logits_V[:-1].double() / temperature).softmax(0)
    left, mass = [], 0.0
    for word in sorted(range(len(p_V)), key=lambda word: (-float(p_V[word]), word)):
        if mass >= (top_p or 2.0):
            break
        left.append(word)
        mass += float(p_V[word])
    left = left[: top_k or len(left)]
    total = sum(float(p_V[word]) for word in left)
    return {word: float(p_V[word]) / total for word in left}


MEASURES: dict[str, Callable[[dict[int, float], int], float]] = {
    "confidence": lambda p, token: p[token],
    "margin": lambda p, token: (
        sorted([*p.values(), 0.0], reverse=True)[0] - sorted([*p.values(), 0.0], reverse=True)[1]
    ),
    "entropy": lambda p, token: sum(q * float(torch.tensor(q, dtype=torch.float64).log()) for q in p.values()),
}


@pytest.mark.parametrize("words", [30, 1300])
@pytest.mark.parametrize(("top_p", "top_k"), [(None, None), (0.7, None), (None, 4), (0.9, 3), (1e-6, None), (None, 1)])
@pytest.mark.parametrize("temperature", [0.0, 0.2, 1.0, 1.7])
@pytest.mark.parametrize("name", LOCAL)
def test_what_is_read_of_the_writer(
    name: str, temperature: float, top_p: float | None, top_k: int | None, words: int
) -> None:
    logits_NV = some(rows=6, words=words)
    writer = Categorical(temperature, top_p, top_k) if temperature else Argmax(top_p, top_k)
    scores_N, proposal = asked(RANKINGS.build(name, read="writer"), writer, logits_NV)
    for row, logits_V in enumerate(logits_NV):
        p = restated(logits_V, temperature or 1.0, top_p, top_k)
        token = int(proposal.tokens_BL[0, row])
        assert token in p
        assert float(scores_N[row]) == pytest.approx(MEASURES[name](p, token), abs=2e-5)


@pytest.mark.parametrize("name", LOCAL)
def test_a_word_left_alone_is_certain_to_the_last_digit(name: str) -> None:
    """So that Dream's many ties are ties, and the lowest row wins them."""
    scores_N, _ = asked(RANKINGS.build(name, read="writer"), Categorical(0.2, 0.5), some(spread=20.0))
    assert set(scores_N.tolist()) == {0.0 if name == "entropy" else 1.0}


@pytest.mark.parametrize("writer", [Argmax(), Categorical(1.0)])
@pytest.mark.parametrize("name", LOCAL)
def test_the_writer_s_distribution_unfiltered_at_temperature_1_is_the_model_s(name: str, writer: Writer) -> None:
    found = [asked(RANKINGS.build(name, read=read), writer, some())[0] for read in ("model", "writer")]
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", LOCAL)
def test_temperature_and_filters_change_no_score_that_is_the_model_s(name: str) -> None:
    """LLaDA's convention. (Confidence is of the token, so for it only where the same one was drawn.)"""
    plain, changed = Categorical(1e-3), Categorical(1e-4, 0.5, 3)
    found = [asked(RANKINGS.build(name), writer, some())[0] for writer in (plain, changed)]
    assert found[0].equal(found[1])
    unlike = [asked(RANKINGS.build(name, read="writer"), writer, some())[0] for writer in (Argmax(), Argmax(0.5, 3))]
    assert not unlike[0].equal(unlike[1])


def test_one_pass_over_the_vocabulary() -> None:
    """Neither what is read of the writer nor the end tokens' share costs another run of the head."""
    for ranking in (Confidence(read="writer"), Margin(read="writer"), Confidence(ends_last=True), Margin()):
        for writer in (Argmax(), Argmax(0.9), Categorical(0.7, 0.9)):
            source = Given(some(words=5000).repeat(60, 1))  # too many to be kept
            canvas = Canvas.create(torch.full((1, len(source)), 4999), mask_id=4999)
            view = View(canvas, Stub([3]), 0, Randomness.create(5, 1, torch.device("cpu")))  # type: ignore[arg-type]
            prediction = Prediction(canvas.masked_BL, source, (4999,), writer.statistics | ranking.statistics)
            ranking.scores(view, prediction, writer.propose(view, prediction, ranking.reads))
            assert source.rows == len(source)


def picks(ranking: Local, scores: list[float], seeds: int) -> list[tuple[int, ...]]:
    """The rows in order, for every one of so many batch rows with the same scores."""
    scores_BL = torch.tensor([scores]).expand(seeds, -1)
    canvas = Canvas.create(torch.full(scores_BL.shape, MASK), mask_id=MASK)
    view = View(canvas, Stub(), 0, Randomness.create(0, seeds, torch.device("cpu")))  # type: ignore[arg-type]
    proposal = Proposal(canvas.tokens_BL, scores_BL, drawn_from={"confidence": scores_BL})
    found_BL = ranking.scores(view, None, proposal)  # type: ignore[arg-type]
    rank_BL = ranked(canvas.open_BL, found_BL, None, proposal).rank_BL  # type: ignore[arg-type]
    return [tuple(order) for order in rank_BL.argsort(1).tolist()]


@pytest.mark.parametrize("noise", [0.05, 0.3, 2.0])
def test_noise_draws_rows_without_replacement_from_a_softmax(noise: float) -> None:
    scores, seeds = [0.1, 0.5, 0.62], 40_000
    seen = Counter(picks(Confidence(noise, "writer"), scores, seeds))
    weights = (torch.tensor(scores, dtype=torch.float64) / noise).softmax(0).tolist()
    for order in permutations(range(3)):
        first, second, _ = order
        chance = weights[first] * weights[second] / (1 - weights[first])
        assert seen[order] / seeds == pytest.approx(chance, abs=4 * (0.25 / seeds) ** 0.5)


def test_limits_of_noise() -> None:
    scores = [0.1, 0.5, 0.62]
    assert set(picks(Confidence(0.0, "writer"), scores, 50)) == {(2, 1, 0)}
    assert set(picks(Confidence(1e-4, "writer"), scores, 50)) == {(2, 1, 0)}
    assert picks(Confidence(1e9, "writer"), scores, 50) == picks(Confidence(1e9, "writer"), [0.0, 0.0, 0.0], 50)


def filled(model: tabes.Denoiser, rule: Any, seed: int = 0, **canvas: Any) -> tuple[list[int], list[tabes.Step]]:
    start = Canvas.create(torch.tensor([[3, 4, 5, 6, 7, 8]]), mask_id=MASK, **{"max_new_tokens": 14, **canvas})
    steps = list(tabes.decode(model, start, rule, seed=seed))
    return steps[-1].canvas.tokens_BL[0].tolist(), steps


@pytest.mark.parametrize("name", LOCAL)
def test_parameters_that_change_nothing(name: str, golden_model: tabes.Denoiser) -> None:
    plain = filled(golden_model, tabes.sampler(name))[0]
    assert filled(golden_model, tabes.sampler(name, noise=0.0))[0] == plain
    assert filled(golden_model, tabes.sampler(name, read="writer"))[0] == plain
    assert filled(golden_model, tabes.sampler(name, read="writer", top_p=1.0, top_k=67))[0] == plain
    assert filled(golden_model, tabes.sampler(name, noise=3.0))[0] != plain
    assert filled(golden_model, tabes.sampler(name, read="writer", top_k=2))[0] != plain


def test_filters_at_temperature_0_need_someone_to_look_at_what_they_leave() -> None:
    rule = tabes.sampler("entropy", read="writer", top_p=0.9)
    assert isinstance(rule, PartSampler) and rule.writer == Argmax(0.9)
    with pytest.raises(TabesError, match=r"top_p=0.9 has no effect at temperature 0; set a temperature above 0"):
        tabes.sampler("entropy", top_p=0.9)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_end_tokens_count_for_nothing_and_come_last(temperature: float) -> None:
    logits_NV, ends = some(rows=200), (4, 11)
    logits_NV[::3, 4] += 3.0
    logits_NV[1::3, 11] += 12.0
    logits_NV[2, 11] = 40.0
    writer = Categorical(temperature) if temperature else Argmax()
    plain_N, proposal = asked(Confidence(), writer, logits_NV)
    scores_N, _ = asked(Confidence(ends_last=True), writer, logits_NV, eos_ids=ends)
    p_NV = logits_NV[:, :-1].double().index_fill(1, torch.tensor(ends), -torch.inf).softmax(1)
    expected_N = p_NV.gather(1, proposal.tokens_BL[0][:, None])[:, 0].float()
    is_end_N = torch.isin(proposal.tokens_BL[0], torch.tensor(ends))
    assert bool(is_end_N.any()) and not bool(is_end_N.all())
    torch.testing.assert_close(scores_N[~is_end_N], expected_N[~is_end_N], rtol=1e-4, atol=1e-6)
    assert set(scores_N[is_end_N].tolist()) == {-1.0}
    assert bool((scores_N[~is_end_N] > plain_N[~is_end_N] * 0.9999).all())
    noisy_N, _ = asked(Confidence(5.0, ends_last=True), writer, logits_NV, eos_ids=ends)
    assert float(noisy_N[is_end_N].max()) < float(noisy_N[~is_end_N].min())


def test_a_word_beside_an_end_token_that_holds_nearly_everything_is_exact() -> None:
    """One minus the end tokens' share has no digits left there: these rows are computed again without them."""

    class Second(Writer):
        """Proposes the second word, however improbable."""

        def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
            plain = Argmax().propose(view, prediction, reads)
            logit_BL = prediction.spread(prediction.logits_NV()[:, 1])
            return replace(plain, tokens_BL=torch.ones_like(plain.tokens_BL), logit_BL=logit_BL)

    logits_NV = torch.tensor([[30.0, 2.0, 1.0, 0.0], [5.0, 2.0, 1.0, 0.0], [-9.0, 2.0, 1.0, 0.0]])
    scores_N, _ = asked(Confidence(ends_last=True), Second(), logits_NV, eos_ids=(0,))
    torch.testing.assert_close(scores_N, torch.tensor([2.0, 1.0]).softmax(0)[0].expand(3), rtol=1e-4, atol=0)


def test_ends_last_is_nothing_without_end_tokens_in_reach(golden_model: tabes.Denoiser) -> None:
    model = replace(golden_model, eos_ids=(64,))
    suppressed = tabes.Suppress(model, 64)
    start = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=9)
    found = [
        [step.positions for step in tabes.decode(suppressed, start, tabes.sampler("confidence", ends_last=ends))]
        for ends in (False, True)
    ]
    assert found[0] == found[1]


def test_a_model_without_end_tokens_says_so(golden_model: tabes.Denoiser) -> None:
    with pytest.raises(TabesError, match="names no end-of-text token; leave ends_last out"):
        filled(replace(golden_model, eos_ids=()), tabes.sampler("confidence", ends_last=True))


def test_left_to_right_is_the_order_of_the_rows(golden_model: tabes.Denoiser) -> None:
    _, steps = filled(golden_model, tabes.sampler("left_to_right", num_steps=7))
    assert [step.positions[0] for step in steps] == [(6 + 2 * k, 7 + 2 * k) for k in range(7)]
    assert asked(LeftToRight(), Argmax(), some(5))[0].argsort(descending=True).tolist() == [0, 1, 2, 3, 4]


def test_random_has_every_order_equally_often() -> None:
    seeds = 30_000
    canvas = Canvas.create(torch.full((seeds, 3), MASK), mask_id=MASK)
    view = View(canvas, Stub(), 0, Randomness.create(0, seeds, torch.device("cpu")))  # type: ignore[arg-type]
    scores_BL = Random().scores(view, None, None)  # type: ignore[arg-type]
    seen = Counter(tuple(order) for order in scores_BL.argsort(1).tolist())
    for order in permutations(range(3)):
        assert seen[order] / seeds == pytest.approx(1 / 6, abs=0.01)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"noise": -0.1}, "noise is -0.1; it must be 0 or more"),
        ({"noise": float("inf")}, "noise is inf; it must be 0 or more"),
        ({"noise": float("nan")}, "noise is nan; it must be"),
        ({"read": "both"}, "read is 'both'; it must be 'model' or 'writer'"),
        ({"ends_last": 1}, "ends_last is 1; it must be False or True"),
        ({"ends_last": True, "read": "writer"}, "ends_last goes with read='model' only"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(TabesError, match=message):
        Confidence(**parameters)


def test_a_writer_that_says_nothing_of_what_it_draws_from_is_named() -> None:
    class Mute(Writer):
        def propose(self, view: View, prediction: Prediction, reads: frozenset[str] = frozenset()) -> Proposal:
            return Proposal(prediction.top_token_BL, prediction.top_logit_BL)

    with pytest.raises(TabesError, match="does not say the margin of what it draws from"):
        asked(Margin(read="writer"), Mute(), some())
