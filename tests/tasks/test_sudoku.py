"""Grids are Sudoku grids, splits never meet, puzzles have one solution, and scoring says what it should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabes.errors import UsageError
from tabes.tasks import _grids, sudoku

SOLVED = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def units(grids: np.ndarray) -> np.ndarray:
    """Rows, columns and boxes of every grid, (N, 27, 9), written without the layout tricks of the solver."""
    by_cell = [[], [], []]
    for cell in range(81):
        row, column = divmod(cell, 9)
        for kind, unit in enumerate((row, column, row // 3 * 3 + column // 3)):
            by_cell[kind].append((unit, cell))
    members = [[cell for unit, cell in kind if unit == which] for kind in by_cell for which in range(9)]
    return grids[:, np.array(members)]


def candidates(puzzle: list[int], cell: int) -> set[int]:
    row, column = divmod(cell, 9)
    box = [(row // 3 * 3 + i // 3) * 9 + column // 3 * 3 + i % 3 for i in range(9)]
    peers = [*range(row * 9, row * 9 + 9), *range(column, 81, 9), *box]
    return set(range(1, 10)) - {puzzle[peer] for peer in peers}


def solutions_by_backtracking(puzzle: list[int], limit: int) -> int:
    """An independent, slow count of completions."""
    if 0 not in puzzle:
        return 1
    options = {cell: candidates(puzzle, cell) for cell in range(81) if puzzle[cell] == 0}
    cell = min(options, key=lambda at: len(options[at]))
    found = 0
    for digit in options[cell]:
        found += solutions_by_backtracking([*puzzle[:cell], digit, *puzzle[cell + 1 :]], limit - found)
        if found >= limit:
            break
    return found


@pytest.fixture(scope="module")
def chunk() -> np.ndarray:
    return _grids.random_chunk(seed=3, index=0)


@pytest.fixture(scope="module")
def puzzles() -> sudoku.Puzzles:
    return sudoku.puzzles(count=70, clues=28, seed=1)


def test_every_unit_of_every_grid_holds_each_digit_once(chunk: np.ndarray) -> None:
    assert (np.sort(units(chunk), axis=2) == np.arange(1, 10)).all()


def test_grids_differ_even_up_to_relabelling(chunk: np.ndarray) -> None:
    """A generator that permuted one stored grid would fail the second count, however many grids it prints."""
    assert len(np.unique(chunk, axis=0)) == len(chunk)
    relabel = np.zeros((len(chunk), 10), dtype=np.uint8)
    np.put_along_axis(relabel, chunk[:, :9].astype(np.intp), np.arange(1, 10, dtype=np.uint8)[None], axis=1)
    canonical = np.take_along_axis(relabel, chunk.astype(np.intp), axis=1)
    assert len(np.unique(canonical, axis=0)) == len(chunk)


def test_every_cell_holds_every_digit_equally_often(chunk: np.ndarray) -> None:
    """Symmetric under relabelling and under every cell: 81 x 9 counts, each binomial with mean N / 9."""
    counts = np.stack([(chunk == digit).sum(axis=0) for digit in range(1, 10)])
    deviation = np.abs(counts - len(chunk) / 9) / np.sqrt(len(chunk) * 8 / 81)
    assert deviation.max() < 5


def test_a_seed_decides_the_stream_and_a_longer_request_extends_it(
    chunk: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (_grids.random_chunk(3, 0) == chunk).all()
    monkeypatch.setattr(_grids, "CHUNK", 128)
    streams = [_grids.random_chunk(*key) for key in [(3, 0), (4, 0), (3, 1)]]
    assert len(np.unique(np.concatenate(streams), axis=0)) == 3 * 128
    few, more = sudoku.grids(10, seed=5), sudoku.grids(300, seed=5)
    assert len(more) == 300
    assert (more[:10] == few).all()


def test_splits_cover_all_grids_and_share_none(chunk: np.ndarray) -> None:
    members = np.stack([sudoku.split_mask(chunk, split) for split in ("train", "validation", "test")])
    assert (members.sum(axis=0) == 1).all()
    shares = members.mean(axis=1)
    expected = np.array([30, 1, 1]) / 32
    assert (np.abs(shares - expected) < 5 * np.sqrt(expected * (1 - expected) / len(chunk))).all()


def test_the_hash_is_stable_across_versions() -> None:
    """If this moves, old checkpoints have seen grids that are now held out."""
    grid = sudoku.from_text(SOLVED)[None]
    value = 0
    for digit in SOLVED:
        value = (value * 0x9E3779B97F4A7C15 + int(digit)) % 2**64
    value ^= value >> 29
    value = value * 0xBF58476D1CE4E5B9 % 2**64
    value ^= value >> 32
    split = {0: "test", 1: "validation"}.get(value % 32, "train")
    assert sudoku.split_mask(grid, split)[0]


def test_unknown_split_is_refused() -> None:
    with pytest.raises(UsageError, match="'dev'"):
        sudoku.grids(1, 0, "dev")  # type: ignore[arg-type]


def test_solver_agrees_with_backtracking(chunk: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    holes = np.stack([rng.permutation(81) < rng.integers(30, 58) for _ in range(40)])
    givens = np.where(holes, 0, chunk[:40]).astype(np.uint8)
    for puzzle in givens[:10]:  # one more digit that no peer forbids: some of these have no solution left
        blank = int(np.flatnonzero(puzzle == 0)[0])
        puzzle[blank] = min(candidates(puzzle.tolist(), blank), key=lambda digit: digit == chunk[0, blank])
    expected = [solutions_by_backtracking(puzzle.tolist(), limit=3) for puzzle in givens]
    assert sudoku.count_solutions(givens, limit=3).tolist() == expected
    assert {0, 1, 3} <= set(expected), "the cases must include impossible, unique and loose puzzles"


def test_solver_knows_the_textbook_puzzle_and_stops_counting_at_the_limit() -> None:
    empty = np.zeros((1, 81), dtype=np.uint8)
    assert sudoku.count_solutions(sudoku.from_text(PUZZLE)[None]).tolist() == [1]
    assert sudoku.count_solutions(empty, limit=2).tolist() == [2]
    twice = sudoku.from_text("55" + "." * 79)[None]
    assert sudoku.count_solutions(twice).tolist() == [0]


def test_puzzles_are_what_they_say(puzzles: sudoku.Puzzles) -> None:
    assert len(puzzles) == 70
    assert (puzzles.blanks.sum(axis=1) == 81 - 28).all()
    assert (np.where(puzzles.blanks, puzzles.solutions, puzzles.givens) == puzzles.solutions).all()
    assert sudoku.split_mask(puzzles.solutions, "test").all()
    assert all(solutions_by_backtracking(puzzle.tolist(), limit=2) == 1 for puzzle in puzzles.givens[:20])
    assert len(np.unique(puzzles.solutions, axis=0)) == 70


def test_more_puzzles_begin_with_the_fewer(puzzles: sudoku.Puzzles) -> None:
    few = sudoku.puzzles(count=5, clues=28, seed=1)
    assert (few.givens == puzzles.givens[:5]).all()
    assert not (sudoku.puzzles(count=5, clues=28, seed=2).givens == few.givens).all()


@pytest.mark.parametrize("clues", [5, 82])
def test_impossible_numbers_of_clues_are_refused(clues: int) -> None:
    with pytest.raises(UsageError, match=str(clues)):
        sudoku.puzzles(1, clues, 0)


def test_scoring(puzzles: sudoku.Puzzles) -> None:
    answers = puzzles.solutions.copy()
    assert sudoku.solved(answers, puzzles).all()
    assert (sudoku.cells_right(answers, puzzles) == 1).all()
    blank = int(np.flatnonzero(puzzles.blanks[3])[0])
    answers[3, blank] = answers[3, blank] % 9 + 1
    assert np.flatnonzero(~sudoku.solved(answers, puzzles)).tolist() == [3]
    assert sudoku.cells_right(answers, puzzles)[3] == pytest.approx(52 / 53)
    assert (sudoku.cells_right(puzzles.givens, puzzles) == 0).all()
    with pytest.raises(UsageError, match=r"\(1, 81\)"):
        sudoku.solved(answers[:1], puzzles)


def test_a_puzzle_without_blanks_counts_as_right() -> None:
    grid = sudoku.from_text(SOLVED)[None]
    assert sudoku.cells_right(grid, sudoku.Puzzles(grid, grid)).tolist() == [1.0]


@given(st.lists(st.integers(0, 9), min_size=81, max_size=81))
def test_text_survives_a_round_trip(digits: list[int]) -> None:
    grid = np.array(digits, dtype=np.uint8)
    assert (sudoku.from_text(sudoku.to_text(grid)) == grid).all()
    assert (sudoku.from_text(sudoku.render(grid)) == grid).all()


def test_rendering() -> None:
    lines = sudoku.render(sudoku.from_text(PUZZLE), blank="_").splitlines()
    assert lines[0] == "5 3 _ | _ 7 _ | _ _ _"
    assert lines[3] == "------+-------+------"
    assert len(lines) == 11


@pytest.mark.parametrize(("text", "message"), [("12", "2"), (SOLVED[:-1] + "x", "'x'"), (SOLVED + "1", "82")])
def test_text_that_is_no_grid_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        sudoku.from_text(text)
