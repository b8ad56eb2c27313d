from __future__ import annotations

from pathlib import Path

import numpy as np

import tabes
from tabes.bench import Row, parse_sampler
from tabes.bench.order_plot import most_divided, save_orders
from tabes.bench.tracing import trace
from tabes.tasks import SudokuTask

ITEM = SudokuTask(clues=70).items(1, 0)[0]


def test_a_trace_numbers_every_blank_by_its_step(guesser: tabes.Denoiser) -> None:
    blanks = np.array([cell == "." for cell in ITEM.prompt])
    seen: list[int] = []
    found = trace(
        guesser,
        ITEM,
        parse_sampler("left_to_right:tokens_per_step=2"),
        seed=0,
        on_canvas=lambda canvas: seen.append(int(canvas.masked_BL.sum())),
    )
    steps_L = found.steps_L.numpy()
    assert (steps_L[~blanks] == 0).all()
    assert steps_L[blanks].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]
    assert seen == [9, 7, 5, 3, 1, 0]


def test_the_picture_has_a_row_for_every_three_rules(guesser: tabes.Denoiser, tmp_path: Path) -> None:
    one = trace(guesser, ITEM, parse_sampler("random"), seed=0)
    save_orders(tmp_path / "order.png", ITEM, [one])
    data = (tmp_path / "order.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert height < width / 2


def test_the_item_that_divides_the_rules_is_drawn() -> None:
    solved = {"a": (1.0, 1.0, 0.0), "b": (1.0, 0.0, 0.0), "c": (1.0, 1.0, 0.0), "d": (1.0, 0.0, 0.0)}
    rows = [
        Row("sudoku", "toy", name, item, item, {"solved": score}, "", 1, {})
        for name, scores in solved.items()
        for item, score in enumerate(scores)
    ]
    assert most_divided(rows).item == 1
