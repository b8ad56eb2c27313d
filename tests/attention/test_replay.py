"""Replays against a dense reference, in float64: every family, ragged batches, padding, values and gradients."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from tabes.attention import Plain, registered, using
from tabes.errors import ModelError, UsageError
from tabes.models.dense import DenseReplayWarning
from tests.dit import EVERY
from tests.tiny import DENSE, REPLAYING, Canvas, Family, Reference, V, full, ragged

pytestmark = pytest.mark.filterwarnings("ignore::tabes.models.dense.DenseReplayWarning")


def remembered(network: Any, canvas: Canvas) -> tuple[Tensor, Any]:
    with torch.no_grad():
        return network.forward(
            canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=canvas.padding_BL, remember=True
        )


def new_embeddings(network: Any, canvas: Canvas) -> Tensor:
    """Neither the remembered ones nor those of any token."""
    embeddings_BRE = network.embed(canvas.tokens_BL.gather(1, canvas.rows_BR))
    return embeddings_BRE + 0.3 * torch.randn(embeddings_BRE.shape, dtype=embeddings_BRE.dtype)


def references(family: Family, canvas: Canvas) -> list[tuple[Reference, list[int], list[int]]]:
    """Per batch row: the reference of its content alone, its active rows there, and the slots they have."""
    found = []
    for b in range(len(canvas.tokens_BL)):
        padding_L = torch.zeros_like(canvas.tokens_BL[b]).bool() if canvas.padding_BL is None else canvas.padding_BL[b]
        first = int((~padding_L).nonzero()[0])
        valid_R = torch.ones_like(canvas.rows_BR[b]).bool() if canvas.valid_BR is None else canvas.valid_BR[b]
        slots = valid_R.nonzero().flatten().tolist()
        rows = (canvas.rows_BR[b, slots] - first).tolist()
        found.append((Reference(family, canvas.tokens_BL[b, ~padding_L]), rows, slots))
    return found


@pytest.mark.parametrize("name", EVERY)
def test_values_and_gradients_are_those_of_the_dense_reference(name: str) -> None:
    family, canvas = EVERY[name], ragged()
    network = family.network()
    torch.manual_seed(0)
    _, memory = remembered(network, canvas)
    embeddings_BRE = new_embeddings(network, canvas).requires_grad_()
    hidden_BRd, _ = network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR, embeddings_BRE=embeddings_BRE)
    weights_BRd = torch.randn_like(hidden_BRd) * canvas.valid_BR[..., None]
    (gradient_BRE,) = torch.autograd.grad((hidden_BRd * weights_BRd).sum(), embeddings_BRE)
    assert not gradient_BRE[~canvas.valid_BR].any()
    for b, (reference, rows, slots) in enumerate(references(family, canvas)):
        embeddings_RE = embeddings_BRE[b, slots].detach().requires_grad_()
        expected_Rd = reference.replay(rows, embeddings_RE)
        (expected_RE,) = torch.autograd.grad((expected_Rd * weights_BRd[b, slots]).sum(), embeddings_RE)
        torch.testing.assert_close(hidden_BRd[b, slots], expected_Rd, rtol=0, atol=family.tolerance)
        scale = float(expected_RE.abs().max())
        assert scale > 1e-3
        torch.testing.assert_close(gradient_BRE[b, slots], expected_RE, rtol=0, atol=family.tolerance * max(scale, 1))


@pytest.mark.parametrize("name", EVERY)
def test_chained_replays_are_chained_references(name: str) -> None:
    family, canvas = EVERY[name], ragged()
    network = family.network()
    _, memory = remembered(network, canvas)
    valid = {"valid_BR": canvas.valid_BR}
    first_BRE, second_BSE = new_embeddings(network, canvas), new_embeddings(network, canvas)[:, :2]
    _, memory = network.replay(memory, canvas.rows_BR, embeddings_BRE=first_BRE, remember=True, **valid)
    # Two valid rows each: one that was replayed before, and one that was not.
    rows_BS = torch.stack([canvas.rows_BR[:, 0], torch.tensor([3, 6, 7])], 1)
    hidden_BSd, _ = network.replay(memory, rows_BS, embeddings_BRE=second_BSE)
    for b, (reference, rows, slots) in enumerate(references(family, canvas)):
        reference.replay(rows, first_BRE[b, slots])
        shift = int(canvas.rows_BR[b, slots[0]]) - rows[0]
        expected_Sd = reference.replay((rows_BS[b] - shift).tolist(), second_BSE[b])
        torch.testing.assert_close(hidden_BSd[b], expected_Sd, rtol=0, atol=family.tolerance)


@pytest.mark.parametrize("name", EVERY)
def test_replaying_every_row_is_a_forward_of_the_changed_tokens(name: str) -> None:
    family, canvas = EVERY[name], ragged()
    network = family.network()
    _, memory = remembered(network, canvas)
    changed_BL = torch.where(canvas.padding_BL, canvas.tokens_BL, (canvas.tokens_BL * 7 + 3) % (V - 6) + 6)
    every_BL = torch.arange(13).expand(3, 13)
    hidden_BLd, _ = network.replay(memory, every_BL, valid_BR=~canvas.padding_BL, tokens_BR=changed_BL)
    expected_BLd, _ = network.forward(changed_BL, positions_BL=canvas.positions_BL, padding_BL=canvas.padding_BL)
    content = ~canvas.padding_BL
    torch.testing.assert_close(hidden_BLd[content], expected_BLd[content], rtol=0, atol=family.tolerance)


@pytest.mark.parametrize("name", EVERY)
def test_replaying_what_did_not_change_gives_what_was_remembered(name: str) -> None:
    family, canvas = EVERY[name], ragged()
    network = family.network()
    hidden_BLd, memory = remembered(network, canvas)
    again_BRd, updated = network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR, remember=True)
    expected_BRd = hidden_BLd.take_along_dim(canvas.rows_BR[..., None], 1)
    torch.testing.assert_close(again_BRd[canvas.valid_BR], expected_BRd[canvas.valid_BR], rtol=0, atol=family.tolerance)
    assert updated is not None
    assert torch.equal(updated.tokens_BL, canvas.tokens_BL)


@pytest.mark.parametrize("name", EVERY)
def test_a_padded_row_is_the_row_alone(name: str) -> None:
    family, canvas = EVERY[name], ragged()
    hidden_BLd, _ = remembered(family.network(), canvas)
    for b, (reference, _, _) in enumerate(references(family, canvas)):
        assert canvas.padding_BL is not None
        torch.testing.assert_close(
            hidden_BLd[b, ~canvas.padding_BL[b]], reference.hidden_Ld, rtol=0, atol=family.tolerance
        )


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert", "modernbert", "mpnet", "mdlm-timed"])
def test_the_gradient_is_that_of_detached_attention_outputs(name: str) -> None:
    """The paper's ActiveQueryAttention: one dense forward in which inactive rows' attention outputs are detached."""
    family, rows = EVERY[name], [2, 11, 5]
    canvas = full(12, [rows])
    network = family.network()
    _, memory = remembered(network, canvas)
    embeddings_BRE = network.embed(canvas.tokens_BL[:, rows]).requires_grad_()
    hidden_BRd, _ = network.replay(memory, canvas.rows_BR, embeddings_BRE=embeddings_BRE)
    (gradient_BRE,) = torch.autograd.grad(hidden_BRd.square().sum(), embeddings_BRE)
    reference = Reference(family, canvas.tokens_BL[0])
    embeddings_LE = reference.embeddings_LE.clone().requires_grad_()
    (gradient_LE,) = torch.autograd.grad(reference.detached(rows, embeddings_LE)[rows].square().sum(), embeddings_LE)
    torch.testing.assert_close(gradient_BRE[0], gradient_LE[rows], rtol=1e-9, atol=10 * family.tolerance)


@pytest.mark.parametrize(
    "name",
    ["llama-grouped", "modernbert", "albert", "roberta", "deberta-v2", "roformer", "llada", "dream", "mdlm", "sedd"],
)
@pytest.mark.parametrize(
    ("length", "rows"), [(1, [[0]]), (2, [[1], [0]]), (7, [[6, 0, 3], [1, 2, 5]]), (33, [[32, 1, 17, 16, 8]])]
)
def test_odd_sizes(name: str, length: int, rows: list[list[int]]) -> None:
    family, canvas = EVERY[name], full(length, rows)
    network = family.network()
    _, memory = remembered(network, canvas)
    embeddings_BRE = new_embeddings(network, canvas)
    with torch.no_grad():
        hidden_BRd, _ = network.replay(memory, canvas.rows_BR, embeddings_BRE=embeddings_BRE)
    for b, (reference, active, _) in enumerate(references(family, canvas)):
        expected_Rd = reference.replay(active, embeddings_BRE[b])
        torch.testing.assert_close(hidden_BRd[b], expected_Rd, rtol=0, atol=family.tolerance)


@pytest.mark.parametrize(
    "name", ["llama", "qwen2-grouped", "bert", "modernbert", "deberta-v2", "llada", "dream", "mdlm-timed"]
)
def test_bfloat16_is_close_to_float32(name: str) -> None:
    canvas, results = ragged(), []
    for dtype in (torch.float32, torch.bfloat16):
        network = EVERY[name].network(dtype)
        _, memory = remembered(network, canvas)
        tokens_BR = canvas.tokens_BL.gather(1, canvas.rows_BR).flip(1)
        hidden_BRd, _ = network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR, tokens_BR=tokens_BR)
        assert hidden_BRd.dtype == dtype
        results.append(hidden_BRd[canvas.valid_BR].float())
    error = (results[0] - results[1]).square().mean().sqrt() / results[0].std()
    assert error < 0.06


@pytest.mark.parametrize("name", ["qwen2-grouped", "modernbert", "mpnet", "sedd"])
def test_a_replay_changes_no_memory(name: str) -> None:
    network, canvas = EVERY[name].network(), ragged()
    _, memory = remembered(network, canvas)
    before = [[part.clone() for part in layer if part is not None] for layer in memory.layers]
    first, _ = network.replay(memory, canvas.rows_BR, embeddings_BRE=new_embeddings(network, canvas), remember=True)
    picked = memory.select(torch.tensor([2, 0, 0]))
    network.replay(picked, canvas.rows_BR, embeddings_BRE=new_embeddings(network, canvas), remember=True)
    after = [[part for part in layer if part is not None] for layer in memory.layers]
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(old, new, strict=True))
    assert not any(part.requires_grad for layer in after for part in layer)
    assert first.shape == (3, 6, network.hidden_size)


@pytest.mark.parametrize("name", ["bert", "modernbert", "roformer", "sedd"])
def test_memory_of_a_forward_with_gradient_is_constant(name: str) -> None:
    network, canvas = EVERY[name].network(), ragged()
    embeddings_BLE = network.embed(canvas.tokens_BL).requires_grad_()
    hidden_BLd, memory = network.forward(
        None,
        positions_BL=canvas.positions_BL,
        padding_BL=canvas.padding_BL,
        embeddings_BLE=embeddings_BLE,
        remember=True,
    )
    assert hidden_BLd.requires_grad
    assert memory is not None and memory.tokens_BL is None
    assert not any(part.requires_grad for layer in memory.layers for part in layer if part is not None)
    with pytest.raises(UsageError, match="neither tokens nor embeddings"):
        network.replay(memory, canvas.rows_BR)


def test_no_rows_are_no_work() -> None:
    network, canvas = REPLAYING["bert"].network(), ragged()
    _, memory = remembered(network, canvas)
    hidden, updated = network.replay(memory, torch.zeros(3, 0, dtype=torch.int64), remember=True)
    assert hidden.shape == (3, 0, network.hidden_size)
    assert updated is memory


def test_without_a_tape_the_model_is_what_it_was() -> None:
    canvas = ragged()
    inputs = {"input_ids": canvas.tokens_BL, "attention_mask": (~canvas.padding_BL).long()}
    for name in ("llama", "qwen2-grouped", "bert", "modernbert"):
        before = REPLAYING[name].build().eval()
        after = REPLAYING[name].network().backbone.model
        assert after.config._attn_implementation == "tabes"
        assert torch.equal(before(**inputs).logits, after(**inputs).logits)


def test_what_a_replay_does_not_know_is_refused() -> None:
    rows = torch.zeros(1, 1, 2, 4)
    for unknown in ({"softcap": 30.0}, {"s_aux": torch.zeros(1)}, {"position_bias": torch.zeros(1, 1, 2, 2)}):
        with using(Plain()), pytest.raises(ModelError, match=next(iter(unknown))):
            registered.attention(torch.nn.Identity(), rows, rows, rows, None, **unknown)


def test_threads_do_not_see_each_others_tapes() -> None:
    network, canvas = REPLAYING["bert"].network(), ragged()
    hidden_BLd, memory = remembered(network, canvas)
    logits_NV = network.head(hidden_BLd.flatten(0, 1))
    wrong: list[str] = []

    def replay() -> None:
        for _ in range(20):
            again_BRd, _ = network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR)
            expected_BRd = hidden_BLd.take_along_dim(canvas.rows_BR[..., None], 1)
            if not torch.allclose(again_BRd[canvas.valid_BR], expected_BRd[canvas.valid_BR], atol=1e-9):
                wrong.append("replay")

    def forward() -> None:
        for _ in range(20):
            again_BLd, _ = remembered(network, canvas)
            if not torch.equal(again_BLd, hidden_BLd):
                wrong.append("forward")
            if not torch.equal(network.head(hidden_BLd.flatten(0, 1)), logits_NV):
                wrong.append("head")

    threads = [threading.Thread(target=work) for work in (replay, forward, forward)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.filterwarnings("error")
def test_the_user_is_told_once_that_replays_save_nothing() -> None:
    network, canvas = DENSE["mpnet"].network(), ragged()
    _, memory = remembered(network, canvas)
    with pytest.warns(DenseReplayWarning, match="registry"):
        network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.replay(memory, canvas.rows_BR, valid_BR=canvas.valid_BR)
