"""Choosing between two states batch row by batch row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tabes.batched import Batched, select, where


@dataclass(frozen=True)
class State(Batched):
    table_BK: Tensor
    nested: Any
    name: str = "shared"


def state(value: float) -> State:
    inner = State(torch.full((3,), value), None, "inner")
    return State(torch.full((3, 2), value), (torch.full((3, 1, 2), value), inner))


def test_where_takes_every_tensor_from_the_right_one() -> None:
    condition_B = torch.tensor([True, False, True])
    chosen = where(condition_B, state(1.0), state(2.0))
    for batch in range(3):
        there = select(chosen, torch.tensor([batch]))
        value = 1.0 if condition_B[batch] else 2.0
        assert there.table_BK.eq(value).all()
        assert there.nested[0].eq(value).all()
        assert there.nested[1].table_BK.eq(value).all()
    assert chosen.name == "shared"
    assert chosen.nested[1].nested is None
    assert where(condition_B, None, None) is None
