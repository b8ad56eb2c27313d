"""Counting the tokens of a corpus as it streams by: text files, or one JSON object per line.

A text file is cut into pieces where a line begins, so a token at one of those cuts (every 64 thousand characters) may
come out otherwise than in the whole text. Special tokens that a tokenizer would add are not counted.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from tabes.errors import UsageError
from tabes.frequencies.table import Frequencies

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["FileCount", "count_file", "count_files"]

# Characters in a piece, and in what is handed to the tokenizer at once.
_PIECE, _BATCH = 1 << 16, 1 << 20
_LINE_BEGINS = re.compile(r"\n(?=\S)")

Told = Callable[[float], None]


@dataclass(frozen=True)
class FileCount:
    """What was found in one file."""

    path: Path
    size: int
    counts: Counter[int] = field(repr=False)

    @property
    def tokens(self) -> int:
        return self.counts.total()


def count_files(
    paths: Sequence[str | Path],
    tokenizer: PreTrainedTokenizerBase,
    *,
    key: str = "text",
    on_bytes: Told = lambda done: None,
) -> tuple[Frequencies, tuple[FileCount, ...]]:
    """The table of a corpus, and what each file added. `key` is where a line of a .jsonl file has its text."""
    files = tuple(count_file(path, tokenizer, key=key, on_bytes=on_bytes) for path in paths)
    counts = Counter[int]()
    for one in files:
        counts.update(one.counts)
    if not counts:
        raise UsageError("there is no text in the corpus, so nothing to count; give files with text")
    if set(counts) <= {tokenizer.unk_token_id}:
        raise UsageError(f"the tokenizer knows not one of {counts.total()} tokens; give the model's own tokenizer")
    return Frequencies(counts, name="the new frequency table"), files


def count_file(
    path: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    *,
    key: str = "text",
    on_bytes: Told = lambda done: None,
) -> FileCount:
    """The tokens of one file. `on_bytes` hears how many bytes were read since it was last called."""
    path, counts = Path(path), Counter[int]()
    size = check_file(path)
    pieces = _records(path, key, on_bytes) if path.suffix == ".jsonl" else _text(path, on_bytes)
    try:
        for batch in _batches(pieces):
            found = tokenizer(batch, add_special_tokens=False, truncation=False, verbose=False)
            counts.update(chain.from_iterable(found["input_ids"]))
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; convert it first") from None
    return FileCount(path, size, counts)


def check_file(path: Path) -> int:
    """The size of a file to be counted."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise UsageError(f"the corpus file {path} is {what}; give text files, or .jsonl files")
    return path.stat().st_size


def _text(path: Path, on_bytes: Told) -> Iterator[str]:
    rest, seen = "", 0
    with path.open("rb") as raw, TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
        while chunk := file.read(_PIECE):
            text = rest + chunk
            cut = _cut(text)
            yield text[:cut]
            rest = text[cut:]
            on_bytes(raw.tell() - seen)
            seen = raw.tell()
    yield rest


def _cut(text: str) -> int:
    """Where to end a piece: before the last line that does not begin with a space, else before the last word."""
    begins = [match.end() for match in _LINE_BEGINS.finditer(text)]
    if begins:
        return begins[-1]
    space = text.rfind(" ")
    return space if space > 0 else len(text)


def _records(path: Path, key: str, on_bytes: Told) -> Iterator[str]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield _field(line, key, f"line {number} of {path}")
            on_bytes(len(line))


def _field(line: bytes, key: str, where: str) -> str:
    try:
        record = json.loads(line)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON ({error}); a .jsonl file has one object per line") from None
    if not isinstance(record, dict):
        raise UsageError(f"{where} is a {type(record).__name__}; a .jsonl file has one object per line")
    if key not in record:
        raise UsageError(f"{where} has no '{key}' but {', '.join(map(repr, record)) or 'nothing'}; name the field")
    text = record[key]
    if not isinstance(text, str):
        raise UsageError(f"{where} has a {type(text).__name__} under '{key}'; it must be text")
    return text


def _batches(pieces: Iterable[str]) -> Iterator[list[str]]:
    batch, size = list[str](), 0
    for piece in filter(None, pieces):
        batch.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
