"""Shadow rows against an ordinary forward of canvas and shadows under a 4-D mask, in float64, by transformers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tabes import Denoiser, Guidance, RowCache
from tabes import canvas as canvases
from tabes.attention import Beside, Layer, Memory, Slots, using
from tabes.attention.tape import current
from tabes.errors import CombinationError, ModelError, UsageError
from tests.attention.test_replay import remembered
from tests.shadows import dense
from tests.tiny import DENSE, REPLAYING, Canvas, Family, full, ragged

MASK = 5


def per_batch_row(canvas: Canvas) -> Iterator[tuple[Tensor, list[int], list[int]]]:
    """The content of every batch row, its active rows there, and the slots they have."""
    for b in range(len(canvas.tokens_BL)):
        padding_L = torch.zeros(canvas.tokens_BL.shape[1]).bool() if canvas.padding_BL is None else canvas.padding_BL[b]
        valid_R = torch.ones(canvas.rows_BR.shape[1]).bool() if canvas.valid_BR is None else canvas.valid_BR[b]
        slots = valid_R.nonzero().flatten().tolist()
        first = int((~padding_L).nonzero()[0])
        yield canvas.tokens_BL[b, ~padding_L], (canvas.rows_BR[b, slots] - first).tolist(), slots


def beside(network: Any, memory: Any, canvas: Canvas, shadows_BR: Tensor) -> Tensor:
    with torch.no_grad():
        hidden_BRd, nothing = network.replay(
            memory, canvas.rows_BR, valid_BR=canvas.valid_BR, tokens_BR=shadows_BR, beside=True
        )
    assert nothing is None
    return hidden_BRd


@pytest.mark.parametrize("name", REPLAYING)
@pytest.mark.parametrize("shape", ["ragged", "full"])
def test_shadows_are_those_of_one_dense_forward(name: str, shape: str) -> None:
    canvas = ragged() if shape == "ragged" else full(12, [[11, 0, 4], [2, 3, 9]])
    network = REPLAYING[name].network()
    hidden_BLd, memory = remembered(network, canvas)
    shadows_BR = torch.full_like(canvas.rows_BR, MASK)
    shadows_BR[:, 1] = 17  # any token may stand in the shadow
    shadow_BRd = beside(network, memory, canvas, shadows_BR)
    for b, (tokens_L, rows, slots) in enumerate(per_batch_row(canvas)):
        canvas_Ld, expected_Rd = dense(name, tokens_L, rows, shadows_BR[b, slots])
        tolerance = REPLAYING[name].tolerance
        torch.testing.assert_close(shadow_BRd[b, slots], expected_Rd, rtol=0, atol=tolerance)
        content_L = slice(None) if canvas.padding_BL is None else ~canvas.padding_BL[b]
        torch.testing.assert_close(hidden_BLd[b, content_L], canvas_Ld, rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["bert", "modernbert", "llama-grouped"])
def test_what_stands_in_the_own_row_does_not_matter(name: str) -> None:
    """In one layer's attention; deeper down other rows have read it. So with one shadow of a canvas of one row."""
    network = REPLAYING[name].network()
    found = []
    for token in (7, 31):
        canvas = replace(full(1, [[0]]), tokens_BL=torch.tensor([[token]]))
        _, memory = remembered(network, canvas)
        found.append(beside(network, memory, canvas, torch.tensor([[MASK]])))
    assert torch.equal(*found)
    masked, _ = remembered(network, replace(full(1, [[0]]), tokens_BL=torch.tensor([[MASK]])))
    torch.testing.assert_close(found[0], masked, rtol=0, atol=REPLAYING[name].tolerance)


@pytest.mark.parametrize("name", ["qwen2-grouped", "modernbert", "roberta"])
def test_of_selected_batch_rows(name: str) -> None:
    canvas = ragged()
    network = REPLAYING[name].network()
    _, memory = remembered(network, canvas)
    shadows_BR = torch.full_like(canvas.rows_BR, MASK)
    every_BRd = beside(network, memory, canvas, shadows_BR)
    pick = torch.tensor([2, 0, 2, 1])
    picked = replace(canvas, rows_BR=canvas.rows_BR[pick], valid_BR=canvas.valid_BR[pick])
    some_BRd = beside(network, memory.select(pick), picked, shadows_BR[pick])
    torch.testing.assert_close(some_BRd[picked.valid_BR], every_BRd[pick][picked.valid_BR], rtol=0, atol=1e-9)


