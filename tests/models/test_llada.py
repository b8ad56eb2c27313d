"""LLaDA against its architecture written down plainly: bfloat16, sizes, and what a config may not ask for."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

import tabes
from tabes.errors import ModelError
from tabes.models.loading import open_network
from tests.decoders import DECODERS, GOLDEN, Decoder

FOLDER = GOLDEN / "llada"


@cache
def weights(dtype: torch.dtype) -> dict[str, Tensor]:
    return {key: weight.to(dtype) for key, weight in load_file(FOLDER / "model.safetensors").items()}


def plain(tokens_BL: Tensor, dtype: torch.dtype, turned: torch.dtype) -> Tensor:
    """Logits (B, L, V) in `dtype` by the published names, queries and keys turned in `turned` and cast back."""
    w = weights(dtype)
    root = "model.transformer."
    x = functional.embedding(tokens_BL, w[f"{root}wte.weight"])
    frequencies = 1 / 5e5 ** (torch.arange(0, 16, 2).float() / 16)
    angles = torch.outer(torch.arange(tokens_BL.shape[1]).float(), frequencies)
    cos, sin = (part.repeat(1, 2).to(turned) for part in (angles.cos(), angles.sin()))

    def norm(x: Tensor, name: str) -> Tensor:
        exact = x.float()
        return w[name] * (exact * (exact.square().mean(-1, keepdim=True) + 1e-5).rsqrt()).to(dtype)

    def turn(x: Tensor) -> Tensor:
        heads = x.unflatten(-1, (4, 16)).transpose(1, 2).to(turned)
        first, second = heads.chunk(2, -1)
        return (heads * cos + torch.cat([-second, first], -1) * sin).to(dtype)

    for n in range(2):
        block = f"{root}blocks.{n}."
        read = norm(x, f"{block}attn_norm.weight")
        q, k, v = (functional.linear(read, w[f"{block}{part}_proj.weight"]) for part in "qkv")
        heads = functional.scaled_dot_product_attention(turn(q), turn(k), v.unflatten(-1, (4, 16)).transpose(1, 2))
        x = x + functional.linear(heads.transpose(1, 2).flatten(2), w[f"{block}attn_out.weight"])
        read = norm(x, f"{block}ff_norm.weight")
        gate, up = (functional.linear(read, w[f"{block}{part}_proj.weight"]) for part in ("ff", "up"))
        x = x + functional.linear(functional.silu(gate) * up, w[f"{block}ff_out.weight"])
    return functional.linear(norm(x, f"{root}ln_f.weight"), w[f"{root}ff_out.weight"])


def ours(dtype: torch.dtype, tokens_BL: Tensor) -> Tensor:
    network, _ = open_network(FOLDER, dtype=dtype)
    positions_BL = torch.arange(tokens_BL.shape[1]).expand_as(tokens_BL)
    hidden_BLd, _ = network.forward(tokens_BL, positions_BL=positions_BL, padding_BL=None)
    return network.head(hidden_BLd.flatten(0, 1)).unflatten(0, tokens_BL.shape)


def tokens() -> Tensor:
    """Long enough that angles have many digits."""
    return torch.randint(0, 150, (2, 200), generator=torch.Generator().manual_seed(1))


def test_the_plain_reference_is_what_was_recorded() -> None:
    io = load_file(FOLDER / "io.safetensors")
    found = plain(io["input_ids"], torch.float32, torch.float32)
    torch.testing.assert_close(found, io["logits_no_attention_mask"], rtol=0, atol=1e-4)


def test_bfloat16_turns_queries_and_keys_in_float32() -> None:
    found = ours(torch.bfloat16, tokens()).float()
    exact = plain(tokens(), torch.bfloat16, torch.float32).float()
    coarse = plain(tokens(), torch.bfloat16, torch.bfloat16).float()
    near, far = ((found - other).abs().mean() for other in (exact, coarse))
    assert near < 0.003
    assert far > 10 * near
    assert (exact - coarse).abs().max() > 0.2


def test_a_config_that_does_without_float32_gets_that(tmp_path: Path) -> None:
    folder = changed(tmp_path, rope_full_precision=False)
    network, _ = open_network(folder, dtype="bfloat16")
    hidden_BLd, _ = network.forward(tokens(), positions_BL=torch.arange(200).expand(2, 200), padding_BL=None)
    found = network.head(hidden_BLd.flatten(0, 1)).unflatten(0, (2, 200)).float()
    near, far = (
        (found - plain(tokens(), torch.bfloat16, turned).float()).abs().mean()
        for turned in (torch.bfloat16, torch.float32)
    )
    assert near < 0.01
    assert far > 10 * near


def test_what_is_remembered_is_in_the_dtype_of_the_weights() -> None:
    network, _ = open_network(FOLDER, dtype="bfloat16")
    positions_BL = torch.arange(200).expand(2, 200)
    hidden_BLd, memory = network.forward(tokens(), positions_BL=positions_BL, padding_BL=None, remember=True)
    assert memory is not None
    assert {part.dtype for layer in memory.layers for part in (layer.key, layer.value)} == {torch.bfloat16}
    rows_BR = torch.tensor([[3, 170, 9], [199, 0, 7]])
    again_BRd, _ = network.replay(memory, rows_BR)
    scale = hidden_BLd.float().std()
    error = (again_BRd - hidden_BLd.take_along_dim(rows_BR[..., None], 1)).float().square().mean().sqrt()
    assert error < 0.02 * scale


def test_sampling_steered_in_bfloat16() -> None:
    model = tabes.load(FOLDER, dtype="bfloat16")
    for sampler in ("boe", "lookahead", "confidence"):
        output = tabes.generate(model, input_ids=[[3, 4, 5]], max_new_tokens=6, sampler=sampler, seed=0)
        assert model.mask_id not in output.sequences


# --- Sizes -----------------------------------------------------------------------------------------------------------


def changed(folder: Path, **changes: Any) -> Path:
    """The golden checkpoint with another config."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "gone"}))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"n_kv_heads": None},
        {"n_kv_heads": "gone", "multi_query_attention": False},
        {"mlp_hidden_size": None, "mlp_ratio": 3},
        {"embedding_size": None},
        {"vocab_size": 155},
        {"flash_attention": True, "flash_attn_varlen": True},
        {"rope_full_precision": "gone", "include_qkv_bias": "gone", "alibi": "gone", "clip_qkv": None},
        {"init_device": "cuda", "precision": "fp32", "attention_dropout": 0.1},
    ],
)
def test_other_ways_to_say_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    network, _ = open_network(changed(tmp_path, **changes))
    io = load_file(FOLDER / "io.safetensors")
    tokens_BL = io["input_ids"]
    hidden_BLd, _ = network.forward(tokens_BL, positions_BL=torch.arange(24).expand(2, 24), padding_BL=None)
    found = network.head(hidden_BLd.flatten(0, 1)).view(2, 24, 160)
    torch.testing.assert_close(found, io["logits_no_attention_mask"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_grouped_heads(key_heads: int, tmp_path: Path) -> None:
    decoder = Decoder("llada", {"key_heads": key_heads})
    decoder.save(tmp_path)
    network, _ = open_network(tmp_path)
    hidden_BLd, _ = network.forward(tokens()[:1, :30] % 60, positions_BL=torch.arange(30)[None], padding_BL=None)
    expected = decoder.build().eval()(tokens()[:1, :30] % 60).logits[0]
    torch.testing.assert_close(network.head(hidden_BLd[0]), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_type", "sequential"),
        ("activation_type", "swiglu"),
        ("layer_norm_type", "default"),
        ("layer_norm_with_affine", False),
        ("block_group_size", 2),
        ("rope", False),
        ("alibi", True),
        ("include_bias", True),
        ("include_qkv_bias", True),
        ("bias_for_layer_norm", True),
        ("attention_layer_norm", True),
        ("input_emb_norm", True),
        ("scale_logits", True),
        ("weight_tying", True),
        ("clip_qkv", 8.0),
        ("multi_query_attention", True),
    ],
)
def test_what_a_llama_does_not_compute_is_refused(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=rf"has {name} {value!r}; only .* can be loaded"):
        open_network(changed(tmp_path, **{name: value}))
    with pytest.raises(ModelError, match="rope_full_precision 'yes'; it must be true or false"):
        open_network(changed(tmp_path, **{name: DECODERS["llada"].config.get(name), "rope_full_precision": "yes"}))


# --- Its relatives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llada2_moe", "architectures": ["LLaDA2MoeModelLM"], "num_experts": 256},
        {"model_type": "llada", "architectures": ["LLaDAMoEModelLM"], "num_experts": 64, "hidden_size": 2048},
    ],
)
def test_mixtures_of_experts_are_refused_in_a_sentence(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoConfig": "configuration.X"}}))
    with pytest.raises(ModelError) as caught:
        tabes.load(tmp_path)
    assert "mixture of experts" in str(caught.value)
    assert config["model_type"] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_end_of_a_turn_is_known_to_whoever_brings_the_tokenizer(tmp_path: Path, words: Any) -> None:
    DECODERS["llada"].save(tmp_path)
    tokenizer = deepcopy(words)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eot_id|>"]})
    added = tokenizer.convert_tokens_to_ids("<|eot_id|>")
    assert tabes.load(tmp_path).eos_ids == (2,)
    assert set(tabes.load(tmp_path, tokenizer=tokenizer, mask_token_id=5).eos_ids) == {64, 2, added}
