"""Tables of token counts: read, refused, made from text, written whole."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from copy import deepcopy
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tabes.errors import UsageError
from tabes.frequencies import Frequencies, FrequencyWarning, count, count_file, count_files, table
from tests.conftest import GOLDEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CPU = torch.device("cpu")


def written(folder: Path, content: Any) -> Path:
    path = folder / "table.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_published_format() -> None:
    path = GOLDEN / "pc_frequency_table.json"
    found = Frequencies.load(path)
    given_ = json.loads(path.read_text())
    assert found.num_tokens == given_["num_token"]
    surprise_V = found.surprise(67, CPU)
    for token in (0, 1, 4, 8, 65):
        f = given_["p_baseline_dict"].get(str(token), 1) / given_["num_token"]
        assert float(surprise_V[token]) == pytest.approx(-log(f + 1e-9), rel=1e-6)
    assert "8" not in given_["p_baseline_dict"]


def test_the_key_of_the_builder(tmp_path: Path) -> None:
    path = written(tmp_path, {"num_token": 10, "token_frequency_dict": {"3": 9}, "anything": None})
    assert Frequencies.load(path).counts == {3: 9}


def test_frequencies_of_zero_and_one_are_finite() -> None:
    surprise_V = Frequencies({0: 8, 1: 0}, total=8).surprise(2, CPU)
    assert surprise_V.tolist() == pytest.approx([0.0, -log(1e-9)])
    assert surprise_V[0] >= 0


def test_the_vector_follows_the_model() -> None:
    found = Frequencies({0: 3, 2: 1})
    assert found.num_tokens == 4
    assert found.surprise(3, CPU).shape == (3,) and found.surprise(5, CPU).shape == (5,)
    with pytest.raises(UsageError, match="counts token id 2, but the model's vocabulary ends at 1; make one"):
        found.surprise(2, CPU)


BROKEN = {
    "empty": ("", "is empty; make it again"),
    "truncated": ('{"num_token": 4, "p_baseline_dict": {"0": 1', "is not whole JSON"),
    "list": ([1, 2], "holds a list; it must be an object with p_baseline_dict or token_frequency_dict"),
    "no counts": ({"num_token": 4}, "has neither 'p_baseline_dict' nor 'token_frequency_dict'"),
    "no total": ({"p_baseline_dict": {"0": 1}}, "has no 'num_token'"),
    "empty counts": ({"num_token": 4, "p_baseline_dict": {}}, "has no counts"),
    "counts as list": ({"num_token": 4, "p_baseline_dict": [4]}, "has a list under 'p_baseline_dict'"),
    "words as keys": ({"num_token": 4, "p_baseline_dict": {"the": 4}}, "has a count for 'the'; its keys must be"),
    "negative key": ({"num_token": 4, "p_baseline_dict": {"-1": 4}}, "has a count for '-1'"),
    "negative count": ({"num_token": 4, "p_baseline_dict": {"1": -4}}, "counts token 1 -4 times"),
    "share": ({"num_token": 4, "p_baseline_dict": {"1": 0.25}}, "counts token 1 0.25 times; counts must be whole"),
    "text": ({"num_token": 4, "p_baseline_dict": {"1": "4"}}, "counts token 1 '4' times"),
    "bool": ({"num_token": 4, "p_baseline_dict": {"1": True}}, "counts token 1 True times"),
    "nan": ('{"num_token": 4, "p_baseline_dict": {"1": NaN}}', "counts token 1 nan times"),
    "infinite": ('{"num_token": 4, "p_baseline_dict": {"1": Infinity}}', "counts token 1 inf times"),
    "nan total": ('{"num_token": NaN, "p_baseline_dict": {"1": 4}}', "says num_token is nan"),
    "null total": ({"num_token": None, "p_baseline_dict": {"1": 4}}, "says num_token is None"),
    "zero total": ({"num_token": 0, "p_baseline_dict": {"1": 0}}, "says num_token is 0; it must be"),
    "small total": ({"num_token": 4, "p_baseline_dict": {"1": 5}}, "counts a token 5 times among 4 in all"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_broken_tables_get_one_sentence(tmp_path: Path, name: str) -> None:
    content, words = BROKEN[name]
    path = written(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        Frequencies.load(path)
    assert words in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_tables(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        Frequencies.load(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        Frequencies.load(tmp_path / "binary")


def test_the_contaminated_table_warns_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_told", set())
    path = written(tmp_path, {"num_token": 1_677_991_882, "p_baseline_dict": {"0": 5}})
    with pytest.warns(FrequencyWarning, match="includes the evaluation sets"):
        Frequencies.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Frequencies.load(path)


@given(st.dictionaries(st.integers(0, 10**6), st.integers(0, 10**12), min_size=1), st.integers(0, 10**9))
def test_what_was_saved_is_loaded(tmp_path_factory: pytest.TempPathFactory, counts: dict[int, int], more: int) -> None:
    path = tmp_path_factory.getbasetemp() / "saved.json"
    saved = Frequencies(counts, total=sum(counts.values()) + more + 1)
    saved.save(path, tokenizer="mine")
    found = Frequencies.load(path)
    assert (found.counts, found.total) == (counts, saved.total)
    assert json.loads(path.read_text())["tokenizer"] == "mine"
    assert not path.with_name("saved.json.tmp").exists()


def test_saving_is_all_or_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "before")
    with pytest.raises(TypeError):
        Frequencies({0: 1}).save(path, about=object())
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["table.json"]


TEXT = "w1 w2\n\nw3 w1\n  w5 unknown w6" + " w7" * 40 + "\r\nw8\n"


@pytest.mark.parametrize("piece", [1, 7, 50, 1 << 16])
def test_a_streamed_text_counts_like_the_whole(
    tmp_path: Path, words: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    """Wherever reads end: pieces are cut between lines or words. (Byte by byte even words are cut, so not checked.)"""
    monkeypatch.setattr(count, "_PIECE", piece)
    monkeypatch.setattr(count, "_BATCH", piece)
    path = tmp_path / "text.txt"
    path.write_text("\ufeff" + TEXT, encoding="utf-8", newline="")
    read: list[float] = []
    found = count_file(path, words, on_bytes=read.append)
    assert sum(read) == found.size == path.stat().st_size
    whole = Counter(words(TEXT, add_special_tokens=False)["input_ids"])
    assert found.tokens >= whole.total()
    if piece > 1:
        assert found.counts == whole


def test_a_long_word_is_not_held_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(count, "_PIECE", 10)
    path = tmp_path / "text.txt"
    path.write_text("x" * 1000, encoding="utf-8")
    pieces = list(count._text(path, lambda done: None))
    assert "".join(pieces) == "x" * 1000 and max(map(len, pieces)) <= 20


def test_lines_of_json(tmp_path: Path, words: PreTrainedTokenizerFast) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "w1 w2", "other": 1}\n\n{"text": ""}\n{"text": "w2"}\n', encoding="utf-8")
    read: list[float] = []
    assert count_file(path, words, on_bytes=read.append).counts == {1: 1, 2: 2}
    assert sum(read) == path.stat().st_size
    path.write_text('{"body": "w4"}\n', encoding="utf-8")
    assert count_file(path, words, key="body").counts == {4: 1}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"body": "w1"}', "line 2 of {} has no 'text' but 'body'; name the field"),
        ('{"text": ["w1"]}', "line 2 of {} has a list under 'text'; it must be text"),
        ('["w1"]', "line 2 of {} is a list; a .jsonl file has one object per line"),
        ('{"text": "w1', "line 2 of {} is not JSON"),
    ],
)
def test_broken_lines(tmp_path: Path, words: PreTrainedTokenizerFast, line: str, expected: str) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "w1"}\n' + line, encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        count_file(path, words)
    assert expected.format(path) in str(caught.value)


@pytest.mark.parametrize("name", ["text.txt", "text.jsonl"])
def test_bytes_that_are_no_text(tmp_path: Path, words: PreTrainedTokenizerFast, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b'{"text": "\xff\xfe\x81"}')
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        count_file(path, words)


def test_nothing_to_count(tmp_path: Path, words: PreTrainedTokenizerFast) -> None:
    empty, strange = tmp_path / "empty.txt", tmp_path / "strange.txt"
    empty.write_text("")
    strange.write_text("nothing of this")
    with pytest.raises(UsageError, match="there is no text in the corpus"):
        count_files([empty], words)
    knows_unknown = deepcopy(words)
    knows_unknown.unk_token = "w0"
    with pytest.raises(UsageError, match="knows not one of 3 tokens"):
        count_files([strange, empty], knows_unknown)
    with pytest.raises(UsageError, match="is not there"):
        count_files([tmp_path / "missing.txt"], words)
    with pytest.raises(UsageError, match="is a folder"):
        count_files([tmp_path], words)
