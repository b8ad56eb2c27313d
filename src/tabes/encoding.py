"""Text to ids: special tokens told apart, holes where the tokenizer knows no mask, and what is too long cut."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tabes.denoiser import Denoiser

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = ["CutWarning", "Encoded", "cut_to_fit", "encoded", "hole"]


class CutWarning(UserWarning):
    """A prompt was longer than the model's context and lost its beginning."""


@dataclass(frozen=True)
class Encoded:
    """A prompt's ids: the special tokens before it, the text, and the special tokens that close it."""

    head: list[int]
    body: list[int]
    tail: list[int]

    def __len__(self) -> int:
        return len(self.head) + len(self.body) + len(self.tail)


def hole(base: Denoiser) -> str | None:
    """How a prompt writes a hole; None for a model without a tokenizer."""
    if base.tokenizer is None:
        return None
    return _unknown_hole(base) or next(
        (text for text, i in base.tokenizer.get_added_vocab().items() if i == base.mask_id), base.tokenizer.mask_token
    )


def encoded(base: Denoiser, text: str, *, special: bool) -> Encoded:
    """The text's ids. Without `special` it has its special tokens already (a rendered conversation)."""
    assert base.tokenizer is not None
    unknown = _unknown_hole(base)
    parts = [text] if unknown is None else text.split(unknown)
    body = _plain(base.tokenizer, parts[0])
    for part in parts[1:]:
        body += [base.mask_id, *_plain(base.tokenizer, part)]
    if not special:
        starts = bool(body) and body[0] == base.tokenizer.bos_token_id
        return Encoded(body[:starts], body[starts:], [])
    around = _around(base.tokenizer, max(parts, key=len) or "a")
    if around is None:
        return Encoded([], base.tokenizer.encode(text, verbose=False), [])
    return Encoded(around[0], body, around[1])


def cut_to_fit(base: Denoiser, prompts: Sequence[Encoded], new: int) -> list[Encoded]:
    """What is too long for the context with `new` tokens behind it loses the beginning of its text, with a warning.

    Never a hole, and never all of it: what cannot be cut so stays too long, which is an error where it is decoded.
    """
    limit = base.network.max_length
    if limit is None:
        return list(prompts)
    gone = [_surplus(base, one, limit - new) for one in prompts]
    count, many = sum(map(bool, gone)), len(prompts) > 1
    if count:
        those = f"{count} of {len(prompts)} prompts" if many else "the prompt"
        first = f"{'up to ' if count > 1 else ''}{max(gone)} tokens"
        warnings.warn(
            f"{those} {'are' if count > 1 else 'is'} too long for {base.name}, which takes {limit} tokens with the "
            f"{new} new ones: {first} were left out at the beginning",
            CutWarning,
            stacklevel=4,
        )
    return [replace(one, body=one.body[surplus:]) for one, surplus in zip(prompts, gone, strict=True)]


def _surplus(base: Denoiser, one: Encoded, room: int) -> int:
    surplus = len(one) - room
    before = one.body.index(base.mask_id) if base.mask_id in one.body else len(one.body) - 1
    return surplus if 0 < surplus <= before else 0


def _unknown_hole(base: Denoiser) -> str | None:
    """What we read as a hole ourselves, where the tokenizer has no mask token and cannot write the mask's id."""
    tokenizer = base.tokenizer
    if tokenizer is None or tokenizer.mask_token is not None or base.mask_id in tokenizer.get_added_vocab().values():
        return None
    return "[MASK]" if base.card is None or base.card.mask is None else base.card.mask.text


def _plain(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    # Not verbose: a text over the limit gets our own sentence.
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False, verbose=False)
    return ids


def _around(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[int]] | None:
    """The special ids put before and behind a text; None if they cannot be told from its own."""
    plain, full = _plain(tokenizer, text), tokenizer.encode(text, add_special_tokens=True, verbose=False)
    for start in range(len(full) - len(plain) + 1):
        end = start + len(plain)
        if full[start:end] == plain:
            return full[:start], full[end:]
    return None
