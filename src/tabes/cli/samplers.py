"""`tabes samplers`: every decoding rule and what can be set on it."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from tabes.cli._options import Json
from tabes.cli._output import console, print_json

__all__ = ["samplers"]

_FEW = 6


def samplers(as_json: Json = False) -> None:
    """List the decoding rules and their parameters.

    \b
    Set parameters with --set in generate, or after ':' in compare:
      tabes generate ... --sampler margin --set tokens_per_step=2
      tabes compare --samplers margin,margin:tokens_per_step=2
    """
    from tabes.catalogue import PRESETS
    from tabes.parts import BUDGETS, RANKINGS
    from tabes.presets import samplers, settings_of

    own = {name: {one.name: one.default for one in settings_of(name)} for name in samplers()}
    if as_json:
        found = [
            {
                "name": name,
                "summary": PRESETS[name].summary,
                "paper": PRESETS[name].paper or None,
                "parameters": _shared() | parameters,
            }
            for name, parameters in own.items()
        ]
        print_json(found)
        return
    # A rule with many parameters shows what it sets; what else its ranking takes stands below, once.
    rankings = {name: PRESETS[name].ranking for name in own}
    many = {known: RANKINGS.parameters(known) for name, known in rankings.items() if known and len(own[name]) > _FEW}
    short = {name: own[name] if len(own[name]) <= _FEW else PRESETS[name].parameters for name in own}
    _print_table([(name, PRESETS[name].summary, PRESETS[name].paper, _spelled(short[name])) for name in own])
    shown = console()
    for ranking, parameters in many.items():
        names = ", ".join(name for name in own if PRESETS[name].ranking == ranking)
        shown.print(f"\nUnless set above, {names}: {_spelled(parameters)}", soft_wrap=True)
    shown.print(f"\nEvery rule takes: {_spelled(_shared())}", soft_wrap=True)
    shown.print(
        f"Budgets: {', '.join(BUDGETS.names())}.  In a comparison add @cache=N for the row cache.", soft_wrap=True
    )


def _shared() -> dict[str, Any]:
    """What `tabes.sampler` takes for any rule, with defaults."""
    from tabes.presets import sampler

    return {
        name: parameter.default
        for name, parameter in signature(sampler).parameters.items()
        if parameter.kind is Parameter.KEYWORD_ONLY
    }


def _spelled(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'none' if value is None else value}" for name, value in parameters.items())


def _print_table(rows: list[tuple[str, str, str, str]]) -> None:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    columns = ("sampler", "writes first", "from", "own parameters")
    used = [column for at, column in enumerate(columns) if any(row[at] for row in rows)]
    for column in used:
        shown.add_column(column)
    for row in rows:
        shown.add_row(*(cell for column, cell in zip(columns, row, strict=True) if column in used))
    console().print(shown)
