"""`tabes frequencies`: a table made, used, and every way it can be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tabes.frequencies import Frequencies
from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    text, lines = tmp_path / "a.txt", tmp_path / "b.jsonl"
    text.write_text("w1 w2 w2\nw3\n")
    lines.write_text('{"body": "w2 w9"}\n')
    return text, lines


def test_it_explains_itself_with_an_example(command: Command) -> None:
    outcome = command("frequencies", "--help")
    assert outcome.code == 0 and outcome.err == ""
    assert "--json" in outcome.out and "  tabes " in outcome.out


def test_a_table_is_made_and_used(command: Command, texts: Path, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    outcome = command("frequencies", *corpus, "--model", texts, "--field", "body", "--out", out)
    assert outcome.code == 0 and outcome.err == ""
    assert [line.split()[1:] for line in outcome.out.splitlines()[1:3]] == [["12", "4", "3"], ["18", "2", "2"]]
    assert Frequencies.load(out).counts == {1: 1, 2: 3, 3: 1, 9: 1}
    made = json.loads(out.read_text())
    assert made["tokenizer"] == str(texts) and made["files"] == ["a.txt", "b.jsonl"]

    used = command("generate", "-m", texts, "-p", "w1 [MASK] [MASK]", "--sampler", "pc", "--set", f"table={out}")
    assert used.code == 0 and "[MASK]" not in used.out


def test_for_machines(command: Command, texts: Path, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    found = command("frequencies", corpus[0], "--tokenizer", texts, "--out", out, "--json").json
    assert found == {
        "out": str(out),
        "tokenizer": str(texts),
        "num_token": 4,
        "different": 3,
        "files": [{"path": str(corpus[0]), "bytes": 12, "tokens": 4, "different": 3}],
    }


def test_many_unknown_tokens_are_remarked_upon(command: Command, sudoku: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1abc")
    outcome = command("frequencies", tmp_path / "a.txt", "--model", sudoku, "--out", tmp_path / "table.json")
    assert outcome.code == 0 and "75% of the tokens are unknown" in outcome.err


def test_refusals(command: Command, texts: Path, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    text, lines = corpus
    run = ("frequencies", "--model", texts, "--out", out)
    assert command(*run, tmp_path / "no.txt").is_refusal("no.txt is not there")
    assert command(*run, tmp_path).is_refusal("is a folder")
    assert command(*run, lines).is_refusal("has no 'text' but 'body'")
    assert command("frequencies", text, "--out", out).is_refusal("no tokenizer", "--model")
    assert command("frequencies", text, "--out", tmp_path, "-m", texts).is_refusal("is a folder")
    assert command("frequencies", text, "--out", tmp_path / "no" / "t.json", "-m", texts).is_refusal("does not exist")
    assert command("frequencies", text, "--out", text, "-m", texts).is_refusal("is a file of the corpus")
    assert command("frequencies", text, "--out", out, "-m", tmp_path / "nowhere").is_refusal("nowhere")
    assert command("frequencies", "--out", out, "-m", texts).code == 2
    assert not out.exists()


def test_a_model_without_tokenizer(command: Command, damaged: Path, corpus: tuple[Path, Path], tmp_path: Path) -> None:
    for path in damaged.glob("*token*"):
        path.unlink()
    outcome = command("frequencies", corpus[0], "--model", damaged, "--out", tmp_path / "table.json")
    assert outcome.is_refusal("tokenizer")


def test_a_bad_table_at_the_command_line(command: Command, texts: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"num_token": 4,')
    run = ("generate", "-m", texts, "-p", "w1 [MASK]", "--sampler", "pc", "--set")
    assert command(*run, f"table={tmp_path / 't.json'}").is_refusal("is not whole JSON")
    (tmp_path / "t.json").write_text('{"num_token": 4, "p_baseline_dict": {"67": 4}}')
    assert command(*run, f"table={tmp_path / 't.json'}").is_refusal("counts token id 67", "ends at 66")
