"""Soft writes: the mean embedding of what would be written."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tabes.prediction import _CHUNK_ELEMENTS
from tabes.steering import soft_deltas
from tests.steering.analytic import denoiser, mixer
from tests.steering.exact import Exact
from tests.steering.scenes import canvas_of, exactly, holes, precise, ragged, rows, scene_of, tiny


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert"])
def test_the_mean_embedding_of_the_prediction(name: str) -> None:
    canvas = holes(8, (1, 3, 4))
    delta_LE = soft_deltas(scene_of(exactly(name), canvas), rows(canvas, [1, 4]))[0]
    expected_LE = Exact(precise(name), canvas.tokens_BL[0]).deltas()
    torch.testing.assert_close(delta_LE[[1, 4]], expected_LE[[1, 4]])
    assert not delta_LE[[0, 2, 3, 5, 6, 7]].any()


def test_the_mask_cannot_be_written_softly() -> None:
    """However much the model would like to: its embedding is no part of the mean."""
    network = mixer(4, 6, 3, seed=1)
    eager_EV = network.head_EV.clone()
    eager_EV[:, 5] = 50 * network.bias_LE[1]
    table_VE = network.table_VE.clone()
    table_VE[5] = 1e6
    network = replace(network, head_EV=eager_EV, table_VE=table_VE, mix_LL=torch.zeros(4, 4, dtype=torch.float64))
    canvas = canvas_of([[0, 5, 1, 5]], 5)
    delta_E = soft_deltas(scene_of(denoiser(network), canvas), rows(canvas, [1]))[0, 1]
    p_V = (network.bias_LE[1] @ eager_EV)[:5].softmax(-1)
    torch.testing.assert_close(delta_E, p_V @ table_VE[:5] - 1e6)


def test_a_model_that_scales_its_embeddings() -> None:
    """As Gemma does: what the table says is not what a token gives."""
    network = mixer(4, 6, 3, seed=1)
    scaled, canvas = replace(network, scale=7.0), canvas_of([[0, 5, 1, 5]], 5)
    scene = scene_of(denoiser(scaled), canvas)
    p_NV = scene.prediction.logits_NV().softmax(-1)
    expected_NE = 7 * (p_NV @ network.table_VE - network.table_VE[5])
    torch.testing.assert_close(soft_deltas(scene, canvas.masked_BL)[canvas.masked_BL], expected_NE)


def test_no_candidates_are_no_writes() -> None:
    canvas = ragged()
    delta_BLE = soft_deltas(scene_of(tiny("bert"), canvas), rows(canvas))
    assert delta_BLE.shape == (*canvas.tokens_BL.shape, 32)
    assert not delta_BLE.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_with_or_without_candidates_they_are_as_precise_as_logits(dtype: torch.dtype) -> None:
    canvas, network = canvas_of([[0, 5, 1, 5]], 5), denoiser(mixer(4, 6, 3).to(dtype))
    scene = scene_of(network, canvas)
    for chosen_BL in (canvas.masked_BL, rows(canvas)):
        assert soft_deltas(scene, chosen_BL).dtype == scene.prediction.logits_NV().dtype


def test_chunks_of_a_large_vocabulary_are_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = ragged()
    whole_BLE = soft_deltas(scene_of(tiny("bert"), canvas), canvas.masked_BL)
    assert _CHUNK_ELEMENTS > 0
    monkeypatch.setattr("tabes.prediction._CHUNK_ELEMENTS", 3 * 60)
    torch.testing.assert_close(soft_deltas(scene_of(tiny("bert"), canvas), canvas.masked_BL), whole_BLE)


def test_they_are_constants() -> None:
    canvas = holes(8, (1, 3, 4))
    with torch.enable_grad():
        assert not soft_deltas(scene_of(tiny("llama"), canvas), canvas.masked_BL).requires_grad
