"""SEDD: the recorded transitions, the definition written out on a timed toy, and what is drawn against both."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.errors import UsageError
from tabes.kernels.base import Chances, Now, transition
from tabes.kernels.mdlm import MDLM
from tabes.kernels.sedd import SEDD
from tabes.prediction import Prediction
from tabes.randomness import Randomness
from tabes.schedules import SCHEDULES, Schedule
from tabes.view import View
from tests.conftest import GOLDEN, MASK
from tests.steering.analytic import Mixer, mixer

PREDICTORS = ("euler", "analytic")
DRAWS = 20_000
UNLIKELY = 1e-3


@dataclass(frozen=True)
class Recorded:
    """Logits that were written down."""

    logits_NV: Tensor

    @property
    def vocab_size(self) -> int:
        return self.logits_NV.shape[1]

    def __len__(self) -> int:
        return len(self.logits_NV)

    def logits(self, rows: slice) -> Tensor:
        return self.logits_NV[rows].clone()

    def pick(self, index_M: Tensor) -> Recorded:
        return Recorded(self.logits_NV[index_M])


@dataclass(frozen=True)
class Scores(Mixer):
    """A timed mixer whose output is a log-score: its last hidden number is added to all logits, -log(e^sigma - 1).

    `normalised`: the rest is a log-probability, so that the score is that of a perfect model. `loud` is added too.
    """

    normalised: bool = False
    loud: float = 0.0

    def _mixed(
        self, embeddings_BLE: Tensor, positions_BL: Tensor, padding_BL: Tensor | None, time_B: Tensor | None
    ) -> Tensor:
        assert time_B is not None
        hidden_BLE = super()._mixed(embeddings_BLE, positions_BL, padding_BL, time_B)
        sigma_B = SCHEDULES["loglinear"].sigma(time_B.double())
        height_BL1 = (self.loud - sigma_B.expm1().log())[:, None, None].expand(-1, positions_BL.shape[1], 1)
        return torch.cat([hidden_BLE, height_BL1], -1)

    def head(self, hidden_Nd: Tensor) -> Tensor:
        logits_NV = hidden_Nd[:, :-1] @ self.head_EV
        if self.normalised:
            logits_NV = logits_NV.clone()
            logits_NV[:, -1] = -torch.inf
            logits_NV = logits_NV.log_softmax(-1)
        return logits_NV + hidden_Nd[:, -1:]


LENGTH, VOCAB = 4, 7
TOY_MASK = VOCAB - 1
TOY_TOKENS = [TOY_MASK, 2, TOY_MASK, TOY_MASK]


def toy(**changes: Any) -> Denoiser:
    """The timed mixer itself (probabilities), or with `loud` or `normalised` the one that gives scores."""
    plain = replace(mixer(LENGTH, VOCAB, 3, seed=4, coupling=0.3), timed=True)
    network = Scores(**{**vars(plain), **changes}) if changes else plain
    return Denoiser(network, None, mask_id=TOY_MASK)


def toy_logits(t: float) -> Tensor:
    """(L, V) logits of the toy at `TOY_TOKENS`, from its formula."""
    network = mixer(LENGTH, VOCAB, 3, seed=4, coupling=0.3)
    hidden_LE = (1 - t) * network.bias_LE + (1 + 2 * t) * network.mix_LL @ network.table_VE[torch.tensor(TOY_TOKENS)]
    logits_LV = hidden_LE @ network.head_EV
    logits_LV[:, TOY_MASK] = -torch.inf
    return logits_LV


def by_definition(
    score_LV: Tensor, masked_L: Tensor, tokens_L: Tensor, noise: Schedule, t: float, s: float, how: str
) -> Tensor:
    """What the reference hands to its draw, matrix by matrix; `score_LV` has 1 at the current token."""
    V = score_LV.shape[1]
    sigma_t, sigma_s = (float(noise.sigma(torch.tensor(time, dtype=torch.float64))) for time in (t, s))
    here_LV = torch.nn.functional.one_hot(tokens_L, V).double()
    if how == "euler":
        rate_LV = float(noise.rate(torch.tensor(t, dtype=torch.float64))) * (t - s) * score_LV * masked_L[:, None]
        rate_LV = rate_LV * (1 - here_LV)
        q_LV = here_LV + rate_LV - here_LV * rate_LV.sum(1, keepdim=True)
    else:
        dsigma = torch.tensor(sigma_t - sigma_s, dtype=torch.float64)
        staggered_LV = dsigma.exp() * score_LV
        staggered_LV[:, -1] += (1 - dsigma.exp()) * score_LV.sum(1)
        q_LV = staggered_LV * ((-dsigma).exp() * here_LV + (1 - (-dsigma).exp()) * masked_L[:, None])
    q_LV = q_LV.clamp(min=0)
    return q_LV / q_LV.sum(1, keepdim=True)


def p_value(tokens_BL: Tensor, expected_LV: Tensor) -> float:
    """Of the chi-square test that the tokens of every row come from its distribution; bins below 5 are pooled."""
    total, freedom = 0.0, 0
    for tokens_B, expected_V in zip(tokens_BL.T, expected_LV, strict=True):
        seen_V = torch.bincount(tokens_B, minlength=len(expected_V)).double()
        wanted_V = expected_V.double() * len(tokens_B)
        if bool((seen_V[wanted_V == 0] > 0).any()):
            return 0.0
        rare_V = wanted_V < 5
        seen = torch.cat([seen_V[~rare_V], seen_V[rare_V].sum()[None]])
        wanted = torch.cat([wanted_V[~rare_V], wanted_V[rare_V].sum()[None]])
        seen, wanted = seen[wanted > 0], wanted[wanted > 0]
        total += float(((seen - wanted) ** 2 / wanted).sum())
        freedom += len(wanted) - 1
    return float(torch.special.gammaincc(torch.tensor(freedom / 2), torch.tensor(total / 2)))


def drawn(model: Denoiser, tokens_L: Tensor, rule: SEDD, step: int, draws: int = DRAWS, batch: int = 4000) -> Tensor:
    """(draws, L): one step taken again and again from the same canvas, `step` steps into the decoding."""
    found = []
    for first in range(0, draws, batch):
        canvas = Canvas.create(tokens_L.expand(batch, -1), mask_id=model.mask_id)
        state = rule.init(canvas)
        for _ in range(step):
            state = replace(state, clock=state.clock.tick(torch.zeros(batch, dtype=torch.bool)))
        view = View(canvas, model.begin(), step, Randomness.create(1000 + first, batch, canvas.tokens_BL.device))
        with torch.no_grad():
            move, _ = rule.step(view, state)
        found.append(canvas.apply(move).tokens_BL)
    return torch.cat(found)


def records(predictor: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    folder = GOLDEN / f"sedd_{predictor}"
    return json.loads((folder / "T16.json").read_text()), load_file(folder / "T16.safetensors")


def chances_of(rule: SEDD, log_score_LV: Tensor, x_L: Tensor, t: float, s: float, at: bool) -> Chances:
    masked_BL = (x_L == MASK)[None]
    prediction = Prediction(masked_BL, Recorded(log_score_LV[masked_BL[0]]), (MASK,)) if at else None
    t_B, s_B = torch.tensor([[t], [s]], dtype=torch.float64)
    return rule.chances(Now(masked_BL, ~masked_BL, t_B, s_B, prediction), None)


@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("scores", ["raw", "probabilities"])
def test_recorded_transitions(predictor: str, scores: str) -> None:
    case, tensors = records(predictor)
    rule = SEDD(num_steps=16, predictor=predictor, scores=scores)
    grid = rule.grid(16)
    torch.testing.assert_close(
        grid, torch.tensor([t for t, _ in case["schedule"]], dtype=torch.float64), atol=1e-5, rtol=0
    )
    for record in case["records"][:-1]:
        at = record["record"]
        x_L, log_score_LV = tensors[f"{at}.x_t"], tensors[f"{at}.log_score"]
        times = float(grid[record["step_index"]]), float(grid[record["step_index"] + 1])
        chances = chances_of(rule, log_score_LV, x_L, *times, at=scores == "raw")
        p_LV = log_score_LV.masked_fill(torch.arange(67) == MASK, -torch.inf).softmax(-1)
        found_LV = transition(chances, (x_L == MASK)[None], x_L[None], p_LV[None], MASK)[0]
        torch.testing.assert_close(found_LV, tensors[f"{at}.transition"], atol=1e-5, rtol=0)
        wrong = chances_of(rule, log_score_LV + 0.1, x_L, *times, at=scores == "raw")
        differs = (transition(wrong, (x_L == MASK)[None], x_L[None], p_LV[None], MASK)[0] - found_LV).abs().max() > 1e-3
        assert bool(differs) == (scores == "raw" and record["num_masked"] > 0), "only raw scores have a scale"


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_draws_are_those_of_the_record(golden_model: Denoiser, predictor: str) -> None:
    _, tensors = records(predictor)
    rule = SEDD(num_steps=16, predictor=predictor)
    tokens_BL = drawn(golden_model, tensors["3.x_t"], rule, step=8)
    assert p_value(tokens_BL, tensors["3.transition"]) > UNLIKELY
    colder_BL = drawn(golden_model, tensors["3.x_t"], replace(rule, temperature=0.8), step=8)
    assert p_value(colder_BL, tensors["3.transition"]) < UNLIKELY
    later_BL = drawn(golden_model, tensors["3.x_t"], rule, step=9)
    assert p_value(later_BL, tensors["3.transition"]) < UNLIKELY


TOYS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("loglinear", {}, {}),
    ("linear", {}, {"schedule": "linear"}),
    ("cosine", {}, {"schedule": "cosine"}),
    ("polynomial", {}, {"schedule": "polynomial"}),
    ("perfect scores", {"normalised": True}, {"scores": "raw"}),
    ("scores", {"loud": -2.0}, {"scores": "raw"}),
    ("loud scores", {"loud": 0.5}, {"scores": "raw"}),
]


@pytest.mark.parametrize("step", [1, 5, 7])
@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize(("network", "settings"), [case[1:] for case in TOYS], ids=[case[0] for case in TOYS])
def test_draws_are_those_of_the_definition(
    network: dict[str, Any], settings: dict[str, Any], predictor: str, step: int
) -> None:
    rule = SEDD(num_steps=8, predictor=predictor, **settings)
    t, s = rule.grid(8)[step : step + 2].tolist()
    noise = SCHEDULES[rule.schedule]
    tokens_L = torch.tensor(TOY_TOKENS)
    score_LV = toy_logits(t)
    if not network or network.get("normalised"):
        score_LV = score_LV.log_softmax(-1)
    score_LV = (score_LV + network.get("loud", 0.0)).exp() / float(noise.sigma(torch.tensor(t).double()).expm1())
    score_LV = score_LV.scatter(1, tokens_L[:, None], 1.0)
    masked_L = tokens_L == TOY_MASK
    expected_LV = by_definition(score_LV, masked_L, tokens_L, noise, t, s, predictor)
    tokens_BL = drawn(toy(**network), tokens_L, rule, step)
    assert p_value(tokens_BL, expected_LV) > UNLIKELY
    stays_M = expected_LV[masked_L, TOY_MASK]
    if network.get("loud") == 0.5:
        assert bool((stays_M == 0).any()), "no row's weights are above 1"
    if bool((stays_M > 0).all()):
        wrong_LV = by_definition(score_LV, masked_L, tokens_L, noise, t, t - 1.2 * (t - s), predictor)
        assert p_value(tokens_BL, wrong_LV) < UNLIKELY


@pytest.mark.parametrize("network", [{}, {"loud": 0.5}], ids=["probabilities", "scores"])
def test_what_is_left_at_the_end_is_drawn_with_the_last_time(network: dict[str, Any]) -> None:
    rule = SEDD(num_steps=8, scores="raw" if network else "probabilities")
    tokens_L = torch.tensor(TOY_TOKENS)
    expected_LV = toy_logits(1e-5).softmax(-1)
    expected_LV[1] = torch.nn.functional.one_hot(tokens_L[1], VOCAB)
    model = toy(**network)
    tokens_BL = drawn(model, tokens_L, rule, step=8)
    assert p_value(tokens_BL, expected_LV) > UNLIKELY
    told = model.network.told  # type: ignore[attr-defined]
    assert told[-1] == pytest.approx([1e-5] * len(told[-1]))
    best_BL = drawn(model, tokens_L, replace(rule, fill="argmax"), step=8, draws=4000)
    assert p_value(best_BL, expected_LV) < UNLIKELY


def test_a_timed_network_is_told_the_kernels_time() -> None:
    model = toy(loud=-1.0)
    canvas = Canvas.create(torch.tensor([[TOY_MASK] * LENGTH]), mask_id=TOY_MASK)
    rule = SEDD(num_steps=6, scores="raw")
    steps = list(tabes.decode(model, canvas, rule, seed=2))
    told = [times[0] for times in model.network.told]  # type: ignore[attr-defined]
    assert told == pytest.approx(rule.grid(6)[: len(told)].tolist())
    assert len(told) == len(steps) > 1
    assert not bool(steps[-1].canvas.masked_BL.any())


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_analytic_is_mdlm(golden_model: Denoiser, schedule: str) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4], [5, 6]]), mask_id=MASK, max_new_tokens=12)

    def final(rule: Any) -> list[Tensor]:
        return [step.canvas.tokens_BL for step in tabes.decode(golden_model, canvas, rule, seed=7)]

    mdlm = final(MDLM(num_steps=9, schedule=schedule, fill="argmax"))
    assert torch.stack(final(SEDD(num_steps=9, schedule=schedule, predictor="analytic", fill="argmax"))).equal(
        torch.stack(mdlm)
    )


@pytest.mark.parametrize("scores", ["raw", "probabilities"])
def test_predictors_agree_for_loglinear_noise_and_in_small_steps(scores: str) -> None:
    score_LV = torch.linspace(-8, -1, 6 * 67).reshape(6, 67)
    x_L = torch.tensor([MASK, 4, MASK, MASK, 5, MASK])

    def gap(schedule: str, t: float, dt: float) -> float:
        euler, analytic = (
            chances_of(SEDD(predictor=how, schedule=schedule, scores=scores), score_LV, x_L, t, t - dt, scores == "raw")
            for how in PREDICTORS
        )
        return float((euler.reveal_BL - analytic.reveal_BL).abs().max() / analytic.reveal_BL.abs().max())

    assert gap("loglinear", 0.7, 0.3) < 1e-12
    if scores == "probabilities":
        assert gap("cosine", 0.7, 0.3) > 0.05
        assert gap("cosine", 0.7, 0.003) < 0.01 * 3


def test_raw_scores_of_a_perfect_model_are_its_probabilities() -> None:
    canvas = Canvas.create(torch.tensor([[TOY_MASK] * LENGTH] * 30), mask_id=TOY_MASK)

    def final(model: Denoiser, scores: str) -> Tensor:
        steps = list(tabes.decode(model, canvas, SEDD(num_steps=8, predictor="analytic", scores=scores), seed=7))
        return steps[-1].canvas.tokens_BL

    assert final(toy(normalised=True), "raw").equal(final(toy(), "probabilities"))
    assert not final(toy(loud=0.5), "raw").equal(final(toy(), "probabilities"))


def test_the_vocabulary_is_read_where_it_is_needed(golden_model: Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4]]), mask_id=MASK, max_new_tokens=20)
    steps = list(tabes.decode(golden_model, canvas, SEDD(num_steps=16), seed=1))
    written = [len(step.positions[0]) for step in steps]
    assert [step.cost.head_rows for step in steps] == written
    assert [step.cost.forward_calls for step in steps] == [int(count > 0) for count in written]
    assert sum(written) == 20


def alone(canvas: Canvas, row: int) -> Canvas:
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("wrapper", ["plain", "guidance", "cache", "block"])
@pytest.mark.parametrize("predictor", PREDICTORS)
@pytest.mark.parametrize("scores", ["raw", "probabilities"])
def test_a_batch_row_is_the_row_alone(
    golden_model: Denoiser, block_length: int | None, wrapper: str, predictor: str, scores: str
) -> None:
    model: AnyDenoiser = {
        "plain": golden_model,
        "guidance": Guidance(golden_model, 0.7),
        "cache": RowCache(golden_model, 3),
        "block": RowCache(golden_model, "block"),
    }[wrapper]
    rule = SEDD(num_steps=12, predictor=predictor, scores=scores)
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    canvas = Canvas.create(
        prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, block_length=block_length
    )
    last = list(tabes.decode(model, canvas, rule, seed=3))[-1].canvas
    assert not bool(last.masked_BL.any())
    assert last.tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL])
    for row in range(2):
        content_L = ~canvas.padding_BL[row]
        single = alone(canvas, row)
        steps = list(tabes.decode(model, single, rule, seed=3 + row))
        assert steps[-1].canvas.tokens_BL[0].equal(last.tokens_BL[row][content_L])


def test_names_and_bad_parameters(golden_model: Denoiser) -> None:
    for name, predictor in (("sedd-euler", "euler"), ("sedd-analytic", "analytic")):
        rule = tabes.sampler(name, num_steps=4)
        assert isinstance(rule, SEDD)
        assert (rule.predictor, rule.fill, rule.revises) == (predictor, "draw", False)
    for wrong, words in (
        ({"predictor": "heun"}, "predictor is 'heun'"),
        ({"scores": "logits"}, "scores is 'logits'"),
        ({"scores": "raw", "schedule": "cosine"}, "noise is infinite at first"),
    ):
        with pytest.raises(UsageError, match=words):
            tabes.sampler("sedd-euler", **wrong)
