"""Loading: from memory and from folders, and one sentence for everything that can be wrong with a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tabes.errors import ModelError, TabesError, UsageError
from tabes.models import Network
from tabes.models.loading import open_network, open_tokenizer
from tests.tiny import REPLAYING, E, V

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT checkpoint without a tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoints") / "bert"
    REPLAYING["bert"].build(torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture
def broken(bert: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(bert, tmp_path / "broken"))


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def complaint(source: Any, **options: Any) -> str:
    """The one sentence, without a traceback worth reading."""
    with pytest.raises(TabesError) as caught:
        open_network(source, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


@pytest.mark.parametrize("name", ["bert", "llama", "qwen2-grouped", "roberta", "modernbert"])
def test_a_folder_is_the_model_that_was_saved(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = REPLAYING[name].build(torch.float32)
    model.save_pretrained(tmp_path)
    capsys.readouterr()
    network, tokenizer = open_network(tmp_path)
    assert capsys.readouterr() == ("", "")
    assert tokenizer is None
    assert network.replays
    assert network.dtype == torch.float32
    assert network.name == str(tmp_path)
    tokens_BL = torch.arange(6, 14)[None]
    hidden_BLd, _ = network.forward(tokens_BL, positions_BL=torch.arange(8)[None], padding_BL=None)
    expected = model.eval()(input_ids=tokens_BL).logits
    torch.testing.assert_close(network.head(hidden_BLd[0])[None], expected, rtol=0, atol=1e-5)


def test_a_model_in_memory_is_used_as_it_is() -> None:
    model = REPLAYING["bert"].build(torch.float32)
    network, tokenizer = open_network(model)
    assert network.backbone.model is model  # type: ignore[attr-defined]
    assert tokenizer is None
    assert open_network(network) == (network, None)
    assert isinstance(network, Network)


def test_dtypes(bert: Path) -> None:
    assert open_network(bert, dtype="bfloat16")[0].dtype == torch.bfloat16
    assert open_network(bert, dtype=torch.float64)[0].dtype == torch.float64
    assert open_network(bert, dtype="auto")[0].dtype == torch.float32
    assert open_network(REPLAYING["bert"].build(), dtype="float32")[0].dtype == torch.float32


@pytest.mark.parametrize("dtype", ["float99", "int64", "nn", torch.int64])
def test_a_dtype_that_is_none(bert: Path, dtype: Any) -> None:
    assert "unknown dtype" in complaint(bert, dtype=dtype)


def test_places(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_network(bert, device="cpu")[0].device == torch.device("cpu")
    assert "nowhere" in complaint(bert, device="nowhere")
    assert "one of them" in complaint(bert, device="cpu", device_map="auto")
    monkeypatch.setattr("tabes.models.loading.find_spec", lambda name: None)
    assert "accelerate" in complaint(bert, device_map="auto")


def test_the_tokenizer_comes_along(broken: Path, words: Any, tmp_path: Path) -> None:
    words.save_pretrained(broken)
    _, tokenizer = open_network(broken)
    assert tokenizer is not None
    assert tokenizer.mask_token_id == words.mask_token_id
    assert open_tokenizer(broken).get_vocab() == words.get_vocab()
    (broken / "tokenizer.json").write_text("{")
    assert "tokenizer" in complaint(broken)


def test_folders_that_are_no_checkpoints(broken: Path, tmp_path: Path) -> None:
    assert "no folder" in complaint(tmp_path / "nothing" / "here")
    assert "is a file" in complaint(broken / WEIGHTS)
    (broken / "config.json").write_text("{")
    assert "not a valid JSON" in complaint(broken)
    (broken / "config.json").unlink()
    assert "no config.json" in complaint(broken)


@pytest.mark.parametrize("name", ["nobody/nothing", "no such name", ""])
def test_names_that_are_nowhere(name: str) -> None:
    complaint(name)


def test_a_missing_weight_file(broken: Path) -> None:
    (broken / WEIGHTS).unlink()
    assert WEIGHTS in complaint(broken)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_weight_file(broken: Path, part: float) -> None:
    size = (broken / WEIGHTS).stat().st_size
    os.truncate(broken / WEIGHTS, int(part * size))
    assert "could not be loaded" in complaint(broken)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_damaged_weights(broken: Path, value: float) -> None:
    key = "bert.embeddings.word_embeddings.weight"  # a row that the tiny run at load time never reads
    change_weights(broken, lambda weights: weights[key][V - 1, E - 1].fill_(value))
    assert key in complaint(broken)


def test_missing_weights_are_an_error(broken: Path) -> None:
    def drop_head(weights: dict[str, torch.Tensor]) -> None:
        for key in [key for key in weights if key.startswith("cls.")]:
            del weights[key]

    change_weights(broken, drop_head)
    text = complaint(broken)
    assert "lacks weights of BertForMaskedLM: cls.predictions" in text
    assert "more would be random" in text


def test_a_config_of_another_shape(broken: Path) -> None:
    change_config(broken, num_hidden_layers=4)
    assert "layer.3" in complaint(broken)
    change_config(broken, num_hidden_layers=3, intermediate_size=48)
    assert "shape (40,)" in complaint(broken)
    change_config(broken, intermediate_size=40, vocab_size=V + 5)
    assert "shape" in complaint(broken)


@pytest.mark.parametrize("architecture", ["BertModel", "BertForSequenceClassification", "", None])
def test_no_head(broken: Path, architecture: str | None) -> None:
    change_config(broken, architectures=None if architecture is None else [architecture])
    assert "no masked-language-model head" in complaint(broken)


def test_an_unknown_family(broken: Path) -> None:
    change_config(broken, model_type="nonesuch")
    assert "nonesuch" in complaint(broken)


def test_decoders_that_read_left_to_right(broken: Path, tmp_path: Path) -> None:
    change_config(broken, is_decoder=True)
    assert "left to right" in complaint(broken)
    model = REPLAYING["llama"].build(torch.float32)
    model.config.is_causal = True
    assert "config.is_causal = False" in complaint(model)
    model.save_pretrained(tmp_path / "llama")
    assert "config.is_causal = False" in complaint(tmp_path / "llama")
    change_config(tmp_path / "llama", is_causal=False)
    assert open_network(tmp_path / "llama")[0].replays


def test_objects_that_cannot_be_decoded() -> None:
    small = {"vocab_size": 20, "num_heads": 2, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_layers": 1}
    assert "encoder-decoder" in complaint(transformers.T5ForConditionalGeneration(transformers.T5Config(**small)))
    assert "no vocabulary head" in complaint(REPLAYING["bert"].build().bert)
    for nothing in (3, None, torch.nn.Linear(2, 2)):
        assert "hub name, a folder or a transformers model" in complaint(nothing)


def test_embeddings_and_head_must_agree() -> None:
    model = REPLAYING["bert"].build()
    model.cls.predictions.decoder = torch.nn.Linear(E, V - 1, dtype=torch.float64)
    assert f"embeds {V} tokens but its head scores {V - 1}" in complaint(model)


def test_the_kinds_of_error_are_ours() -> None:
    with pytest.raises(UsageError):
        open_network(REPLAYING["bert"].build(), dtype="float99")
    with pytest.raises(ModelError):
        open_network(REPLAYING["bert"].build().bert)
