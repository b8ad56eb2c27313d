"""A table of token counts, as PC-Sampler (arXiv 2508.13021) publishes them.

    {"num_token": 245856, "p_baseline_dict": {"0": 16070, "1": 1139, ...}}

`p_baseline_dict` (or `token_frequency_dict`, which that project's own builder writes) has counts by token id. A token
that is not listed counts 1. The relative frequency of v is f(v) = count of v / num_token.
Shapes: V vocabulary.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tabes.errors import UsageError

__all__ = ["SMALLEST", "Frequencies", "FrequencyWarning"]

_COUNTS = ("p_baseline_dict", "token_frequency_dict")
SMALLEST = 1e-9
"""Added to every frequency, which keeps the logarithm of 0 finite; part of the published rule."""
# The number of tokens behind a table -> what its authors counted.
_SAW_EVALUATION = {1_677_991_882: "the table published with PC-Sampler for LLaDA"}
_told: set[int] = set()


class FrequencyWarning(UserWarning):
    """A table whose numbers should not be compared with others without a word."""


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Counts by token id, and how many tokens were counted in all (None: their sum).

    `name` is what errors call it.
    """

    counts: Mapping[int, int] = field(repr=False)
    total: int | None = None
    name: str = "the frequency table"
    _made: dict[tuple[int, torch.device], Tensor] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        _check_counts(self.counts, self.name)
        if self.total is None:
            object.__setattr__(self, "total", sum(self.counts.values()))
        _check_total(self.num_tokens, max(self.counts.values()), self.name)

    @property
    def num_tokens(self) -> int:
        """How many tokens were counted."""
        assert self.total is not None
        return self.total

    @classmethod
    def load(cls, path: str | Path) -> Frequencies:
        """The table in a JSON file; warns once of a table known to have seen the usual evaluation sets."""
        where = f"the frequency table {path}"
        table = _read(Path(path), where)
        counts = {_id(key, where): count for key, count in _counts_in(table, where).items()}
        if "num_token" not in table:
            raise UsageError(f"{where} has no 'num_token', the number of tokens counted; add it")
        _check_total(table["num_token"], 0, where)
        found = cls(counts, table["num_token"], where)
        _warn(found.num_tokens, where)
        return found

    def save(self, path: str | Path, **about: Any) -> None:
        """Write the table whole or not at all; `about` are further keys, which loading ignores."""
        counts = {str(token): count for token, count in sorted(self.counts.items())}
        path = Path(path)
        beside = path.with_name(f"{path.name}.tmp")
        try:
            table = {"num_token": self.num_tokens, _COUNTS[0]: counts, **about}
            beside.write_text(json.dumps(table, indent=0), encoding="utf-8")
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    def surprise(self, vocab_size: int, device: torch.device) -> Tensor:
        """-log(f(v) + 1e-9) for every token (V,), made once for each vocabulary size and device."""
        key = (vocab_size, device)
        if key not in self._made:
            self._made[key] = self._surprise(vocab_size).to(device)
        return self._made[key]

    def _surprise(self, vocab_size: int) -> Tensor:
        largest = max(self.counts)
        if largest >= vocab_size:
            raise UsageError(
                f"{self.name} counts token id {largest}, but the model's vocabulary ends at {vocab_size - 1}; "
                "make one with this model's tokenizer (tabes frequencies)"
            )
        counts_V = torch.ones(vocab_size, dtype=torch.float64)
        counts_V[torch.tensor(list(self.counts))] = torch.tensor(list(self.counts.values()), dtype=torch.float64)
        # A text of one token only: rounding must not make its surprise negative.
        return -(counts_V / self.num_tokens + SMALLEST).clamp(max=1.0).log().float()


def _read(path: Path, where: str) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{where} cannot be read ({error.strerror}); give the path of a JSON file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{where} is not UTF-8 text; give a JSON file") from None
    if not text.strip():
        raise UsageError(f"{where} is empty; make it again (tabes frequencies)")
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not whole JSON ({error}); fetch or make it again") from None
    if not isinstance(table, dict):
        raise UsageError(f"{where} holds a {type(table).__name__}; it must be an object with {' or '.join(_COUNTS)}")
    return table


def _counts_in(table: dict[str, Any], where: str) -> dict[str, Any]:
    for key in _COUNTS:
        if key in table:
            counts = table[key]
            if isinstance(counts, dict):
                return counts
            raise UsageError(f"{where} has a {type(counts).__name__} under '{key}'; it must be counts by token id")
    raise UsageError(f"{where} has neither '{_COUNTS[0]}' nor '{_COUNTS[1]}'; one of them holds the counts by token id")


def _id(key: str, where: str) -> int:
    if not (key.isascii() and key.isdigit()):
        raise UsageError(f"{where} has a count for {key!r}; its keys must be token ids, whole numbers from 0 on")
    return int(key)


def _check_counts(counts: Mapping[int, int], where: str) -> None:
    if not counts:
        raise UsageError(f"{where} has no counts; it needs at least one token")
    for token, count in counts.items():
        if not _whole(token):
            raise UsageError(f"{where} has a count for {token!r}; its keys must be token ids, whole numbers from 0 on")
        if not _whole(count):
            raise UsageError(f"{where} counts token {token} {count!r} times; counts must be whole numbers from 0 on")


def _check_total(total: object, largest: int, where: str) -> None:
    if not isinstance(total, int) or not _whole(total) or total < 1:
        raise UsageError(f"{where} says num_token is {total!r}; it must be a whole number of 1 or more")
    if largest > total:
        raise UsageError(f"{where} counts a token {largest} times among {total} in all; num_token must not be smaller")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _warn(total: int, where: str) -> None:
    if total in _SAW_EVALUATION and total not in _told:
        _told.add(total)
        text = (
            f"{where} is {_SAW_EVALUATION[total]}, counted over text that includes the evaluation sets; "
            "say so beside your numbers, or make one from other text (tabes frequencies)"
        )
        warnings.warn(text, FrequencyWarning, stacklevel=3)
