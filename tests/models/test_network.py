"""What a network is made of: the head, positions, costs, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tabes.errors import ModelError
from tabes.models import Network, Work, cards
from tabes.models.opening import network_of
from tabes.models.transformer import TransformerNetwork
from tests.dit import EVERY
from tests.tiny import DENSE, FAMILIES, REFUSED, REPLAYING, Canvas, E, Family, V, full, ragged

pytestmark = pytest.mark.filterwarnings("ignore::tabes.models.dense.DenseReplayWarning")


def forward(network: Any, canvas: Canvas, **options: Any) -> Any:
    return network.forward(canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=canvas.padding_BL, **options)


@pytest.mark.parametrize("name", [*EVERY, *REFUSED])
def test_the_two_halves_are_the_whole_model(name: str) -> None:
    family = {**EVERY, **REFUSED}[name]
    canvas = full(11, [[0], [1]])
    expected = family.build().eval()(input_ids=canvas.tokens_BL).logits
    network = family.network()
    hidden_BLd, memory = forward(network, canvas)
    assert memory is None
    assert not hidden_BLd.requires_grad
    logits_NV = network.head(hidden_BLd.flatten(0, 1))
    torch.testing.assert_close(logits_NV.view_as(expected), expected, rtol=0, atol=family.tolerance)
    some_NV = network.head(hidden_BLd[:, 3])
    torch.testing.assert_close(some_NV, expected[:, 3], rtol=0, atol=family.tolerance)
    assert network.head(hidden_BLd[0, :0]).shape == (0, V)


@pytest.mark.parametrize("name", EVERY)
def test_embeddings_give_what_their_tokens_give(name: str) -> None:
    network, canvas = EVERY[name].network(), ragged()
    expected, _ = forward(network, canvas)
    embeddings_BLE = network.embed(canvas.tokens_BL)
    assert embeddings_BLE.shape[-1] == network.embedding_weight().shape[1]
    hidden, _ = network.forward(
        None, positions_BL=canvas.positions_BL, padding_BL=canvas.padding_BL, embeddings_BLE=embeddings_BLE
    )
    content = ~canvas.padding_BL
    assert torch.equal(hidden[content], expected[content])


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_network_says_of_itself(name: str) -> None:
    family = FAMILIES[name]
    network = family.network()
    assert isinstance(network, Network)
    assert network.replays == network.work.saves == (name in REPLAYING)
    assert (network.vocab_size, network.hidden_size) == (V, E)
    assert network.max_length == 64 - family.start
    assert network.embedding_weight().shape[0] == V
    assert network.dtype == torch.float64
    assert network.device == torch.device("cpu")
    assert not any(parameter.requires_grad for parameter in network.backbone.model.parameters())
    assert not network.backbone.model.training


@pytest.mark.parametrize("name", ["bert", "roberta", "distilbert", "llama", "mpnet"])
def test_the_longest_canvas_runs(name: str) -> None:
    network = FAMILIES[name].network()
    hidden, _ = forward(network, full(network.max_length or 0, [[0]]))
    assert torch.isfinite(hidden).all()


def flops(work: Any) -> float:
    # The flash kernels count as nothing, and a leaf inside the counter raises in torch 2.13.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        work()
    return float(counter.get_total_flops())


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert", "modernbert", "albert", "electra", "distilbert"])
def test_work_is_what_torch_counts(name: str) -> None:
    network, canvas = REPLAYING[name].network(), full(24, [[1, 5, 20, 7, 9, 13]])
    work = network.work
    hidden_BLd, memory = forward(network, canvas, remember=True)
    assert flops(lambda: forward(network, canvas)) == pytest.approx(work.layers(24, 24), rel=0.02)
    assert flops(lambda: network.head(hidden_BLd[0])) == pytest.approx(24 * work.head, rel=1e-6)
    assert flops(lambda: network.replay(memory, canvas.rows_BR)) == pytest.approx(work.replay(6, 24), rel=0.02)
    leaf = network.embed(canvas.tokens_BL[:, :6]).requires_grad_()

    def both() -> None:
        hidden, _ = network.replay(memory, canvas.rows_BR, embeddings_BRE=leaf * 1)
        torch.autograd.grad(hidden.sum(), leaf)

    assert flops(both) == pytest.approx(work.replay(6, 24) + work.backward(6, 24), rel=0.05)


@pytest.mark.parametrize("name", ["mpnet", "megatron-bert", "roformer", "rembert"])
def test_a_dense_replay_costs_the_whole_canvas(name: str) -> None:
    network, canvas = DENSE[name].network(), full(24, [[1, 5]])
    _, memory = forward(network, canvas, remember=True)
    counted = flops(lambda: network.replay(memory, canvas.rows_BR))
    assert counted == pytest.approx(network.work.replay(2, 24), rel=0.05)
    assert network.work.replay(2, 24) == network.work.layers(24, 24)


def test_work_adds_up() -> None:
    work = Work(linear=100.0, attention=3.0, head=7.0)
    assert work.layers(2, 10) == 2 * 100 + 3 * 2 * 10
    assert work.replay(2, 10) == work.layers(2, 10)
    assert work.backward(2, 10) == 2 * 100 + 2 * 3 * 2 * 10
    dense = Work(linear=100.0, attention=3.0, head=7.0, saves=False)
    assert dense.replay(2, 10) == dense.layers(10, 10)
    assert dense.backward(2, 10) == work.backward(10, 10)


_HALF = [(name, torch.bfloat16) for name in REFUSED if name != "fnet"]  # torch has no Fourier transform in half


@pytest.mark.parametrize(("name", "dtype"), [*((name, torch.float64) for name in REFUSED), *_HALF])
def test_what_cannot_be_replayed_still_runs_and_says_why(name: str, dtype: torch.dtype) -> None:
    network, canvas = REFUSED[name].network(dtype), full(9, [[2, 1]])
    hidden, _ = forward(network, canvas)
    assert torch.isfinite(hidden).all()
    assert not network.replays
    with pytest.raises(ModelError, match=r"cannot replay rows because .*"):
        forward(network, canvas, remember=True)


def test_token_dropout_refuses_embeddings() -> None:
    network, canvas = REFUSED["esm with token dropout"].network(), full(9, [[2, 1]])
    embeddings = network.embed(canvas.tokens_BL)
    with pytest.raises(ModelError, match="cannot run from embeddings"):
        network.forward(None, positions_BL=canvas.positions_BL, padding_BL=None, embeddings_BLE=embeddings)


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_a_model_opened_twice(name: str) -> None:
    network, canvas = FAMILIES[name].network(), ragged()
    again: TransformerNetwork = network_of(network.backbone.model, "again")
    assert type(again) is type(network)
    results = []
    for opened in (network, again):
        _, memory = forward(opened, canvas, remember=True)
        assert memory is not None and len(memory.layers) == 3
        results.append(opened.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR)[0])
    assert torch.equal(*results)


def test_positions_are_found_in_half_precision() -> None:
    for name, family in REPLAYING.items():
        network = family.network(torch.bfloat16)
        assert network.backbone.offset == family.start, name


def test_nan_is_noticed() -> None:
    for part in ("bert.encoder.layer.1.output.dense.weight", "cls.predictions.decoder.weight"):
        model = REPLAYING["bert"].build()
        model.get_parameter(part).data.fill_(float("nan"))
        with pytest.raises(ModelError, match="NaN or infinite"):
            network_of(model, "broken")


def test_cards_tell_the_truth() -> None:
    open_ended = [card for card in cards() if not (card.model_types or card.keys)]
    listed = {one.name: one.replays for card in open_ended for one in card.architectures}
    tested = {**dict.fromkeys(REPLAYING, "rows"), **dict.fromkeys(DENSE, "dense"), **dict.fromkeys(REFUSED, "no")}
    for name, kind in tested.items():
        family: Family = {**FAMILIES, **REFUSED}[name]
        if kind == "no" and family.model in {f.model for f in FAMILIES.values()}:
            continue  # a variant of a family that can
        assert listed[family.model] == kind, family.model
    assert set(listed) == {family.model for family in {**FAMILIES, **REFUSED}.values()}
