from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import pytest

import tabes
from tabes.bench import Row, parse_samplers, read_rows, run, write_rows
from tabes.bench.shares import total
from tabes.errors import UnknownNameError, UsageError
from tabes.tasks import Item, SudokuTask

TASK = SudokuTask(clues=70)


def _rows(model: tabes.Denoiser, samplers: str, items: int = 5, batch_size: int = 64, **options: int) -> list[Row]:
    return list(run(model, TASK, parse_samplers(samplers), items=items, seed=3, batch_size=batch_size, **options))


def _decided(rows: list[Row]) -> list[Row]:
    """What a run must repeat exactly: everything but the costs."""
    return [replace(row, cost={}) for row in rows]


def test_a_row_for_every_item_and_sampler(guesser: tabes.Denoiser) -> None:
    rows = _rows(guesser, "margin,random:tokens_per_step=4")
    assert [(row.sampler, row.item) for row in rows] == [
        (name, item) for name in ("margin", "random:tokens_per_step=4") for item in range(5)
    ]
    assert {row.steps for row in rows[:5]} == {11} and {row.steps for row in rows[5:]} == {3}
    assert all(row.scores.keys() == {"solved", "cells_right"} for row in rows)
    assert {row.seed for row in rows} == {3, 4, 5, 6, 7}


def test_equal_seeds_give_equal_rows_at_any_batch_size(guesser: tabes.Denoiser) -> None:
    rows = _rows(guesser, "random:temperature=1,confidence@cache=4")
    assert _decided(rows) == _decided(_rows(guesser, "random:temperature=1,confidence@cache=4", batch_size=2))
    other = run(guesser, TASK, parse_samplers("random:temperature=1"), items=5, seed=9)
    assert [row.text for row in other] != [row.text for row in rows[:5]]


def test_more_items_begin_with_the_same_rows(guesser: tabes.Denoiser) -> None:
    assert _decided(_rows(guesser, "random", items=5))[:3] == _decided(_rows(guesser, "random", items=3))


def test_shares_add_up_to_what_the_ledger_counts(guesser: tabes.Denoiser) -> None:
    rows = _rows(guesser, "margin")
    prompts = [item.prompt for item in TASK.items(5, 3)]
    counted = tabes.generate(guesser, prompts, sampler="margin").cost
    summed = total(row.cost for row in rows)
    same = [field.name for field in fields(tabes.Cost) if field.name != "seconds"]
    assert {name: getattr(summed, name) for name in same} == pytest.approx(
        {name: getattr(counted, name) for name in same}
    )
    assert summed.forward_equivalents == pytest.approx(counted.forward_equivalents)


@dataclass(frozen=True)
class Ragged:
    """Items with one to three holes, to see that an item pays for no step after its last."""

    name: ClassVar[str] = "ragged"
    metrics: ClassVar[tuple[str, ...]] = ("length",)
    max_new_tokens: ClassVar[int] = 0
    stop: ClassVar[tuple[str, ...]] = ()

    def items(self, count: int, seed: int) -> tuple[Item, ...]:
        return tuple(Item("12345678"[: 8 - holes] + "." * holes, None) for holes in range(1, count + 1))

    def score(self, item: Item, text: str) -> dict[str, float]:
        return {"length": float(len(text) == len(item.prompt))}


def test_items_that_are_done_pay_no_more(guesser: tabes.Denoiser) -> None:
    rows = list(run(guesser, Ragged(), parse_samplers("left_to_right"), items=3, seed=0))
    assert [row.steps for row in rows] == [1, 2, 3]
    assert [row.cost["forward_calls"] for row in rows] == pytest.approx([1 / 3, 1 / 3 + 1 / 2, 1 / 3 + 1 / 2 + 1])
    assert total(row.cost for row in rows).forward_calls == 3
    assert {row.task for row in rows} == {"ragged"}


def test_progress_is_told_in_items(guesser: tabes.Denoiser) -> None:
    told: list[float] = []
    list(run(guesser, TASK, parse_samplers("margin,entropy"), items=5, seed=0, batch_size=2, on_items=told.append))
    assert sum(told) == pytest.approx(10)
    assert min(told) >= 0 and len(told) > 10


def test_puzzles_without_a_blank_cost_nothing(guesser: tabes.Denoiser) -> None:
    (row,) = run(guesser, SudokuTask(clues=81), parse_samplers("margin"), items=1, seed=0)
    assert row.scores == {"solved": 1.0, "cells_right": 1.0}
    assert total([row.cost]).forward_calls == 0 and row.steps == 0


def test_bad_arguments_are_refused_before_any_work(guesser: tabes.Denoiser) -> None:
    before = guesser.ledger.forward_calls
    for name in ("items", "batch_size"):
        with pytest.raises(UsageError, match=f"{name} is 0"):
            list(run(guesser, TASK, parse_samplers("margin"), **({"items": 1, "seed": 0} | {name: 0})))
    with pytest.raises(UnknownNameError):
        next(run(guesser, TASK, parse_samplers("margin,nonsense"), items=1, seed=0))
    assert guesser.ledger.forward_calls == before


def test_rows_survive_the_file(guesser: tabes.Denoiser, tmp_path: Path) -> None:
    rows = _rows(guesser, "margin")
    write_rows(tmp_path / "deep" / "rows.jsonl", rows)
    assert list(read_rows(tmp_path / "deep" / "rows.jsonl")) == rows


@pytest.mark.parametrize("line", ["{", "[1]", '{"task": "sudoku"}'])
def test_a_line_that_is_no_row_is_named(line: str, guesser: tabes.Denoiser, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, _rows(guesser, "margin", items=1))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UsageError, match="line 2"):
        read_rows(path)
