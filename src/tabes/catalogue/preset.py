"""What is known of a named decoding rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Preset"]


@dataclass(frozen=True)
class Preset:
    """A named choice of parts, or of a kernel.

    Attributes:
        summary: What it writes first, in a few words.
        paper: Where it comes from.
        family: "local", "adaptive", "lookahead", "steered", "revising" or "ancestral".
        ranking, budget, reviser: Its parts by name; or
        kernel: the whole transition by name.
        parameters: What it sets on them, where that differs from their defaults.
        cost: What a step costs besides one forward and one pass over the rows read.
        choose: When it is a good choice.
        source: Which publication or code it follows.
        verified: How that was checked.
        departures: Where it knowingly differs.
    """

    summary: str
    paper: str = ""
    family: str = ""
    ranking: str | None = None
    budget: str = "even"
    reviser: str | None = None
    kernel: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cost: str = "nothing more"
    choose: str = ""
    source: str = ""
    verified: str = ""
    departures: str = ""
