"""SEDD: the golden checkpoint, what a prediction sees of log-scores, and the kernel on it in closed form."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas, Guidance
from tabes.denoiser import Denoiser
from tabes.errors import ModelError
from tabes.kernels.base import Now, transition
from tabes.kernels.sedd import SEDD
from tabes.models import Network
from tabes.models.families.sedd import SEDDNetwork
from tabes.schedules import SCHEDULES
from tests.kernels.test_sedd import by_definition
from tests.models.published import SEDD_ABSORB, logits_of

MASK = SEDD_ABSORB.mask_id
TIMES = range(len(SEDD_ABSORB.times_SB))


@pytest.fixture(scope="module")
def model() -> Denoiser:
    return tabes.load(SEDD_ABSORB.folder)


def recorded_canvas() -> Canvas:
    return Canvas.create(SEDD_ABSORB.recorded["input_ids"], mask_id=MASK)


def test_golden() -> None:
    logits, entropy, gradient = SEDD_ABSORB.differences(SEDD_ABSORB.network())
    assert logits < 1e-4
    assert entropy < 1e-4
    assert gradient < 1e-3


def test_what_the_network_says_of_itself(model: Denoiser) -> None:
    network = model.network
    assert isinstance(network, Network)
    assert isinstance(network, SEDDNetwork)
    assert (network.vocab_size, network.hidden_size, network.max_length) == (160, 66, 64)
    assert (network.timed, network.shifted, network.replays) == (True, False, True)
    assert model.mask_id == MASK == 159


@pytest.mark.parametrize("s", TIMES)
def test_a_prediction_is_the_distribution_of_tokens(model: Denoiser, s: int) -> None:
    canvas, recorded = recorded_canvas(), SEDD_ABSORB.recorded
    prediction = model.predict(canvas, canvas.masked_BL, time_B=SEDD_ABSORB.times_SB[s])
    expected_BL = recorded["entropy_no_mask_token"][s]
    torch.testing.assert_close(prediction.entropy_BL, expected_BL, rtol=0, atol=1e-4)
    score_NV = recorded["logits"][s][canvas.masked_BL][:, :MASK].double().exp()
    p_NV = score_NV / score_NV.sum(-1, keepdim=True)
    assert prediction.top_token_BL[canvas.masked_BL].equal(p_NV.argmax(-1))
    torch.testing.assert_close(prediction.confidence_BL[canvas.masked_BL].double(), p_NV.amax(-1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("predictor", ["euler", "analytic"])
@pytest.mark.parametrize("s", TIMES)
def test_the_kernel_on_raw_scores_in_closed_form(model: Denoiser, s: int, predictor: str) -> None:
    """Chances and tokens together are the matrix product of the definition, on the recorded scores."""
    rule, canvas = SEDD(predictor=predictor, scores="raw"), recorded_canvas()
    # A published score is far from that of a perfect model here (random weights): small steps keep chances below 1.
    time_B = SEDD_ABSORB.times_SB[s]
    next_B = time_B * (1 - 1e-3)
    prediction = model.predict(canvas, canvas.masked_BL, time_B=time_B)
    now = Now(canvas.masked_BL, ~canvas.masked_BL, time_B, next_B, prediction)
    weights_NV = rule.weights(prediction.logits_NV()).double()
    p_BLV = torch.zeros(*canvas.tokens_BL.shape, 160, dtype=torch.float64)
    p_BLV[canvas.masked_BL] = weights_NV / weights_NV.sum(-1, keepdim=True)
    found_BLV = transition(rule.chances(now, None), canvas.masked_BL, canvas.tokens_BL, p_BLV, MASK)
    for b in range(2):
        expected_LV = by_definition(
            SEDD_ABSORB.recorded["logits"][s, b].double().exp(),
            canvas.masked_BL[b],
            canvas.tokens_BL[b],
            SCHEDULES["loglinear"],
            float(time_B[b]),
            float(next_B[b]),
            predictor,
        )
        torch.testing.assert_close(found_BLV[b], expected_LV, rtol=1e-4, atol=1e-9)
        written_L = canvas.masked_BL[b] & (expected_LV[:, MASK] < 1)
        assert bool(written_L.any())


@pytest.mark.parametrize("scores", ["raw", "probabilities"])
@pytest.mark.parametrize("name", ["sedd-euler", "sedd-analytic"])
def test_decoding_with_the_presets(model: Denoiser, name: str, scores: str) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5]] * 3), mask_id=MASK, max_new_tokens=10)
    rule = tabes.sampler(name, num_steps=8, scores=scores)
    steps = list(tabes.decode(model, canvas, rule, seed=1))
    assert not bool((steps[-1].canvas.tokens_BL == MASK).any())
    assert steps[-1].canvas.tokens_BL[:, :3].equal(canvas.tokens_BL[:, :3])
    if scores == "probabilities":
        return
    assert [step.cost.forward_calls for step in steps] == [1] * len(steps)


def test_presets_take_probabilities_unless_told() -> None:
    for name in ("sedd-euler", "sedd-analytic"):
        rule = tabes.sampler(name)
        assert isinstance(rule, SEDD)
        assert rule.scores == "probabilities"


def test_the_current_token_has_the_log_score_zero_where_it_is_known() -> None:
    network = SEDD_ABSORB.network(dtype="float64")
    tokens_BL, time_B = torch.tensor([[3, 4, MASK, 7]]), torch.tensor([0.5])
    logits_BLV = logits_of(network, tokens_BL, time_B)
    assert logits_BLV.gather(2, tokens_BL[..., None]).flatten().tolist() == [0.0] * 4
    places: dict[str, Any] = {"positions_BL": torch.arange(4)[None], "padding_BL": None, "time_B": time_B}
    hidden_BLd, _ = network.forward(None, embeddings_BLE=network.embed(tokens_BL), **places)
    unknown_BLV = network.head(hidden_BLd[0])[None]
    own = torch.nn.functional.one_hot(tokens_BL, 160).bool()
    assert torch.equal(unknown_BLV[~own], logits_BLV[~own])
    assert not bool((unknown_BLV[own] == 0).any())
    with torch.enable_grad():
        leaf = network.embed(tokens_BL).requires_grad_()
        assert torch.equal(logits_of(network, tokens_BL, time_B, leaf).detach(), logits_BLV)


def test_scores_are_scaled_by_the_noise() -> None:
    """log(e^sigma - 1) + log(tokens), which guidance keeps and time zero does not make infinite."""
    network = SEDD_ABSORB.network(dtype="float64")
    tokens_BL = torch.full((1, 3), MASK)
    places: dict[str, Any] = {"positions_BL": torch.arange(3)[None], "padding_BL": None}
    for time in (1.0, 0.5, 1e-3, 0.0):
        hidden_BLd, _ = network.forward(tokens_BL, time_B=torch.tensor([time]), **places)
        masked = max(time, 1e-5) * (1 - 1e-3)
        expected = -math.log(masked / (1 - masked)) - math.log(159)
        assert hidden_BLd[0, :, 64].tolist() == pytest.approx([expected] * 3, rel=1e-6)
    canvas = Canvas.create(torch.tensor([[3, 4]]), mask_id=MASK, max_new_tokens=2)
    model = Denoiser(network, None, MASK)
    guided = Guidance(model, 0.0).predict(canvas, canvas.masked_BL)
    expected_BL = model.predict(canvas, canvas.masked_BL).log_normaliser_BL
    torch.testing.assert_close(guided.log_normaliser_BL, expected_BL)


def test_without_scaling(tmp_path: Path) -> None:
    folder = changed(tmp_path, lambda config: config["model"].update(scale_by_sigma=False))
    network = tabes.load(folder).network
    assert isinstance(network, SEDDNetwork)
    tokens_BL, time_B = torch.tensor([[MASK, 5]]), torch.tensor([0.7])
    plain = logits_of(network, tokens_BL, time_B)[0, 0, :MASK]
    scaled = logits_of(SEDD_ABSORB.network(), tokens_BL, time_B)[0, 0, :MASK]
    masked = 0.7 * (1 - 1e-3)
    torch.testing.assert_close(plain - scaled, torch.full((MASK,), math.log(masked / (1 - masked) * 159)))


def test_the_scale_is_not_rounded_in_half_precision() -> None:
    network = SEDD_ABSORB.network(dtype="bfloat16")
    tokens_BL, time_B = SEDD_ABSORB.recorded["input_ids"], SEDD_ABSORB.times_SB[4]
    places: dict[str, Any] = {"positions_BL": torch.arange(24).expand(2, 24), "padding_BL": None}
    hidden_BLd, _ = network.forward(tokens_BL, time_B=time_B, **places)
    exact_BLd, _ = SEDD_ABSORB.network().forward(tokens_BL, time_B=time_B, **places)
    assert torch.equal(hidden_BLd[..., 64:], exact_BLd[..., 64:])
    error = (hidden_BLd - exact_BLd)[..., :64].square().mean().sqrt() / exact_BLd[..., :64].std()
    assert float(error) < 0.03
    assert network.head(hidden_BLd[0]).dtype == torch.float32


def changed(folder: Path, edit: Any) -> Path:
    copy = Path(shutil.copytree(SEDD_ABSORB.folder, folder / "copy"))
    config: dict[str, Any] = json.loads((copy / "config.json").read_text())
    edit(config)
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda config: config["graph"].update(type="uniform"), "graph 'uniform' where 'absorb' is needed"),
        (lambda config: config["noise"].update(type="geometric"), "noise 'geometric' where 'loglinear'"),
        (lambda config: config.update(tokens=158), "shape"),
        (lambda config: config.update(tokens="all"), "tokens 'all'"),
        (lambda config: config["model"].update(n_blocks=3), "lacks weights"),
        (lambda config: config["model"].update(n_heads=8), "inv_freq with shape"),
        (lambda config: config["model"].update(hidden_size=None), "hidden_size None"),
        (lambda config: config["model"].pop("scale_by_sigma"), "scale_by_sigma None"),
    ],
)
def test_configs_that_do_not_fit(tmp_path: Path, edit: Any, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        tabes.load(changed(tmp_path, edit))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
