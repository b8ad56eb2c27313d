"""Memory: select and expand are lazy and compose; whatever is selected replays as if it had been remembered alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tabes.attention import Layer, Memory, Slots
from tests.tiny import FAMILIES, V, ragged

pytestmark = pytest.mark.filterwarnings("ignore::tabes.models.dense.DenseReplayWarning")


def remembered(name: str) -> tuple[Any, Any, Memory]:
    network, canvas = FAMILIES[name].network(), ragged()
    _, memory = network.forward(
        canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=canvas.padding_BL, remember=True
    )
    assert memory is not None
    return network, canvas, memory


def replay_all(network: Any, memory: Memory, canvas: Any, batch: Tensor, remember: bool = False) -> Any:
    """The active rows of these batch rows, each with a token of its own in every copy."""
    rows_BR, valid_BR = canvas.rows_BR[batch], canvas.valid_BR[batch]
    tokens_BR = (torch.arange(rows_BR.numel()) % (V - 6) + 6).view_as(rows_BR)
    return network.replay(memory, rows_BR, valid_BR=valid_BR, tokens_BR=tokens_BR, remember=remember)


@pytest.mark.parametrize("name", ["qwen2-grouped", "bert", "modernbert", "albert", "deberta-v2", "roformer"])
@pytest.mark.parametrize("batch", [[2], [1, 0], [0, 0, 2, 1, 2]])
def test_selected_memory_replays_like_a_memory_of_those_rows(name: str, batch: list[int]) -> None:
    network, canvas, memory = remembered(name)
    index = torch.tensor(batch)
    _, expected = network.forward(
        canvas.tokens_BL[index],
        positions_BL=canvas.positions_BL[index],
        padding_BL=canvas.padding_BL[index],
        remember=True,
    )
    hidden, updated = replay_all(network, memory.select(index), canvas, index, remember=True)
    hidden_expected, updated_expected = replay_all(network, expected, canvas, index, remember=True)
    valid = canvas.valid_BR[index]
    atol = FAMILIES[name].tolerance
    torch.testing.assert_close(hidden[valid], hidden_expected[valid], rtol=0, atol=atol)
    # What was updated goes on: a second replay, on a selection of a selection.
    last = torch.tensor([len(batch) - 1])
    again, _ = replay_all(network, updated.select(last), canvas, index[last])
    again_expected, _ = replay_all(network, updated_expected.select(last), canvas, index[last])
    valid = canvas.valid_BR[index[last]]
    torch.testing.assert_close(again[valid], again_expected[valid], rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["bert", "modernbert", "mpnet"])
def test_expand_is_every_row_k_times(name: str) -> None:
    network, canvas, memory = remembered(name)
    many = memory.expand(3)
    index = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert many.tokens_BL is not None and memory.tokens_BL is not None
    assert torch.equal(many.tokens_BL, memory.tokens_BL[index])
    hidden, _ = replay_all(network, many, canvas, index)
    expected, _ = replay_all(network, memory.select(index), canvas, index)
    assert torch.equal(hidden, expected)


def test_selecting_copies_no_layer() -> None:
    _, _, memory = remembered("bert")
    many = memory.expand(100).select(torch.arange(250))
    assert many.layers is memory.layers
    assert many.batch_size == 250
    assert many.length == 13


def test_a_bool_mask_selects_too() -> None:
    _, _, memory = remembered("bert")
    kept = memory.select(torch.tensor([True, False, True]))
    assert kept.batch_B is not None and kept.batch_B.tolist() == [0, 2]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_selections_compose(data: st.DataObject) -> None:
    first = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    second = data.draw(st.lists(st.integers(0, len(first) - 1), min_size=1, max_size=5))
    memory = Memory((Layer(torch.zeros(4, 1, 2, 1)),), torch.arange(8).view(4, 2), tokens_BL=torch.arange(8).view(4, 2))
    composed = memory.select(torch.tensor(first)).select(torch.tensor(second))
    assert composed.batch_B is not None
    assert composed.batch_B.tolist() == [first[i] for i in second]
    assert torch.equal(composed.positions_BL, memory.positions_BL[composed.batch_B])


@pytest.mark.parametrize("name", ["bert", "deberta-v2"])
def test_updated_memory_says_what_it_holds(name: str) -> None:
    network, canvas, memory = remembered(name)
    _, updated = replay_all(network, memory, canvas, torch.arange(3), remember=True)
    assert updated.batch_B is None
    tokens_BR = (torch.arange(18) % (V - 6) + 6).view(3, 6)
    slots = updated.tokens_BL.gather(1, canvas.rows_BR)
    assert torch.equal(slots[canvas.valid_BR], tokens_BR[canvas.valid_BR])
    untouched = torch.ones(3, 13, dtype=torch.bool)
    for b in range(3):
        untouched[b, canvas.rows_BR[b, canvas.valid_BR[b]]] = False
    assert torch.equal(updated.tokens_BL[untouched], canvas.tokens_BL[untouched])
    embeddings_BRE = network.embed(tokens_BR) + 1
    _, nameless = network.replay(
        memory, canvas.rows_BR, valid_BR=canvas.valid_BR, embeddings_BRE=embeddings_BRE, remember=True
    )
    assert nameless.tokens_BL is None


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6), st.booleans(), st.booleans())
def test_slots_put_is_indexed_assignment(seed: int, batch: int, length: int, ragged_set: bool, chosen: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    stored = torch.randn(3, length, 2, generator=generator)
    batch_B = torch.randint(3, (batch,), generator=generator) if chosen else None
    old = stored if batch_B is None else stored[batch_B]
    count = int(torch.randint(1, length + 1, (), generator=generator))
    rows_BR = torch.stack([torch.randperm(length, generator=generator)[:count] for _ in old])
    valid_BR = torch.rand(rows_BR.shape, generator=generator) < 0.5 if ragged_set else None
    new = torch.randn(*rows_BR.shape, 2, generator=generator)
    expected = old.clone()
    for b in range(len(old)):
        for r, row in enumerate(rows_BR[b].tolist()):
            if valid_BR is None or valid_BR[b, r]:
                expected[b, row] = new[b, r]
    before = stored.clone()
    slots = Slots(rows_BR, valid_BR, length)
    assert torch.equal(slots.put(stored, new, batch_B), expected)
    assert torch.equal(slots.take(old), old.gather(1, rows_BR[..., None].expand(-1, -1, 2)))
    assert torch.equal(stored, before)
