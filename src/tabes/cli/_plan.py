"""`tabes models --plan`: the memory a model will take, as a table or as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tabes.cli._output import console, print_json

if TYPE_CHECKING:
    from tabes.planning import Plan

__all__ = ["PlanBatch", "PlanLength", "PlanMasked", "PlanName", "PlanSampler", "show_plan"]

PlanName = Annotated[
    str | None,
    typer.Option("--plan", metavar="NAME", help="Plan the memory of a model: a published one, a folder, a hub name."),
]
PlanLength = Annotated[int, typer.Option("--length", help="With --plan: rows of a canvas, prompt and answer.")]
PlanBatch = Annotated[int, typer.Option("--batch", help="With --plan: canvases decoded together.")]
PlanMasked = Annotated[
    int | None, typer.Option("--masked", help="With --plan: rows to fill. Default: all, an empty canvas.")
]
PlanSampler = Annotated[str | None, typer.Option("--sampler", help="With --plan: the sampler whose total is asked.")]

_ROWS = (
    ("plain", "one forward a step (confidence, margin, entropy, ...)"),
    ("row_cache", "behind a row cache: two memories at a time"),
    ("lookahead", "every candidate written in a copy and replayed"),
    ("boe", "the gradient of a replay of the masked rows"),
)


def show_plan(
    name: str,
    *,
    length: int,
    batch: int,
    masked: int | None = None,
    dtype: str | None = None,
    device: str | None = None,
    sampler: str | None = None,
    as_json: bool = False,
) -> None:
    """Make the plan and print it."""
    from tabes.models.loading import _dtype
    from tabes.planning import plan
    from tabes.planning.ways import candidates_of, ways_of

    ways = () if sampler is None else ways_of(sampler)
    candidates = 4 if sampler is None else candidates_of(sampler, length if masked is None else masked)
    made = plan(
        name,
        length=length,
        batch=batch,
        masked=masked,
        candidates=candidates,
        dtype=_dtype(dtype),
        device=device or "cuda",
    )
    if as_json:
        print_json(made.as_dict() | ({"sampler": sampler, "total": _most(made, ways)} if ways else {}))
    else:
        _print(made, sampler, ways)


def _most(made: Plan, ways: tuple[str, ...]) -> int | None:
    """Of the ways a sampler goes; None where one of them is not possible."""
    totals = [made.total(way) for way in ways]
    return None if None in totals else max(total for total in totals if total is not None)


def _print(made: Plan, sampler: str | None, ways: tuple[str, ...]) -> None:
    from rich.table import Table

    shown = console()
    shown.print(f"[bold]{made.name}[/bold], {made.parameters / 1e6:,.0f} million numbers in {made.dtype}")
    shown.print(f"{made.batch} canvases of {made.length} rows, {made.masked} of them masked")
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    table.add_column(justify="right")
    table.add_column()
    for value, text in (
        (made.weights, "weights"),
        (made.forward, "one forward, at its peak"),
        (made.memory, "remembered keys and values of one forward"),
        (made.logits, "one pass over the vocabulary"),
    ):
        table.add_row(_size(value), text)
    table.add_row("", "")
    for one, text in _ROWS:
        table.add_row(_size(made.total(one)), f"[bold]all in all[/bold], {one.replace('_', ' ')}: {text}")
    shown.print(table)
    if ways:
        shown.print(f"{sampler}: {_size(_most(made, ways))}")
    shown.print(
        "Allocators keep more than is used: leave a tenth free, on a CPU more (docs/memory.md).", soft_wrap=True
    )


def _size(value: int | None) -> str:
    if value is None:
        return "not possible"
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"
