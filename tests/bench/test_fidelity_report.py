"""Correlations against scipy, and what scores of known worth get."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tabes.bench.fidelity import Curve, Fidelity, StateRow, examine, summarise
from tabes.bench.fidelity.correlation import Draws, Groups
from tabes.bench.fidelity.plot import save_fidelity
from tabes.bench.fidelity.table import note, table, theorem
from tabes.errors import UsageError

Score = Callable[[list[float]], list[float]]


def _rows(states: int = 12, **scores: Score) -> list[StateRow]:
    """States of five candidates with drops of either sign; each score is a function of the truth."""
    rng, rows = np.random.default_rng(3), []
    for item in range(states):
        truth = rng.normal(1, 1, 5).round(3).tolist()
        rows.append(
            StateRow(
                task="toy",
                model="toy",
                objective="entropy",
                item=item,
                seed=item,
                masked=9 + item,
                share_masked=(9 + item) / 30,
                candidates=[0, 2, 3, 5, 8],
                truth=truth,
                scores={name: score(truth) for name, score in scores.items()},
                cost=dict.fromkeys(scores, 0.5),
                curve=None,
            )
        )
    return rows


def _noise(truth: list[float]) -> list[float]:
    """Knows half of it, with ties."""
    rng = np.random.default_rng(int(1000 * abs(truth[0])))
    return [float(round(value + rng.normal())) for value in truth]


SCORES: dict[str, Score] = {
    "truth": lambda truth: list(truth),
    "cubed": lambda truth: [value**3 - 7 for value in truth],
    "reversed": lambda truth: [-value for value in truth],
    "constant": lambda truth: [2.0] * len(truth),
    "noise": _noise,
}


def _found(rows: Sequence[StateRow] | None = None) -> dict[str, Fidelity]:
    return {one.score: one for one in summarise(rows or _rows(**SCORES))}


def test_the_truth_itself_is_perfect_and_stays_so_under_a_monotone_change() -> None:
    found = _found()
    for name in ("truth", "cubed"):
        one = found[name]
        for estimate in vars(one.correlations).values():
            assert (estimate.value, estimate.low, estimate.high) == pytest.approx((1, 1, 1))
        assert (one.regret.value, one.regret.high, one.share.value, one.best.value) == (0, 0, 1, 1)
    assert replace(found["truth"], score="cubed") == found["cubed"]
    assert found["reversed"].correlations.spearman.value == pytest.approx(-1)


def test_a_constant_score_is_worth_nothing_and_picks_the_lowest_row() -> None:
    rows, one = _rows(**SCORES), _found()["constant"]
    assert {estimate.value for estimate in vars(one.correlations).values()} == {0.0}
    firsts, bests = [row.truth[0] for row in rows], [max(row.truth) for row in rows]
    assert one.share.value == pytest.approx(sum(firsts) / sum(bests))
    assert one.regret.value == pytest.approx(np.mean(np.subtract(bests, firsts)))
    assert one.best.value == pytest.approx(np.mean(np.equal(bests, firsts)))


def test_with_a_constant_truth_there_is_nothing_to_rank() -> None:
    flat = [replace(row, truth=[0.0] * 5) for row in _rows(**SCORES)]
    one = _found(flat)["noise"]
    assert one.correlations.spearman.value is None and one.share.value is None and one.regret.value == 0
    rows = _rows(**SCORES)
    mixed = _found([*rows, replace(rows[0], truth=[1.0] * 5)])["noise"]
    assert mixed.correlations.spearman.value == pytest.approx(_found(rows)["noise"].correlations.spearman.value)
    json.dumps(one.as_dict(), allow_nan=False)
    table([one])


def test_correlations_are_those_of_scipy() -> None:
    rows = _rows(**SCORES)
    found = _found(rows)["noise"].correlations
    scores, truths = [row.scores["noise"] for row in rows], [row.truth for row in rows]
    for name, reference in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau)):
        inside = [reference(score, truth).statistic for score, truth in zip(scores, truths, strict=True)]
        assert getattr(found, name).value == pytest.approx(np.mean(inside))
        pooled = reference(np.concatenate(scores), np.concatenate(truths)).statistic
        assert getattr(found, f"pooled_{name}").value == pytest.approx(pooled)


def test_a_draw_is_worth_what_a_sample_with_repeats_is() -> None:
    rows = _rows(states=6, **SCORES)
    scores, truths = [row.scores["noise"] for row in rows], [row.truth for row in rows]
    groups, counts = Groups(scores, truths), Draws(6).counts_DS[1:9]
    for draw, spearman, kendall in zip(counts, groups.spearman(counts), groups.kendall(counts), strict=True):
        drawn = np.repeat(np.arange(6), draw.astype(int))
        sample = np.concatenate([scores[s] for s in drawn]), np.concatenate([truths[s] for s in drawn])
        assert spearman == pytest.approx(stats.spearmanr(*sample).statistic)
        assert kendall == pytest.approx(stats.kendalltau(*sample).statistic)


def test_intervals_hold_the_value_and_shrink_with_more_states() -> None:
    few, many = (_found(_rows(states=states, **SCORES))["noise"].correlations.pooled_spearman for states in (12, 120))
    for one in (few, many):
        assert one.value is not None and one.low is not None and one.high is not None
        assert one.low < one.value < one.high
    assert many.high - many.low < 0.6 * (few.high - few.low)  # type: ignore[operator]


def _curved(rows: Sequence[StateRow], curvature: float) -> list[StateRow]:
    """H~ falls by truth; its slope at the mask is off by half the curvature, for every other candidate."""
    return [
        replace(
            row,
            curve=Curve(
                first_order=[value + (1 - 1e-9) * curvature / 2 * (at % 2) for at, value in enumerate(row.truth)],
                relaxed=row.truth,
                curvature=[curvature * (at % 2) for at in range(len(row.truth))],
            ),
        )
        for row in rows
    ]


def test_a_bound_that_is_tight() -> None:
    rows = _curved(_rows(**SCORES), 0.5)
    found = examine(rows)
    assert found is not None
    assert (found.candidates, found.holds, found.tightness) == (60, 1.0, pytest.approx(1.0))
    assert found.mean_curvature == pytest.approx(0.2) and found.mean_error == pytest.approx(0.1)
    assert found.to_exact.spearman.value == pytest.approx(1)
    bites = right = every = 0
    for row in rows:
        assert row.curve is not None
        for i, j in combinations(range(5), 2):
            gap = row.curve.first_order[i] - row.curve.first_order[j]
            is_right = (gap > 0) == (row.truth[i] > row.truth[j])
            bites += abs(gap) > max(row.curve.curvature[i], row.curve.curvature[j])
            right += is_right
            every += abs(gap) > 0.5
    assert (found.pairs, found.of_pair.bites, found.of_state.bites) == (120, bites, every)
    assert 0 < every < bites < 120 and found.of_pair.right == found.of_state.right == 1.0
    assert found.ordered == pytest.approx(right / 120) and right < 120


def test_a_bound_that_does_not_hold_is_seen() -> None:
    rows = _curved(_rows(**SCORES), 0.5)
    broken = [
        replace(row, curve=replace(row.curve, curvature=[0.4 * value for value in row.curve.curvature]))
        for row in rows
        if row.curve is not None
    ]
    found = examine(broken)
    assert found is not None and found.holds == pytest.approx(0.6)
    assert found.tightness == pytest.approx(2.5)
    assert "60.0 % of 60 candidates" in theorem(found)


def test_curvature_so_large_that_the_corollary_never_bites() -> None:
    found = examine(_curved(_rows(**SCORES), 1e3))
    assert found is not None and found.of_state.bites == 0 and found.of_state.right is None
    assert "with M of the whole state bites on none" in theorem(found)
    flat = examine(_curved(_rows(**SCORES), 0.0))
    assert flat is not None and flat.tightness is None and flat.ordered == 1.0
    assert "undefined" in theorem(flat)


def test_the_theorem_is_left_out_where_it_was_not_measured() -> None:
    rows = _rows(**SCORES)
    assert examine(rows) is None
    assert examine([*_curved(rows[:3], 1.0), *rows[3:]]) is None


def test_the_table_is_for_people_and_json_for_machines() -> None:
    from rich.console import Console

    summaries = tuple(_found().values())
    page = io.StringIO()
    Console(file=page, width=100).print(table(summaries))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= 100 and len(lines) == 2 + len(SCORES)
    assert lines[2].split()[:4] == ["truth", "+1.00", "[+1.00,", "+1.00]"] and lines[2].split()[-1] == "0.50"
    assert "12 states" in note(summaries)
    found = json.loads(json.dumps(summaries[0].as_dict(), allow_nan=False))
    assert found["spearman"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert found.keys() >= {"pooled_kendall", "share", "regret", "best", "cost", "states"}


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(UsageError, match="no states"):
        summarise([])


@pytest.mark.parametrize("count", [1, 5])
def test_the_picture_has_a_panel_per_score(count: int, tmp_path: Path) -> None:
    rows = _rows(**dict(list(SCORES.items())[-count:]))
    save_fidelity(tmp_path / "deep" / "fidelity.png", rows, summarise(rows))
    data = (tmp_path / "deep" / "fidelity.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert height < 1.3 * width
