"""The part of `tabes models` about families: one line each, or all about one."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabes.errors import ModelError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tabes.models.cards import Card, Setting, Token

__all__ = ["as_dict", "find_card", "options_of", "show_card", "show_cards"]

_REPLAYS = {"rows": "saves work", "dense": "saves nothing", "no": "not possible"}


def find_card(name: str) -> Card:
    """Of a family, of one of its checkpoints, or of what lies in a folder."""
    from tabes.models.cards import card_named, card_of

    path = Path(name) / "config.json"
    if not path.is_file():
        return card_named(name)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        config = None
    card = card_of(name, config) if isinstance(config, dict) else None
    if card is None:
        raise ModelError(f"{path} is of no family with a card; tabes models lists them")
    return card


def show_cards(shown: Console, cards: Sequence[Card]) -> None:
    """One line each."""
    table = _table("name", "what", "licence", "what to know", header=True)
    for card in cards:
        table.add_row(card.name, card.title, card.licence, card.note)
    shown.print("\n[bold]Families[/bold], from the hub or a folder; all about one: tabes models NAME")
    shown.print(table)


def show_card(shown: Console, card: Card) -> None:
    """Everything on it."""
    from rich.markup import escape

    shown.print(f"[bold]{card.name}[/bold]")
    facts = _table("", "")
    for name, value in _facts(card):
        facts.add_row(name, escape(value))
    shown.print(facts)
    if card.architectures:
        table = _table("architecture", "row cache", "remark", header=True)
        for one in card.architectures:
            table.add_row(one.name, _REPLAYS[one.replays], one.note)
        shown.print("", table)
    if card.settings:
        table = _table("published for", "checkpoint", "options of tabes generate", header=True)
        for setting in card.settings:
            table.add_row(setting.task, setting.checkpoint or "any", options_of(setting))
        shown.print("", table)


def as_dict(card: Card) -> dict[str, Any]:
    """Tokens and architectures by name too, where `asdict` leaves named tuples as they are: lists in JSON."""
    whole = asdict(card)
    named = {"mask": card.mask, "pad": card.pad}
    whole |= {name: None if token is None else token._asdict() for name, token in named.items()}
    whole["ends"] = [token._asdict() for token in card.ends]
    whole["architectures"] = [one._asdict() for one in card.architectures]
    whole["settings"] = [asdict(one) | {"options": options_of(one)} for one in card.settings]
    return whole


def options_of(setting: Setting) -> str:
    """The setting as `tabes generate` takes it."""
    words = ["-s", setting.sampler, "-n", str(setting.max_new_tokens)]
    if setting.block_length is not None:
        words += ["--block-length", str(setting.block_length)]
    for name, value in setting.parameters.items():
        text = "none" if value is None else str(value).lower()
        words += ["--num-steps", text] if name == "num_steps" else ["--set", f"{name}={text}"]
    for token in setting.suppress:
        words += ["--suppress", str(token)]
    return shlex.join(words)


def _facts(card: Card) -> Iterator[tuple[str, str]]:
    yield "is", card.title
    yield "know", card.note
    yield "checkpoints", ", ".join(card.repositories) or "any with an architecture below"
    if card.chats:
        yield "chat", f"{', '.join(card.chats)}; the tokenizer's chat template, else the card's"
    yield "ids", ", ".join(_ids(card)) or "the tokenizer's, else the config's"
    yield "end of text", card.end_of_text
    yield "reads", f"output row j is about row {'j + 1' if card.shifted else 'j'}"
    yield "hears time", card.timed
    if card.context is not None:
        yield "trained on", f"{card.context} tokens at a time"
    yield "licence", card.licence
    if card.paper:
        yield "paper", card.paper
    yield "page", card.page
    if card.template:
        yield "template", card.template


def _ids(card: Card) -> Iterator[str]:
    kinds: list[tuple[str, Token | None]] = [("mask", card.mask), *(("end", end) for end in card.ends)]
    for kind, token in [*kinds, ("pad", card.pad)]:
        if token is not None:
            yield f"{kind} {token.id} {token.text}"


def _table(*columns: str, header: bool = False) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 2), show_header=header)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
