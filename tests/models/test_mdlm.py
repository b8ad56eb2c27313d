"""MDLM: the golden checkpoints, time, precision, and what a user does with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.attention import Memory
from tabes.errors import ModelError, UsageError
from tabes.models import Network
from tabes.models.families import Checkpoint, family_of, mdlm, sedd
from tabes.models.families.dit import DiT, Sizes
from tabes.models.families.dit_network import Ids
from tests.dit import MDLM_CONFIG, OURS, SEDD_CONFIG
from tests.models.published import MDLM_OWT, MDLM_TIMED, SEDD_ABSORB, Golden, logits_of
from tests.steering.scenes import filled, steered
from tests.tiny import E, V, full, ragged


@pytest.mark.parametrize("golden", [MDLM_OWT, MDLM_TIMED], ids=lambda golden: golden.name)
def test_golden(golden: Golden) -> None:
    logits, entropy, gradient = golden.differences(golden.network())
    assert logits < 1e-4
    assert entropy < 1e-4
    assert gradient < 1e-3


def test_what_the_network_says_of_itself() -> None:
    network = MDLM_OWT.network()
    assert isinstance(network, Network)
    assert (network.vocab_size, network.hidden_size, network.max_length) == (160, 64, 64)
    assert (network.timed, network.shifted, network.replays) == (False, False, True)
    assert MDLM_TIMED.network().timed
    assert network.config == Ids(mask_token_id=MDLM_OWT.mask_id)
    assert Ids.of(50258) == Ids(mask_token_id=50257, eos_token_id=50256)


@pytest.mark.parametrize(
    ("width", "blocks", "heads", "millions"), [(768, 12, 12, 90), (1024, 24, 16, 320)], ids=["small", "medium"]
)
def test_the_published_sizes(width: int, blocks: int, heads: int, millions: float) -> None:
    """Of the SEDD paper, which leaves the vocabulary out; the hub counts 169.6 million for all of mdlm-owt."""
    with torch.device("meta"):
        model = DiT(Sizes(50258, width, 128, blocks, heads, 1024), torch.bfloat16)
    total = sum(part.numel() for part in model.parameters())
    assert (total - 2 * 50258 * width) / 1e6 == pytest.approx(millions, rel=0.03)
    if width == 768:
        assert total / 1e6 == pytest.approx(169.6, abs=0.05)


def test_only_its_own_config_is_recognised() -> None:
    assert family_of(MDLM_CONFIG) is mdlm
    assert family_of(SEDD_CONFIG) is sedd
    for other in ({}, {"model_type": "bert"}, {**SEDD_CONFIG, "model_type": "bert"}, {"tokens": 5}):
        assert not mdlm.recognises(other)
        assert not sedd.recognises(other)


def test_the_wrong_family(tmp_path: Path) -> None:
    """The weights of one with the config of the other."""
    for of_weights, of_config in ((MDLM_OWT, SEDD_ABSORB), (SEDD_ABSORB, MDLM_OWT)):
        folder = tmp_path / of_weights.name
        shutil.copytree(of_weights.folder, folder)
        shutil.copy(of_config.folder / "config.json", folder / "config.json")
        with pytest.raises(ModelError, match="lacks weights its config asks for"):
            tabes.load(folder)


def test_time_is_told_where_it_matters() -> None:
    tokens_BL = MDLM_OWT.recorded["input_ids"]
    plain, timed = MDLM_OWT.network(), MDLM_TIMED.network()
    early, late = torch.tensor([0.9, 0.2]), torch.tensor([0.9, 0.7])
    assert torch.equal(logits_of(plain, tokens_BL, early), logits_of(plain, tokens_BL))
    found, other = logits_of(timed, tokens_BL, early), logits_of(timed, tokens_BL, late)
    torch.testing.assert_close(found[0], other[0], rtol=0, atol=1e-5)
    assert float((found[1] - other[1]).abs().max()) > 0.1
    with pytest.raises(UsageError, match="conditioned on time"):
        logits_of(timed, tokens_BL)


@pytest.mark.parametrize("kind", ["mdlm-timed", "sedd"])
def test_replays_are_told_what_was_remembered_or_another_time(kind: str) -> None:
    network, canvas = OURS[kind].network(), ragged()
    times_B, others_B = torch.tensor([0.2, 0.5, 0.9]), torch.tensor([0.6, 0.3, 0.8])

    def forward(time_B: Tensor) -> tuple[Tensor, Memory]:
        places = {"positions_BL": canvas.positions_BL, "padding_BL": canvas.padding_BL}
        hidden_BLd, memory = network.forward(canvas.tokens_BL, **places, time_B=time_B, remember=True)
        return hidden_BLd.take_along_dim(canvas.rows_BR[..., None], 1), memory

    def replay(memory: Memory) -> Tensor:
        return network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR)[0]

    assert canvas.valid_BR is not None
    valid_BR = canvas.valid_BR
    expected_BRd, memory = forward(times_B)
    torch.testing.assert_close(replay(memory)[valid_BR], expected_BRd[valid_BR])
    pick = torch.tensor([2, 0, 0])
    picked_BRd, _ = network.replay(memory.select(pick), canvas.rows_BR[pick], valid_BR=valid_BR[pick])
    torch.testing.assert_close(picked_BRd[valid_BR[pick]], expected_BRd[pick][valid_BR[pick]])
    every_BL = torch.arange(13).expand(3, 13)
    padding_BL = canvas.padding_BL
    assert padding_BL is not None
    later_BLd, _ = network.replay(memory.with_time(others_B), every_BL, valid_BR=~padding_BL)
    found_BRd = later_BLd.take_along_dim(canvas.rows_BR[..., None], 1)
    torch.testing.assert_close(found_BRd[valid_BR], forward(others_B)[0][valid_BR])


@pytest.mark.parametrize(("golden", "calls"), [(MDLM_OWT, 2), (MDLM_TIMED, 3), (SEDD_ABSORB, 3)], ids=str)
def test_boe_makes_its_second_forward_only_where_time_is_real(golden: Golden, calls: int) -> None:
    model = tabes.load(golden.folder)
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=model.mask_id, max_new_tokens=5)
    tokens_BL, steps = filled(model, canvas, steered("boe"))
    assert not bool((tokens_BL == model.mask_id).any())
    assert [step.cost.forward_calls for step in steps] == [calls] * 4 + [1]
    assert steps[0].cost.forward_tokens == 8 * (calls - 1) + 5
    assert sum(step.cost.fallbacks for step in steps) == 0


WRAPPERS: dict[str, Any] = {
    "plain": lambda model: model,
    "guidance": lambda model: Guidance(model, 0.7),
    "cache": lambda model: RowCache(model, 2),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["confidence", "boe", "lookahead", "boe-verify", "p2", "draft", "mdlm", "sedd-euler"])
@pytest.mark.parametrize("golden", [MDLM_OWT, MDLM_TIMED, SEDD_ABSORB], ids=lambda golden: golden.name)
def test_a_batch_row_is_the_row_alone(golden: Golden, name: str, wrapper: str) -> None:
    model = tabes.load(golden.folder, dtype="float64")
    ids, padding = torch.tensor([[9, 9, 9, 7, 8], [3, model.mask_id, 14, 15, 30]]), [[0, 0, 0, 1, 1], [1] * 5]
    canvas = Canvas.create(ids, mask_id=model.mask_id, attention_mask=torch.tensor(padding), max_new_tokens=6)
    options = {"reviser": "verify"} if name == "draft" else {"num_steps": 6}
    rule = tabes.sampler("confidence" if name == "draft" else name, **options)  # type: ignore[arg-type]

    def final(canvas: Canvas, seed: int) -> Tensor:
        return list(tabes.decode(WRAPPERS[wrapper](model), canvas, rule, seed=seed))[-1].canvas.tokens_BL

    together_BL = final(canvas, 3)
    for row in range(2):
        content_L = ~canvas.padding_BL[row]
        single = canvas.select(torch.tensor([row])).map(lambda value_BL, content_L=content_L: value_BL[:, content_L])
        assert final(single, 3 + row)[0].equal(together_BL[row][content_L])


def test_shadows_read_every_row_but_their_own() -> None:
    """Against one forward of canvas and shadows together under a written-out mask."""
    for kind, family in OURS.items():
        network, canvas = family.network(), full(9, [[8, 0, 4]])
        rows, L, R = canvas.rows_BR[0], 9, 3
        _, memory = network.forward(canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=None, remember=True)
        shadows_BR = torch.full((1, R), 5)
        found_BRd, _ = network.replay(memory, canvas.rows_BR, tokens_BR=shadows_BR, beside=True)
        reads = torch.ones(L + R, L + R, dtype=torch.bool)
        reads[:L, L:] = False
        reads[L + torch.arange(R), rows] = False
        model = family.build().requires_grad_(False)
        both_BL = torch.cat([canvas.tokens_BL, shadows_BR], 1)
        places = torch.cat([torch.arange(L), rows])[None]
        (hidden_BLd,) = model.backbone(
            inputs_embeds=model.backbone.vocab_embed(both_BL), position_ids=places, reads=reads
        )
        torch.testing.assert_close(found_BRd, hidden_BLd[:, L:], rtol=0, atol=1e-11, msg=kind)


def test_work_is_what_torch_counts() -> None:
    """All but the modulation: one product per batch row, however long it is."""
    network, canvas = OURS["mdlm"].network(), full(24, [[1, 5, 20, 7, 9, 13]])
    modulation = 3 * 2 * 12 * 6 * E + 2 * 12 * 2 * E + 2 * 12 * (256 + 12)
    places: dict[str, Any] = {"positions_BL": canvas.positions_BL, "padding_BL": None}
    hidden_BLd, memory = network.forward(canvas.tokens_BL, **places, remember=True)

    def flops(work: Any) -> float:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            work()
        return float(counter.get_total_flops())

    forward = flops(lambda: network.forward(canvas.tokens_BL, **places))
    assert forward - modulation == pytest.approx(network.work.layers(24, 24), rel=1e-6)
    replay = flops(lambda: network.replay(memory, canvas.rows_BR))
    assert replay - modulation == pytest.approx(network.work.replay(6, 24), rel=1e-6)
    assert flops(lambda: network.head(hidden_BLd[0])) == pytest.approx(24 * network.work.head, rel=1e-6)


def test_what_is_remembered_is_keys_and_values_alone() -> None:
    """A view into the product of all three would keep three times as much."""
    network, canvas = OURS["mdlm"].network(), full(24, [[1]])
    _, memory = network.forward(canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=None, remember=True)
    for layer in memory.layers:
        for part in (layer.key, layer.value):
            assert part.untyped_storage().nbytes() == 24 * E * 8


def test_half_precision_keeps_what_the_reference_keeps() -> None:
    """Norms, the noise's embedding and what goes from block to block are in float32; products are not."""
    family, canvas = OURS["mdlm-timed"], full(40, [[0], [1], [2]])
    network, seen = family.network(torch.bfloat16), dict[str, torch.dtype]()
    for name, module in network.model.named_modules():
        module.register_forward_hook(lambda module, _, output, name=name: seen.update({name: output.dtype}))
    hidden_BLd, memory = network.forward(
        canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=None, remember=True
    )
    for name in ("noise", "blocks.0", "blocks.1", "blocks.0.norm1", "blocks.2.norm2", "norm"):
        assert seen[name] == torch.float32, name
    for name in ("blocks.0.modulation", "blocks.0.attn_qkv", "blocks.0.attn_out", "blocks.1.mlp", ""):
        assert seen[name] == torch.bfloat16, name
    assert memory.layers[0].key.dtype == memory.layers[0].value.dtype == network.dtype == torch.bfloat16
    rounded = family.build(torch.bfloat16).requires_grad_(False).to(torch.float64)
    (expected_BLd,) = rounded.backbone(inputs_embeds=rounded.backbone.vocab_embed(canvas.tokens_BL))
    error = float((hidden_BLd.double() - expected_BLd).square().mean().sqrt() / expected_BLd.std())
    assert error < 0.02


