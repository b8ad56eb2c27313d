"""LLaDA and Dream, what they share: golden logits and gradients, published folders, places, and everything that can be
wrong with a checkpoint."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import tabes
from tabes import Canvas
from tabes.errors import TabesError
from tabes.models.families import hub
from tabes.models.loading import open_network
from tests.decoders import CONFIG, DECODERS, GOLDEN, Decoder
from tests.walkthrough import DREAM, LLADA, dream_folder, llada_folder

KINDS = ("llada", "dream")
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


@cache
def recorded(kind: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / kind / "io.safetensors")


@cache
def golden(kind: str) -> tabes.Denoiser:
    return tabes.load(GOLDEN / kind)


def run(network: Any, io: dict[str, Tensor], *, padded: bool, embeddings_BLE: Tensor | None = None) -> Tensor:
    """Logits (B, L, V), positions counted from the left edge as in what was recorded."""
    tokens_BL = io["input_ids"]
    hidden_BLd, _ = network.forward(
        tokens_BL if embeddings_BLE is None else None,
        positions_BL=torch.arange(tokens_BL.shape[1]).expand_as(tokens_BL),
        padding_BL=io["attention_mask"] == 0 if padded else None,
        embeddings_BLE=embeddings_BLE,
    )
    return network.head(hidden_BLd.flatten(0, 1)).unflatten(0, tokens_BL.shape)  # type: ignore[no-any-return]


def before(x_BL: Tensor, kind: str) -> Tensor:
    """What is read off the row before, where the model is shifted."""
    return torch.cat([x_BL[:, :1], x_BL[:, :-1]], 1) if kind == "dream" else x_BL


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_recorded_ones(kind: str) -> None:
    io, network = recorded(kind), golden(kind).network
    torch.testing.assert_close(run(network, io, padded=False), io["logits_no_attention_mask"], rtol=0, atol=1e-4)
    content = io["attention_mask"] == 1
    assert not content.all()
    torch.testing.assert_close(run(network, io, padded=True)[content], io["logits"][content], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hidden", ["full", "no_mask_token"])
def test_gradients_of_the_entropy_are_the_recorded_ones(kind: str, hidden: str) -> None:
    io, network = recorded(kind), golden(kind).network
    mask_id = int(io["mask_token_id"])
    embeddings_BLE = network.embed(io["input_ids"]).requires_grad_()
    logits_BLV = before(run(network, io, padded=True, embeddings_BLE=embeddings_BLE), kind)
    if hidden == "no_mask_token":
        logits_BLV = logits_BLV.index_fill(2, torch.tensor([mask_id]), -1e30)
    p_BLV = logits_BLV.log_softmax(-1)
    entropy_BL = -(p_BLV.exp() * p_BLV).sum(-1) * (io["input_ids"] == mask_id)
    torch.testing.assert_close(entropy_BL, io[f"entropy_{hidden}"], rtol=0, atol=1e-4)
    (found_BLE,) = torch.autograd.grad(entropy_BL.sum(), embeddings_BLE)
    wanted_BLE = io[f"grad_entropy_{hidden}"]
    assert float((found_BLE - wanted_BLE).norm() / wanted_BLE.norm()) < 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_denoiser_says_what_was_recorded(kind: str) -> None:
    """Rows are positions, whatever the shift; positions count from the content, which turns all heads alike."""
    io, model = recorded(kind), golden(kind)
    canvas = Canvas.create(io["input_ids"], mask_id=model.mask_id, attention_mask=io["attention_mask"])
    prediction = model.predict(canvas, canvas.masked_BL)
    wanted_NV = before(io["logits"], kind)[canvas.masked_BL]
    wanted_NV[:, model.mask_id] = -torch.inf
    torch.testing.assert_close(prediction.logits_NV().softmax(-1), wanted_NV.softmax(-1), rtol=0, atol=1e-4)
    wanted_BL = io["entropy_no_mask_token"]
    found_BL = prediction.entropy_BL
    torch.testing.assert_close(found_BL[canvas.masked_BL], wanted_BL[canvas.masked_BL], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_rotary_frequencies_are_right_after_a_load_without_them(kind: str) -> None:
    network: Any = golden(kind).network
    found, theta = network.backbone.base.rotary_emb.inv_freq, {"llada": 5e5, "dream": 1e6}[kind]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, theta ** (-torch.arange(0, 16, 2) / 16), rtol=1e-6, atol=0)
    assert (float(found[0]), float(found[1])) == (1.0, pytest.approx(theta ** (-2 / 16)))
    assert not any(part.is_meta for part in network.backbone.model.buffers())


@pytest.mark.parametrize("kind", KINDS)
def test_ids_come_from_the_config(kind: str) -> None:
    config = json.loads((GOLDEN / kind / "config.json").read_text())
    model = golden(kind)
    assert model.mask_id == config["mask_token_id"] == int(recorded(kind)["mask_token_id"])
    assert model.eos_ids == (config["eos_token_id"],)
    assert model.pad_id == config["pad_token_id"]
    assert model.network.shifted == (kind == "dream")
    assert not model.network.timed


@pytest.mark.parametrize("kind", KINDS)
def test_the_card_speaks_where_config_and_tokenizer_are_silent(kind: str, tmp_path: Path) -> None:
    """In the published vocabulary only: ids of another mean something else, or nothing."""
    published = {"llada": LLADA, "dream": DREAM}[kind]
    silent: dict[str, Any] = dict.fromkeys(("mask_token_id", "eos_token_id", "pad_token_id", "bos_token_id"))
    small = {"width": 16, "layers": 1, "heads": 2, "key_heads": 2, "mlp": 16}
    Decoder(kind, {**small, "vocab": published.size("vocab")}).save(tmp_path, torch.bfloat16)
    change_config(tmp_path, **silent)
    model = tabes.load(tmp_path)
    assert (model.mask_id, model.pad_id) == (published.ids["mask"], published.ids["end"])
    assert model.eos_ids == {"llada": (126081, 126348), "dream": (151643, 151645)}[kind]
    Decoder(kind, {**small, "vocab": 200}).save(tmp_path, torch.bfloat16)
    change_config(tmp_path, **silent)
    assert "no mask token" in complaint(tmp_path)


# --- A folder as it is published -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=KINDS)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make = {"llada": llada_folder, "dream": dream_folder}[request.param]
    folder = tmp_path_factory.mktemp("published") / request.param
    folder.mkdir()
    return make(folder)


def test_a_published_folder_works_the_first_time(published: Path) -> None:
    kind = published.name
    decoder = {"llada": LLADA, "dream": DREAM}[kind]
    assert len(list(published.glob("model-*.safetensors"))) > 3
    model = tabes.load(published)
    assert model.network.replays
    assert model.network.dtype == torch.bfloat16
    assert model.network.max_length == decoder.size("length")
    assert len(model.network.backbone.base.layers) == {"llada": 32, "dream": 28}[kind]  # type: ignore[attr-defined]
    assert model.mask_id == decoder.ids["mask"]
    assert model.pad_id == decoder.ids["end"]
    assert model.eos_ids == {"llada": (126081, 126348), "dream": (151643, 151645)}[kind]
    tokenizer = model.tokenizer
    assert tokenizer is not None
    assert tokenizer.mask_token == {"llada": "<|mdm_mask|>", "dream": "<|mask|>"}[kind]
    text = f"Olá, {tokenizer.mask_token} world"
    assert tokenizer.encode(text).count(model.mask_id) == 1
    assert tokenizer.decode(tokenizer.encode("Olá world")) == "Olá world"


def test_the_command_line_on_a_published_folder(published: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tabes.cli import main

    capfd.readouterr()
    arguments = ["generate", "-m", str(published), "-p", "Hello", "-n", "16", "--num-steps", "8", "--json"]
    assert main(arguments) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    answer = json.loads(captured.out)
    assert answer["steps"] == 8
    assert len(answer["sequences"][0]) == 5 + 16
    assert not {LLADA.ids["mask"], DREAM.ids["mask"]} & set(answer["sequences"][0])


def test_remote_code_is_never_run(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor asked for: the published folders name some, and the files here raise."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    assert "auto_map" in json.loads((published / "config.json").read_text())
    tabes.load(published)


# --- Where it goes ---------------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A small checkpoint in float32, three shards."""
    DECODERS[request.param].save(tmp_path / request.param, torch.float32, shards=3)
    return tmp_path / request.param


