"""The canvas and what a move may do to it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tabes import Canvas, Move
from tabes.errors import UsageError
from tabes.rows import Rows

MASK = 9


def canvas(rows: list[list[int]], **arguments: Any) -> Canvas:
    return Canvas.create(torch.tensor(rows), mask_id=MASK, **arguments)


def move(shape: torch.Size, writes: dict[tuple[int, int], int], remask: list[tuple[int, int]] | None = None) -> Move:
    write_BL, tokens_BL, remask_BL = torch.zeros(shape).bool(), torch.zeros(shape).long(), torch.zeros(shape).bool()
    for place, token in writes.items():
        write_BL[place], tokens_BL[place] = True, token
    for place in remask or []:
        remask_BL[place] = True
    return Move(write_BL, tokens_BL, remask_BL)


def test_holes_and_new_tokens() -> None:
    made = canvas([[1, MASK, 2]], max_new_tokens=2)
    assert made.tokens_BL.tolist() == [[1, MASK, 2, MASK, MASK]]
    assert made.masked_BL.tolist() == [[False, True, False, True, True]]
    assert made.open_BL.equal(made.masked_BL)


def test_padding_is_not_counted_and_not_written() -> None:
    made = canvas([[MASK, MASK, 3], [1, 2, 3]], attention_mask=torch.tensor([[0, 0, 1], [1, 1, 1]]), max_new_tokens=1)
    assert made.positions_BL.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    assert made.masked_BL.tolist() == [[False, False, False, True]] * 2


def test_blocks_open_from_left_to_right() -> None:
    made = canvas([[1, 2], [1, 2]], attention_mask=torch.tensor([[0, 1], [1, 1]]), max_new_tokens=5, block_length=2)
    assert made.block_BL[:, 2:].tolist() == [[0, 0, 1, 1, 2]] * 2
    assert made.open_BL.nonzero().tolist() == [[0, 2], [0, 3], [1, 2], [1, 3]]
    made = made.apply(move(made.tokens_BL.shape, {(0, 2): 5, (0, 3): 5}))
    assert made.block_B.tolist() == [1, 0]


def test_apply_writes_rewrites_and_masks_again() -> None:
    made = canvas([[1, MASK, MASK]])
    made = made.apply(move(made.tokens_BL.shape, {(0, 1): 4}))
    made = made.apply(move(made.tokens_BL.shape, {(0, 1): 5, (0, 2): 6}))
    assert made.tokens_BL.tolist() == [[1, 5, 6]]
    assert made.apply(move(made.tokens_BL.shape, {}, [(0, 1)])).tokens_BL.tolist() == [[1, MASK, 6]]


@pytest.mark.parametrize(
    ("writes", "remask", "message"),
    [
        ({(0, 0): 4}, [], "wrote a given or padding row"),
        ({(0, 1): MASK}, [], "wrote the mask id"),
        ({(0, 3): 4}, [], "wrote in a later block"),
        ({}, [(0, 0)], "masked a row that is given or masked already"),
        ({}, [(0, 1)], "masked a row that is given or masked already"),
        ({(0, 2): 4}, [(0, 2)], "wrote and masked the same row"),
    ],
)
def test_apply_refuses(writes: dict[tuple[int, int], int], remask: list[tuple[int, int]], message: str) -> None:
    made = canvas([[1, MASK, MASK, MASK, 7]], block_length=2)
    made = made.with_tokens(torch.tensor([[1, MASK, 3, MASK, 7]]))
    with pytest.raises(UsageError, match=message + r" \(batch row 0, position \d\)"):
        made.apply(move(made.tokens_BL.shape, writes, remask))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rows": [[]]}, "the prompt is empty"),
        ({"max_new_tokens": -1}, "max_new_tokens is -1"),
        ({"block_length": 0}, "block_length is 0"),
        ({"block_length": 1.5}, "block_length is 1.5; it must be a whole number"),
        ({"attention_mask": torch.ones(1, 5)}, "attention_mask has the shape"),
        ({"position_ids": torch.ones(1, 5)}, "position_ids have the shape"),
    ],
)
def test_bad_canvases(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        canvas(arguments.pop("rows", [[1, 2]]), **arguments)


def test_ids_must_be_a_table_of_integers() -> None:
    for bad in (torch.ones(2, 3), torch.ones(3).long(), torch.ones(1, 1).bool()):
        with pytest.raises(UsageError, match="must be integer ids"):
            Canvas.create(bad, mask_id=MASK)


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=5))
@settings(deadline=None)
def test_rows_pack_any_choice(chosen: list[list[bool]]) -> None:
    chosen_BL = torch.tensor(chosen)
    rows = Rows.of(chosen_BL)
    value_BL = torch.arange(chosen_BL.numel()).reshape(chosen_BL.shape)
    assert rows.pick(rows.gather(value_BL), torch.ones_like(chosen_BL)).equal(value_BL[chosen_BL])
    for index_R in rows.index_BR.tolist():
        assert len(set(index_R)) == len(index_R)
    read_BL = value_BL % 2 == 0
    assert rows.pick(rows.gather(value_BL), read_BL).equal(value_BL[chosen_BL & read_BL])