def gpt2_like(size: int) -> Any:
    """A tokenizer of `size` words that knows an end but no mask, as GPT-2's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {f"w{i}": i for i in range(size - 1)} | {"<|endoftext|>": size - 1}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


@pytest.mark.parametrize("golden", [MDLM_OWT, SEDD_ABSORB], ids=lambda golden: golden.name)
def test_from_a_prompt_to_text(golden: Golden) -> None:
    tokenizer = gpt2_like(golden.mask_id)
    model = tabes.load(golden.folder, tokenizer=tokenizer)
    assert (model.mask_id, model.eos_ids, model.pad_id) == (golden.mask_id, (golden.mask_id - 1,), None)
    assert tokenizer.mask_token is None, "the caller's own tokenizer stays as it was"
    output = tabes.generate(model, ["w3 w4", "w5 w6 w7 w8"], max_new_tokens=4, sampler="confidence", num_steps=4)
    assert output.texts is not None
    assert all(len(text.split()) == 4 for text in output.texts)
    assert output.sequences[:, -6:-4].tolist() == [[3, 4], [7, 8]]
    filled_in = tabes.generate(model, "w3 [MASK] w5", sampler="confidence", num_steps=1)
    assert filled_in.sequences.shape == (1, 3)
    assert filled_in.sequences[0, [0, 2]].tolist() == [3, 5]
    assert golden.mask_id not in filled_in.sequences


def test_the_usual_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real checkpoints come without one; where the hub has GPT-2's it is taken, and elsewhere nothing is lost."""
    weights = OURS["mdlm"].tensors(torch.float32)
    for key in ("vocab_embed.embedding", "output_layer.linear.weight"):
        weights[f"backbone.{key}"] = torch.zeros(50258, E)
    weights["backbone.output_layer.linear.bias"] = torch.zeros(50258)
    save_file(weights, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({**MDLM_CONFIG, "vocab_size": 50258}))
    model = tabes.load(tmp_path)
    assert (model.mask_id, model.eos_ids, model.pad_id, model.tokenizer) == (50257, (50256,), None, None)
    asked: list[str] = []

    def open_tokenizer(name: str, **options: Any) -> Any:
        asked.append(name)
        return gpt2_like(50257)

    monkeypatch.setattr("tabes.models.loading.open_tokenizer", open_tokenizer)
    model = tabes.load(tmp_path)
    assert asked == ["openai-community/gpt2"]
    assert model.tokenizer is not None
    assert model.tokenizer.mask_token_id == model.mask_id == 50257
    assert model.eos_ids == (50256,)