def test_a_row_with_nothing_valid_leaves_no_nan() -> None:
    """Its slots stand where nothing but padding is read."""
    canvas = ragged()
    valid_BR = canvas.valid_BR.clone()
    valid_BR[1] = False
    rows_BR = canvas.rows_BR.clone()
    rows_BR[1] = torch.arange(6)
    canvas = replace(canvas, valid_BR=valid_BR, rows_BR=rows_BR)
    network = REPLAYING["modernbert"].network()
    _, memory = remembered(network, canvas)
    shadows_BR = torch.full_like(canvas.rows_BR, MASK)
    found = beside(network, memory, canvas, shadows_BR)
    assert not bool(found.isnan().any())


@pytest.mark.parametrize("name", ["bert", "modernbert"])  # Llama's norm rounds to float32, too coarse for differences
def test_gradients_reach_the_shadows(name: str) -> None:
    torch.manual_seed(1)
    network, canvas = REPLAYING[name].network(), ragged()
    _, memory = remembered(network, canvas)
    embeddings = network.embed(torch.full_like(canvas.rows_BR, MASK)).requires_grad_()
    arguments: dict[str, Any] = {"valid_BR": canvas.valid_BR, "beside": True}

    def summed(embeddings_BRE: Tensor) -> Tensor:
        hidden_BRd, _ = network.replay(memory, canvas.rows_BR, embeddings_BRE=embeddings_BRE, **arguments)
        return (hidden_BRd.square() * canvas.valid_BR[..., None]).sum()

    (gradient,) = torch.autograd.grad(summed(embeddings), embeddings)
    assert not gradient[~canvas.valid_BR].any()
    along = torch.randn_like(embeddings) * canvas.valid_BR[..., None]
    with torch.no_grad():
        difference = (summed(embeddings + 1e-5 * along) - summed(embeddings - 1e-5 * along)) / 2e-5
    torch.testing.assert_close((gradient * along).sum(), difference, rtol=1e-3, atol=1e-4)


def denoiser(family: Family) -> Denoiser:
    return Denoiser(family.network(), None, MASK, name="tiny")


def canvas_of(tokens: list[list[int]], padding: list[list[int]] | None = None) -> canvases.Canvas:
    attention = None if padding is None else 1 - torch.tensor(padding)
    return canvases.Canvas.create(torch.tensor(tokens), mask_id=MASK, attention_mask=attention, max_new_tokens=3)


@pytest.mark.parametrize("name", ["qwen2-grouped", "modernbert"])
def test_through_the_denoiser(name: str) -> None:
    """Masks stand in the shadows, only the rows asked for are read, and the cost is that of the shadows."""
    model = denoiser(REPLAYING[name])
    canvas = canvas_of([[1, 1, 9, 8, 7, 11], [6, 7, 8, 9, 10, 12]], [[1, 1, 0, 0, 0, 0], [0] * 6])
    rows_BL = torch.zeros_like(canvas.padding_BL)
    rows_BL[0, [3, 5]] = True
    rows_BL[1, [0, 2, 4]] = True
    read_BL = rows_BL.clone()
    read_BL[1, 0] = False
    memory = model.predict(canvas, canvas.masked_BL, remember=True).memory
    calls, tokens, flops = model.ledger.forward_calls, model.ledger.forward_tokens, model.ledger.flops
    found = model.replay(memory, rows_BL, read_BL=read_BL, beside=True)
    assert (model.ledger.forward_calls - calls, model.ledger.forward_tokens - tokens) == (1, 2 * 3)
    assert model.ledger.flops - flops == 2 * model.network.work.layers(3, 9 + 3)
    assert found.rows_BL.equal(read_BL)
    assert not found.remembered
    expected = []
    for b, first in ((0, 2), (1, 0)):
        rows = (rows_BL[b].nonzero().flatten() - first).tolist()
        _, hidden_Rd = dense(name, canvas.tokens_BL[b, first:], rows, torch.full((len(rows),), MASK))
        expected.append(model.network.head(hidden_Rd[read_BL[b, rows_BL[b]]]))
    expected_NV = torch.cat(expected)
    expected_NV[:, MASK] = found.logits_NV()[:, MASK]
    torch.testing.assert_close(found.logits_NV(), expected_NV, rtol=0, atol=1e-5)


