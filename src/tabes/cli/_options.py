"""Options that several verbs share, so that they are spelled and explained once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from tabes.errors import UsageError

__all__ = [
    "BlockLength",
    "CacheEvery",
    "Device",
    "Dtype",
    "Json",
    "Model",
    "NumSteps",
    "Suppressed",
    "Temperature",
    "every",
    "tokens",
]

Model = Annotated[
    str, typer.Option("--model", "-m", help="A bundled model (see: tabes models), a hub name or a folder.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text for people.")]
NumSteps = Annotated[
    int | None, typer.Option(help="Decoding steps in all; fewer steps write more tokens each. Default: one per token.")
]
BlockLength = Annotated[
    int | None, typer.Option(help="Fill this many tokens, left to right, before the next ones. Default: no blocks.")
]
Temperature = Annotated[
    float | None,
    typer.Option(help="0 writes the most probable token, above 0 draws one. Without it: as the sampler's authors do."),
]
CacheEvery = Annotated[
    str | None,
    typer.Option(
        metavar="N|block",
        help="Row cache: a full forward every N steps (or once per block), in between recompute only what is masked "
        "or was just written. Cheaper, slightly less exact.",
    ),
]
Suppressed = Annotated[
    list[str] | None,
    typer.Option(
        "--suppress", metavar="ID|end", help="A token that must not come; end: the end-of-text tokens. Repeatable."
    ),
]
Dtype = Annotated[
    str | None, typer.Option(help="Weights as float32, bfloat16, float16 or float64. Default: those of the files.")
]
Device = Annotated[str | None, typer.Option(help="Where to run, such as cpu or cuda.")]


def every(text: str | None) -> int | Literal["block"] | None:
    """The value of --cache-every."""
    if text is None:
        return None
    if text == "block":
        return "block"
    if text.isdigit():
        return int(text)
    raise UsageError(f"--cache-every is '{text}'; give a number of steps from 1 on, or 'block'")


def tokens(texts: Sequence[str] | None) -> tuple[int | Literal["end"], ...] | None:
    """The values of --suppress."""
    found: list[int | Literal["end"]] = []
    for text in texts or ():
        if text != "end" and not text.isdecimal():
            raise UsageError(f"--suppress is '{text}'; give a token id, or 'end' for the end-of-text tokens")
        found.append("end" if text == "end" else int(text))
    return tuple(found) or None