def test_a_tokenizer_that_cannot_write_the_mask_does_not_crash() -> None:
    """Its ids end before the mask's, with a gap: nothing is taught, and masks vanish from the text."""
    model = tabes.load(MDLM_OWT.folder, tokenizer=gpt2_like(100))
    assert model.tokenizer is not None
    assert model.tokenizer.mask_token is None
    assert model.tokenizer.decode([3, model.mask_id, 4]) == "w3 w4"
    output = tabes.generate(model, "w3", max_new_tokens=3, sampler="confidence", num_steps=3, stop="w999")
    assert output.texts is not None


def test_a_canvas_that_is_too_long() -> None:
    model = tabes.load(MDLM_OWT.folder)
    canvas = Canvas.create(torch.zeros(1, 60, dtype=torch.int64), mask_id=model.mask_id, max_new_tokens=5)
    with pytest.raises(UsageError, match=r"65 tokens long .* takes at most 64"):
        next(tabes.decode(model, canvas, tabes.sampler("confidence")))


def test_places() -> None:
    checkpoint = Checkpoint.find(str(MDLM_OWT.folder))
    assert checkpoint is not None
    for device_map in ("auto", "cpu", {"": "cpu"}, {"backbone": torch.device("cpu"), "": torch.device("cpu")}):
        network = mdlm.open(checkpoint, dtype=None, device=None, device_map=device_map)
        assert network.device.type in ("cpu", "cuda")
    with pytest.raises(UsageError, match=r"spreads .* over 2 places"):
        mdlm.open(checkpoint, dtype=None, device=None, device_map={"a": "cpu", "b": "meta"})
    with pytest.raises(UsageError, match="device 'nowhere'"):
        MDLM_OWT.network(device="nowhere")


def test_extra_keys_of_the_config_do_not_matter(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(MDLM_OWT.folder, tmp_path / "copy"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"something": "new", "torch_dtype": "bfloat16"}))
    assert tabes.load(folder).network.vocab_size == 160
    assert MDLM_CONFIG["vocab_size"] == V
