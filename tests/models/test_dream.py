"""Dream: what it predicts stands one row earlier, and only the adapter knows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas
from tabes.errors import ModelError
from tabes.models.loading import open_network
from tests.decoders import DECODERS, GOLDEN, Decoder

FOLDER = GOLDEN / "dream"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tabes.Denoiser:
    folder = tmp_path_factory.mktemp("dream")
    DECODERS["dream"].save(folder)
    return tabes.load(folder)


def by_transformers(tokens_L: torch.Tensor) -> torch.Tensor:
    """(L, V) predictions of the rows of one unpadded canvas: the first row is read off itself."""
    with torch.no_grad():
        logits_LV = DECODERS["dream"].build().eval()(tokens_L[None]).logits[0]
    logits_LV = torch.cat([logits_LV[:1], logits_LV[:-1]])
    logits_LV[:, 5] = -torch.inf
    return logits_LV


def test_predictions_and_replays_are_of_the_rows_asked_for(model: tabes.Denoiser) -> None:
    tokens_BL = torch.tensor([[5, 8, 5, 9, 10, 5, 5]])
    canvas = Canvas.create(tokens_BL, mask_id=5)
    with torch.no_grad():
        prediction = model.predict(canvas, canvas.masked_BL, remember=True)
    expected_LV = by_transformers(tokens_BL[0])[canvas.masked_BL[0]]
    torch.testing.assert_close(prediction.logits_NV().softmax(-1), expected_LV.softmax(-1), rtol=1e-9, atol=1e-11)
    # A replay of every row but one that is written and not read: the same as a forward of the written canvas.
    written_BL = tokens_BL.clone()
    written_BL[0, 2] = 20
    read_BL = canvas.masked_BL & (written_BL == 5)
    every_BL = torch.ones_like(read_BL)
    replayed = model.replay(prediction.memory, every_BL, tokens_BL=written_BL, read_BL=read_BL)
    expected_LV = by_transformers(written_BL[0])[read_BL[0]]
    torch.testing.assert_close(replayed.logits_NV().softmax(-1), expected_LV.softmax(-1), rtol=1e-9, atol=1e-11)


def test_the_network_itself_is_not_shifted(model: tabes.Denoiser) -> None:
    tokens_BL = torch.tensor([[5, 8, 5, 9, 10, 5, 5]])
    hidden_BLd, _ = model.network.forward(tokens_BL, positions_BL=torch.arange(7)[None], padding_BL=None)
    expected = DECODERS["dream"].build().eval()(tokens_BL).logits[0]
    torch.testing.assert_close(model.network.head(hidden_BLd[0]), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("sampler", ["confidence", "boe", "lookahead", "entropy"])
def test_a_batch_row_is_the_row_alone(model: tabes.Denoiser, sampler: str) -> None:
    prompts = [[8, 9, 10, 11], [12, 13]]
    padded = torch.tensor([prompts[0], [2, 2, *prompts[1]]])
    mask = torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    together = tabes.generate(model, input_ids=padded, attention_mask=mask, max_new_tokens=5, sampler=sampler, seed=0)
    for b, prompt in enumerate(prompts):
        alone = tabes.generate(model, input_ids=[prompt], max_new_tokens=5, sampler=sampler, seed=0)
        assert together.sequences[b, -5:].tolist() == alone.sequences[0, -5:].tolist()
        assert model.mask_id not in alone.sequences


def test_the_coders_have_the_same_format(tmp_path: Path) -> None:
    """DiffuCoder and Dream-Coder: another length, a start token of their own, a model type in any case."""
    decoder = Decoder("dream", {"length": 2048})
    decoder.save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "dream", "bos_token_id": 3}))
    assert open_network(tmp_path)[0].shifted
    assert open_network(tmp_path)[0].max_length == 2048


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden_act", "gelu"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("use_sliding_window", True),
        ("use_mrope", True),
        ("tie_word_embeddings", True),
    ],
)
def test_what_is_not_computed_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ModelError, match=f"has {name} .*; only .* can be loaded"):
        open_network(tmp_path)


def test_a_sliding_window_that_is_off_means_nothing(tmp_path: Path) -> None:
    """Published configs have windows that are not used."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "config.json"
    changes = {"sliding_window": 8, "max_window_layers": 1, "use_sliding_window": False}
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    tokens_BL, places = torch.arange(100)[None] % 150, {"positions_BL": torch.arange(100)[None], "padding_BL": None}
    found, expected = (open_network(folder)[0].forward(tokens_BL, **places)[0] for folder in (tmp_path, FOLDER))
    assert torch.equal(found, expected)
