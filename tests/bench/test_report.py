from __future__ import annotations

import io
import json

import pytest

from tabes.bench import Row, summarise
from tabes.bench.report import note, table
from tabes.errors import UsageError


def _row(sampler: str, item: int, solved: float, cells: float = 0.5) -> Row:
    cost = {"forward_calls": 0.5, "forward_tokens": 40.5, "seconds": 0.25, "flops": 6.0, "full_forward_flops": 2.0}
    return Row("sudoku", "toy", sampler, item, item, {"solved": solved, "cells_right": cells}, "", 4, {**cost})


ROWS = [*(_row("a", item, item % 2) for item in range(8)), *(_row("b", item, 1.0, 0.75) for item in reversed(range(8)))]


def test_scores_costs_and_the_difference_to_the_first() -> None:
    first, second = summarise(ROWS)
    assert (first.sampler, first.items, first.scores) == ("a", 8, {"solved": 0.5, "cells_right": 0.5})
    assert first.differences == {}
    assert (first.cost.forward_calls, first.cost.forward_tokens, first.cost.seconds) == (4, 324, 2.0)
    assert first.cost.forward_equivalents == pytest.approx(3.0)
    solved = second.differences["solved"]
    assert (solved.difference, solved.wins, solved.losses) == (0.5, 4, 0)
    assert second.differences["cells_right"].difference == pytest.approx(0.25)


def test_json_has_every_number() -> None:
    first, second = (json.loads(json.dumps(summary.as_dict())) for summary in summarise(ROWS))
    assert first["difference_to_first"] is None
    assert (second["solved"], second["seconds"], second["cost"]["forward_equivalents"]) == (1.0, 2.0, 3.0)
    assert second["difference_to_first"]["solved"].keys() >= {"difference", "low", "high", "method", "level", "p_value"}


def test_the_table_is_for_people() -> None:
    from rich.console import Console

    summaries = summarise(ROWS)
    page = io.StringIO()
    Console(file=page, width=80).print(table(summaries))
    *header, first, second = page.getvalue().splitlines()
    assert all(word in "".join(header) for word in ("solved", "cells", "vs first", "forwards", "seconds"))
    assert first.split() == ["a", "50.0", "50.0", "3.0", "2.0"]
    assert "+50.0 [" in second and "4/0" in second
    assert "95%" in note(summaries) and "Bonett-Price" in note(summaries)
    assert "interval" not in note(summaries[:1])


def test_only_equal_items_are_paired() -> None:
    with pytest.raises(UsageError, match="other items"):
        summarise(ROWS[:-1])
    with pytest.raises(UsageError, match="other items"):
        summarise([*ROWS, ROWS[-1]])
    with pytest.raises(UsageError, match="no rows"):
        summarise([])