def test_guided_shadows_are_guided_on_both_sides() -> None:
    base, scale = denoiser(REPLAYING["bert"]), 1.5
    canvas = canvas_of([[9, 8, 7, 11]]).with_tokens(torch.tensor([[9, 8, 7, 11, 20, 21, MASK]]))
    rows_BL = torch.zeros_like(canvas.padding_BL)
    rows_BL[0, [4, 5]] = True
    model = Guidance(base, scale)
    memory = model.predict(canvas, canvas.masked_BL, remember=True).memory
    found = model.replay(memory, rows_BL, beside=True)
    halves = []
    for tokens in ([9, 8, 7, 11, 20, 21, MASK], [MASK, MASK, MASK, MASK, 20, 21, MASK]):
        _, hidden_Rd = dense("bert", torch.tensor(tokens), [4, 5], torch.full((2,), MASK))
        halves.append(base.network.head(hidden_Rd))
    expected_NV = halves[1] + (scale + 1) * (halves[0] - halves[1])
    expected_NV[:, MASK] = found.logits_NV()[:, MASK]
    torch.testing.assert_close(found.logits_NV(), expected_NV, rtol=0, atol=1e-8)


def test_a_row_cache_replays_beside_what_it_remembers() -> None:
    base = denoiser(REPLAYING["llama"])
    canvas = canvas_of([[9, 8, 7, 11]])
    rows_BL = torch.zeros_like(canvas.padding_BL)
    rows_BL[0, 2] = True
    cached = RowCache(base, 4).begin()
    memory = cached.predict(canvas, canvas.masked_BL, remember=True).memory
    found = cached.replay(memory, rows_BL, beside=True)
    assert torch.equal(found.logits_NV(), base.replay(memory, rows_BL, beside=True).logits_NV())
    # The cache went on remembering the canvas, not the shadow.
    assert torch.equal(cached.predict(canvas, canvas.masked_BL, remember=True).memory.tokens_BL, canvas.tokens_BL)


def test_what_has_no_shadows_is_refused_in_one_sentence() -> None:
    dense_model = denoiser(DENSE["mpnet"])
    canvas = canvas_of([[9, 8, 7, 11]])
    memory = dense_model.predict(canvas, canvas.masked_BL, remember=True).memory
    with pytest.raises(CombinationError, match=r"'verify'\) do not work with tiny, which cannot replay"):
        dense_model.replay(memory, canvas.writable_BL, beside=True)
    with pytest.raises(ModelError, match="cannot replay rows beside the canvas"):
        dense_model.network.replay(memory, torch.tensor([[1]]), tokens_BR=torch.tensor([[MASK]]), beside=True)
    model = denoiser(REPLAYING["llama"])
    model.network.shifted = True
    memory = model.predict(canvas, canvas.masked_BL, remember=True).memory
    with pytest.raises(CombinationError, match="with tiny, whose rows predict the next one"):
        model.replay(memory, canvas.writable_BL, beside=True)
    model.network.shifted = False
    with pytest.raises(UsageError, match="in no memory"):
        model.replay(memory, canvas.writable_BL, beside=True, remember=True)


def test_a_mask_that_is_added_is_refused() -> None:
    rows = torch.zeros(1, 1, 2, 4)
    layer = Layer(torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 3))
    tape = Beside(Memory((layer,), torch.arange(3)[None]), Slots(torch.tensor([[0, 2]]), None, 3))
    with using(tape), pytest.raises(ModelError, match="adds a torch"):
        assert current() is tape
        tape.attend(rows, rows, rows, None)
