"""The benchmarks run and report: small sizes, no numbers checked but the ones that do not depend on the machine."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from benchmarks import accuracy, accuracy_report, drift, overhead, replay, rowcache, rows, rules, steering, vocabulary
from benchmarks.report import Verdict
from benchmarks.rows import Rows

from tabes.catalogue import PRESETS


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "RESULTS", tmp_path)
    for module in (vocabulary, replay, steering):
        monkeypatch.setattr(module, "peak_rows", lambda _name, case, contender, _job: fake_peaks(case, contender))


def fake_peaks(case: str, contender: str) -> list[rows.Row]:
    peak = {"forward": 0.0, "replay": 1.0, "tabes": 1.0, "boe": 1.0}.get(contender, 4.0)
    return [rows.Row(case, contender, f"{kind}_MiB", 0, peak) for kind in ("resident", "tensors")]


def reported(module: ModuleType, name: str) -> list[Verdict]:
    rows.save(name, module.run())
    return list(module.report(rows.load(name)))


def test_the_field_and_tabes_write_the_same_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"VOCABULARY": 200, "NEW": 32, "STEPS": 16, "COUNT": 2, "REPEATS": 1}.items():
        monkeypatch.setattr(vocabulary, name, value)
    cases = (vocabulary.Case(32, 0.0, 1.0), vocabulary.Case(4, 0.0, 1.0), vocabulary.Case(32, 0.7, 1.0))
    monkeypatch.setattr(vocabulary, "CASES", cases)
    verdicts = reported(vocabulary, "vocabulary")
    assert len(verdicts) == 3 + 2 + 6
    assert all(verdict.measured > 0 for verdict in verdicts)


def test_replay_and_dense_differentiate_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LENGTH": 32, "VOCABULARY": 32, "REPEATS": 1}.items():
        monkeypatch.setattr(replay, name, value)
    contest = replay.Contest(25)
    assert contest.replay().shape == contest.dense().shape == (8, 384)
    assert len(reported(replay, "replay")) == 2 * 3 + 2


def test_when_all_rows_are_active_a_replay_has_the_dense_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LENGTH": 16, "VOCABULARY": 32}.items():
        monkeypatch.setattr(replay, name, value)
    contest = replay.Contest(100)
    ours, dense = contest.replay(), contest.dense()
    assert float((ours - dense).abs().max()) <= 1e-3 * float(dense.abs().max())


def test_overhead_is_a_share_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"BATCH": 2, "LENGTH": 24, "PROMPT": 8, "VOCABULARY": 50, "STEPS": 2}.items():
        monkeypatch.setattr(overhead, name, value)
    assert all(0 < verdict.measured < 1 for verdict in reported(overhead, "overhead"))


def test_the_row_cache_curve_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"PUZZLES": 2, "BATCH": 2, "CLUES": 60, "EVERY": (1, 4), "TOKENS": (1, 8), "PICTURE": tmp_path / "c.png"}
    for name, value in settings.items():
        monkeypatch.setattr(rowcache, name, value)
    best = reported(rowcache, "rowcache")
    assert len(best) == 2
    assert (tmp_path / "c.png").stat().st_size > 10_000
    assert capsys.readouterr().out.count("\n| ") == 2 + 3


def test_drift_grows_from_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {"PUZZLES": 2, "CLUES": 60}.items():
        monkeypatch.setattr(drift, name, value)
    measured = rows.Rows(drift.run())
    assert measured.median("0", "replay", "mean") == 0.0, "just after a full forward a replay is that forward"
    assert measured.median("0", "replay", "same_digit") == 1.0
    assert 0 < measured.median("7", "replay", "mean") < 1
    assert len(list(drift.report(measured))) == 1
    assert capsys.readouterr().out.count("\n| ") == 2 + drift.EVERY


def test_a_steered_step_costs_what_its_parts_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LENGTH": 32, "VOCABULARY": 32, "REPEATS": 1, "BLOCK": 8}.items():
        monkeypatch.setattr(steering, name, value)
    verdicts = reported(steering, "steering")
    assert all(verdict.measured > 0 for verdict in verdicts)
    half = rows.load("steering")
    work = {who: half.median("50 % masked", who, "forward_equivalents") for who in ("confidence", "boe", "boe-dense")}
    assert work["confidence"] < work["boe"] < work["boe-dense"]


def test_every_sampler_is_timed_against_a_plain_step(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"PUZZLES": 2, "CLUES": 70, "VOCABULARY": 60, "NEW": 16, "PROMPT": 4, "KEPT": 2, "REPEATS": 1}
    for name, value in small.items():
        monkeypatch.setattr(rules, name, value)
    verdicts = reported(rules, "rules")
    assert len(verdicts) == 2 * (len(PRESETS) + len(rules.MORE))
    assert all(verdict.measured > 0 for verdict in verdicts)
    work = rows.load("rules")
    for case in ("sudoku", "words"):
        one, other = (work.median(case, "confidence", f"{what}_flops") for what in ("rule", "plain"))
        assert one == other, "a confidence step is a plain step to the ledger"


def test_what_a_sampler_is_held_to() -> None:
    assert rules.target("confidence") == 1.15
    assert rules.target("confidence drawn at 0.7") == 2.0
    assert rules.target("boe") is None


def test_accuracy_is_measured_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "rows.jsonl"
    monkeypatch.setattr(accuracy_report, "DOCS", tmp_path)
    options = ["--task", "sudoku:clues=60", "--items", "3", "--batch", "2", "--per-step", "1,8"]
    assert accuracy.main(["confidence", "boe", "--out", str(out), *options]) == 0
    results = accuracy_report.read(out.read_text().splitlines())
    assert [(result.budget, result.sampler) for result in results] == [
        ("1 token a step", "confidence"),
        ("1 token a step", "boe"),
        ("8 tokens a step", "confidence"),
        ("8 tokens a step", "boe"),
    ]
    assert all(len(result.right) == 3 and result.work > 0 for result in results)
    assert accuracy_report.main([str(out)]) == 0
    assert (tmp_path / "steering.png").stat().st_size > 10_000
    page = (tmp_path / "accuracy.md").read_text()
    assert page.index("1 token a step (3 items)") < page.index("8 tokens a step (3 items)")
    assert page.count("| `boe` ") == 2


def test_a_missed_target_is_called_a_miss() -> None:
    assert Verdict("x", 1.0, at_least=2.0).cells()[3] == "MISS"
    assert Verdict("x", 1.0, at_most=2.0).cells()[3] == "pass"
    assert Verdict("x", 1.0).passed is None


def test_rows_come_back(tmp_path: Path) -> None:
    written = [rows.Row("a", "x", "seconds", i, v) for i, v in enumerate((3.0, 1.0, 2.0))]
    rows.save("some", written)
    again = rows.load("some")
    assert list(again) == written
    assert isinstance(again, Rows)
    assert again.median("a", "x", "seconds") == 2.0
