"""The cards of the families: what checkpoints are called, what their ids mean and how their authors use them.

A card speaks where a checkpoint's tokenizer and config are silent. The table is `cards.toml`; no model is
loaded here.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any, Literal, NamedTuple

from tabes.errors import UnknownNameError

__all__ = ["Architecture", "Card", "Setting", "Token", "card_named", "card_of", "cards"]


class Token(NamedTuple):
    """A special token: how a text writes it, and its id."""

    text: str
    id: int


class Architecture(NamedTuple):
    """What a config calls a network, and what a replay of it computes: rows, the dense canvas, or nothing at all."""

    name: str
    replays: Literal["rows", "dense", "no"]
    note: str = ""


@dataclass(frozen=True)
class Setting:
    """What the authors use for a task, with all checkpoints if none is named; `parameters` are the sampler's."""

    task: str
    sampler: str
    max_new_tokens: int
    checkpoint: str = ""
    block_length: int | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    suppress: tuple[int, ...] = ()


@dataclass(frozen=True)
class Card:
    """One family.

    Attributes:
        name: As `tabes models` takes it.
        title: For people.
        licence: Of the weights, unless it says otherwise.
        end_of_text: What must be done about end tokens, if anything.
        note: The sentence a user must know.
        page: Where it is described.
        repositories: Of the hub, or our own names; the first are examples where a family is open.
        chats: Those of them that were taught to answer.
        model_types: As in a config, in small letters; any if empty.
        keys: What a config of the family has at least.
        architectures: The networks in it.
        paper: Numbers of arXiv, or other identifiers.
        context: How many tokens it was trained on at a time.
        vocabulary: Rows of the table of embeddings; ids below hold for this size.
        shifted: Whether the output at row j is about row j + 1.
        timed: Whether it is told the time.
        mask: The hole.
        ends: What ends a text. The first is the tokenizer's own.
        pad: What fills a batch.
        template: How a conversation is written, in Jinja, where the tokenizer does not say.
        settings: What its authors publish.
    """

    name: str
    title: str
    licence: str
    end_of_text: str
    note: str
    page: str
    repositories: tuple[str, ...] = ()
    chats: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    paper: str = ""
    context: int | None = None
    vocabulary: int | None = None
    shifted: bool = False
    timed: str = "never"
    mask: Token | None = None
    ends: tuple[Token, ...] = ()
    pad: Token | None = None
    template: str | None = field(default=None, repr=False)
    settings: tuple[Setting, ...] = field(default=(), repr=False)

    def repository(self, name: str) -> str | None:
        """The one a name, a folder called like it, or a folder of the hub's cache stands for."""
        path = PurePath(name)
        parts = {name.lower(), path.name.lower(), *(part.lower() for part in path.parts if part.startswith("models--"))}
        known = {one: {one.lower(), one.rpartition("/")[2].lower(), _cached(one)} for one in self.repositories}
        return next((one for one, spellings in known.items() if spellings & parts), None)

    def fits(self, config: Mapping[str, Any]) -> bool:
        """Whether a checkpoint with this config is of the family."""
        if not (self.model_types or self.keys):
            return any(one.name in (config.get("architectures") or ()) for one in self.architectures)
        kind = str(config.get("model_type")).lower()
        return (kind in self.model_types if self.model_types else True) and set(self.keys) <= config.keys()


def _cached(repository: str) -> str:
    return f"models--{repository.replace('/', '--')}".lower()


@cache
def cards() -> tuple[Card, ...]:
    """All cards, in the order of the file."""
    text = files("tabes.models").joinpath("cards.toml").read_text(encoding="utf-8")
    return tuple(_card(entry) for entry in tomllib.loads(text)["family"])


def card_of(name: str, config: Mapping[str, Any]) -> Card | None:
    """By config, or by one of our own names, which configs do not tell apart."""
    own = (card for card in cards() if name in card.repositories and "/" not in name)
    return next(own, None) or next((card for card in cards() if card.fits(config)), None)


def card_named(name: str) -> Card:
    """By its own name or that of one of its checkpoints."""
    for card in cards():
        if name.lower() == card.name or card.repository(name):
            return card
    raise UnknownNameError("family of models", name, [card.name for card in cards()])


def _card(entry: Mapping[str, Any]) -> Card:
    """From the file's tables; whatever is a list there is a tuple here."""
    made: dict[str, Any] = {name: _plain(value) for name, value in entry.items()}
    made["architectures"] = tuple(Architecture(**one) for one in entry.get("architectures", ()))
    made["settings"] = tuple(_setting(one) for one in entry.get("settings", ()))
    made["ends"] = _tokens(entry.get("ends", ()))
    for name in ("mask", "pad"):
        made[name] = Token(**entry[name]) if name in entry else None
    return Card(**made)


def _setting(entry: Mapping[str, Any]) -> Setting:
    parameters = {name: None if value == "none" else value for name, value in entry.get("parameters", {}).items()}
    return Setting(**{name: _plain(value) for name, value in entry.items()} | {"parameters": parameters})


def _tokens(entries: Iterable[Mapping[str, Any]]) -> tuple[Token, ...]:
    return tuple(Token(**entry) for entry in entries)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
