"""The families the loader was tested on; others may work, and loading finds out what they can do."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

__all__ = ["Card", "cards"]


@dataclass(frozen=True)
class Card:
    """One transformers architecture.

    Attributes:
        architecture: As in a checkpoint's config.
        replays: "rows" where only the rows asked for are computed, "dense" where a replay computes the whole canvas,
            "no" where there are forwards only.
        note: What is worth knowing; may be empty.
    """

    architecture: str
    replays: Literal["rows", "dense", "no"]
    note: str = ""


@cache
def cards() -> tuple[Card, ...]:
    """All cards, in the order of the file."""
    text = files("tabes.models").joinpath("cards.toml").read_text(encoding="utf-8")
    return tuple(Card(**entry) for entry in tomllib.loads(text)["card"])