def logits(network: Any) -> Tensor:
    tokens_BL = torch.arange(6, 20)[None]
    hidden_BLd, _ = network.forward(tokens_BL, positions_BL=torch.arange(14)[None], padding_BL=None)
    return network.head(hidden_BLd[0])  # type: ignore[no-any-return]


def expected(folder: Path) -> Tensor:
    with torch.no_grad():
        return DECODERS[folder.name].build(torch.float32).eval()(torch.arange(6, 20)[None]).logits[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_dtypes(folder: Path, dtype: str) -> None:
    network, _ = open_network(folder, dtype=dtype)
    assert network.dtype == network.embedding_weight().dtype == getattr(torch, dtype)
    assert logits(network).dtype == network.dtype
    assert open_network(folder)[0].dtype == torch.float32


@pytest.mark.parametrize("place", ["cpu", "auto", "balanced", "balanced_low_0", "sequential", {"": "cpu"}])
def test_device_maps_of_one_device(folder: Path, place: Any) -> None:
    pytest.importorskip("accelerate")
    network, _ = open_network(folder, device_map=place)
    assert network.device == torch.device("cpu")
    torch.testing.assert_close(logits(network), expected(folder), rtol=0, atol=1e-5)


def test_what_stays_on_disk_is_read_when_it_is_needed(folder: Path) -> None:
    pytest.importorskip("accelerate")
    parts = ["model.embed_tokens", "model.layers.0", "model.layers.2", "model.norm", "model.rotary_emb"]
    places = {**dict.fromkeys(parts, "cpu"), "model.layers.1": "disk", "lm_head": "disk"}
    network: Any
    network, _ = open_network(folder, device_map=places)
    assert next(network.backbone.base.layers[1].parameters()).is_meta
    torch.testing.assert_close(logits(network), expected(folder), rtol=0, atol=1e-5)
    tokens_BL = torch.arange(6, 20)[None]
    _, memory = network.forward(tokens_BL, positions_BL=torch.arange(14)[None], padding_BL=None, remember=True)
    embeddings_BRE = network.embed(tokens_BL[:, 3:6]).requires_grad_()
    hidden_BRd, _ = network.replay(memory, torch.tensor([[3, 4, 5]]), embeddings_BRE=embeddings_BRE)
    torch.testing.assert_close(network.head(hidden_BRd[0]), expected(folder)[3:6], rtol=0, atol=1e-4)
    (gradient_BRE,) = torch.autograd.grad(hidden_BRd.sum(), embeddings_BRE)
    assert gradient_BRE.norm() > 0.1


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ({"": "disk"}, "give model.embed_tokens a device"),
        ({"model.layers": "cpu", "lm_head": "cpu"}, "no place for model.embed_tokens.weight"),
        ({"": "cpu", "model.layers.1": "disk"}, "'model.layers.1' inside ''"),
        ({"model": "nowhere", "lm_head": "cpu"}, "device 'nowhere'"),
        ("nowhere", "device 'nowhere'"),
    ],
)
def test_device_maps_that_cannot_be(folder: Path, places: Any, words: str) -> None:
    pytest.importorskip("accelerate")
    assert words in complaint(folder, device_map=places)


# --- What can be wrong -----------------------------------------------------------------------------------------------


def complaint(folder: Path | str, **options: Any) -> str:
    """The one sentence, from `tabes.load` as a user gets it."""
    with pytest.raises(TabesError) as caught:
        tabes.load(folder, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def change_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "gone"}))


def change_shard(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    path = sorted(folder.glob("model-*.safetensors"))[0]
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


def test_a_missing_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()
    text = complaint(folder)
    assert "lacks the file model-00002-of-00003.safetensors" in text
    assert INDEX in text


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_shard(folder: Path, part: float) -> None:
    path = folder / "model-00002-of-00003.safetensors"
    os.truncate(path, int(part * path.stat().st_size))
    assert path.name in complaint(folder)


def test_weights_that_are_missing_or_left_over(folder: Path) -> None:
    config = DECODERS[folder.name]
    head = config.published("lm_head.weight")

    def drop(weights: dict[str, Tensor]) -> None:
        for key in list(weights):
            if key != head:
                del weights[key]

    change_shard(folder, drop)
    text = complaint(folder)
    assert "lacks weights its config asks for" in text
    assert config.published("model.embed_tokens.weight") in text or "more" in text
    config.save(folder, torch.float32, shards=3)
    change_shard(folder, lambda weights: weights.update({"model.layers.3.extra.weight": torch.ones(2)}))
    assert "does not ask for: model.layers.3.extra.weight" in complaint(folder)


def test_a_llama_under_the_name_of_llada(tmp_path: Path) -> None:
    DECODERS["llada"].save(tmp_path, torch.float32)
    save_file(DECODERS["llada"].weights(torch.float32), tmp_path / SINGLE, metadata={"format": "pt"})
    assert "lacks weights its config asks for: model.transformer.wte.weight" in complaint(tmp_path)


def test_quantised_and_damaged_weights(folder: Path) -> None:
    key = DECODERS[folder.name].published("lm_head.weight")
    path = next(p for p in folder.glob("model-*.safetensors") if key in load_file(p))
    whole = load_file(path)
    for broken, words in ((whole[key].to(torch.int8), "no floats"), (whole[key] / 0, "NaN or infinite")):
        save_file({**whole, key: broken.contiguous()}, path, metadata={"format": "pt"})
        text = complaint(folder)
        assert words in text
        assert key in text


@pytest.mark.parametrize("size", ["width", "layers", "heads", "key_heads", "mlp", "vocab", "length"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "large", True])
def test_sizes_that_are_none(folder: Path, size: str, value: Any) -> None:
    name = CONFIG[size][folder.name == "dream"]
    if size == "vocab" and folder.name == "llada":
        name = "embedding_size"
    change_config(folder, **{name: value})
    text = complaint(folder)
    assert name in text
    assert "positive integer" in text


@pytest.mark.parametrize(
    ("size", "value"), [("width", 48), ("layers", 4), ("layers", 2), ("key_heads", 4), ("mlp", 48)]
)
def test_sizes_that_contradict_the_weights(folder: Path, size: str, value: int) -> None:
    change_config(folder, **{CONFIG[size][folder.name == "dream"]: value})
    text = complaint(folder)
    assert "where its config asks for" in text or "its config asks for:" in text or "does not ask for:" in text


def test_heads_must_fit(folder: Path) -> None:
    heads, keys = (CONFIG[name][folder.name == "dream"] for name in ("heads", "key_heads"))
    change_config(folder, **{heads: 3})
    assert f"{heads} 3; a width of 32" in complaint(folder)
    change_config(folder, **{heads: 4, keys: 3})
    assert f"{keys} 3; it must divide the 4 heads" in complaint(folder)


@pytest.mark.parametrize("name", ["mask_token_id", "eos_token_id", "pad_token_id"])
@pytest.mark.parametrize("value", [60, -1, "two", 1.5, True])
def test_ids_outside_the_vocabulary(folder: Path, name: str, value: Any) -> None:
    change_config(folder, **{name: value})
    assert f"{name} {value!r}; it must be an id of its vocabulary (0 to 59)" in complaint(folder)


def test_no_mask_anywhere(folder: Path) -> None:
    change_config(folder, mask_token_id=None)
    assert "no mask token in its tokenizer or config; pass mask_token_id=" in complaint(folder)
    assert tabes.load(folder, mask_token_id=7).mask_id == 7


@pytest.mark.parametrize("name", ["rms_norm_eps", "rope_theta"])
@pytest.mark.parametrize("value", [0, -1.0, "small", None, True])
def test_numbers_that_are_none(folder: Path, name: str, value: Any) -> None:
    change_config(folder, **{name: value})
    assert f"{name} {value!r}; it must be a positive number" in complaint(folder)


def test_a_folder_of_another_family(tmp_path: Path) -> None:
    """Either's config over the other's weights."""
    for config, weights in (("llada", "dream"), ("dream", "llada")):
        DECODERS[weights].save(tmp_path / config, torch.float32)
        shutil.copy(GOLDEN / config / "config.json", tmp_path / config / "config.json")
        text = complaint(tmp_path / config)
        assert "config" in text
        assert "ask" in text


def test_families_with_code_of_their_own(folder: Path) -> None:
    change_config(folder, model_type="sdar")
    text = complaint(folder)
    assert "family 'sdar'" in text
    assert "trust_remote_code" not in text


def test_an_old_transformers_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.__version__", "5.1.0")
    text = complaint(folder)
    assert "5.1.0" in text
    assert "pip install 'transformers>=5.2'" in text


def test_a_damaged_tokenizer(published: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(published, tmp_path / "copy"))
    (folder / {"llada": "tokenizer.json", "dream": "vocab.json"}[published.name]).write_text("{")
    assert "tokenizer" in complaint(folder)


# --- Names of the hub ------------------------------------------------------------------------------------------------


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    text = complaint("GSAI-ML/LLaDA-8B-Instruct")
    assert "GSAI-ML/LLaDA-8B-Instruct is no folder here, is not in the cache, and the hub cannot be asked" in text
    assert "offline mode" in text
    assert "./LLaDA-8B-Instruct" in text


def test_no_name_of_the_hub() -> None:
    text = complaint("my model: the best")
    assert "no name of the hub (owner/model)" in text
    assert "give the folder" in text


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("GatedRepoError", "terms"),
        ("RepositoryNotFoundError", "the hub has no model owner/model"),
        ("RevisionNotFoundError", "no revision 'v9'"),
        ("RemoteEntryNotFoundError", "no config.json"),
    ],
)
def test_what_the_hub_answers(error: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import errors

    def fetch(*_: Any, **__: Any) -> str:
        kind = getattr(errors, error)
        raise kind.__new__(kind, "Several sentences. With advice.")

    monkeypatch.setattr(hub, "hf_hub_download", fetch)
    assert words in complaint("owner/model", revision="v9")


def test_a_name_in_the_cache_needs_no_network(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache as the hub's own library lays it out."""
    root = tmp_path / "cache" / "models--owner--model"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0" * 40)
    shutil.copytree(folder, root / "snapshots" / ("0" * 40))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for module in ("huggingface_hub.file_download", "transformers.utils.hub"):
        if hasattr(__import__("importlib").import_module(module), "HF_HUB_CACHE"):
            monkeypatch.setattr(f"{module}.HF_HUB_CACHE", str(tmp_path / "cache"))
    network, _ = open_network("owner/model")
    torch.testing.assert_close(logits(network), expected(folder), rtol=0, atol=1e-5)
    (root / "snapshots" / ("0" * 40) / "model-00002-of-00003.safetensors").unlink()
    assert "lacks the file model-00002-of-00003.safetensors" in complaint("owner/model")
