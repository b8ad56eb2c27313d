"""`tabes samplers`: every decoding rule, what it is made of and what can be set on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from tabes.cli._options import Json
from tabes.cli._output import console, print_json
from tabes.errors import UsageError

if TYPE_CHECKING:
    from tabes.cli._catalogue import Piece, Rule
    from tabes.settings import Setting

__all__ = ["samplers"]


def samplers(
    name: Annotated[
        str | None, typer.Argument(help="Everything about this one: a sampler, or one of the parts.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print docs/samplers.md.")] = False,
    as_json: Json = False,
) -> None:
    """List the decoding rules, or all there is to know of one.

    \b
    One rule, or one part, with its parameters, source and known departures:
      tabes samplers boe
    Set parameters with --set in generate, or after ':' in compare:
      tabes generate ... --sampler margin --set tokens_per_step=2
      tabes compare --samplers margin,margin:tokens_per_step=2
    Any budget and any reviser go with any rule that is not one whole transition:
      tabes compare -s margin,margin:budget=threshold:threshold=0.8
      tabes compare -s margin,margin:reviser=loop:loops=8
    """
    from tabes.cli._catalogue import Rule, look_up, rules
    from tabes.cli._catalogue_page import page

    if markdown:
        if name is not None or as_json:
            raise UsageError("--markdown prints the whole page; leave out the name and --json")
        typer.echo(page(), nl=False)
    elif name is not None:
        found = look_up(name)
        if as_json:
            print_json(found.as_dict() if isinstance(found, Rule) else [piece.as_dict() for piece in found])
        elif isinstance(found, Rule):
            _print_rule(found)
        else:
            _print_pieces(found)
    elif as_json:
        print_json(_everything())
    else:
        _print_all(rules())


def _everything() -> dict[str, object]:
    from tabes.cli._catalogue import KINDS, pieces, rules

    parts = {f"{kind}s": [piece.as_dict() for piece in pieces(kind)] for kind in KINDS}
    return {"samplers": [one.as_dict() for one in rules()], **parts}


def _print_all(known: tuple[Rule, ...]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tabes.cli._catalogue import KINDS, families

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("sampler", "what it does", "from"):
        shown.add_column(column)
    for family, members in families(known).items():
        shown.add_row()
        shown.add_row(f"[bold]{family}[/bold]")
        for one in members:
            shown.add_row(one.name, escape(one.preset.summary), escape(one.preset.paper))
    terminal = console()
    terminal.print(shown)
    terminal.print("\n[bold]parts[/bold] that go together, by name or as budget=, reviser=", soft_wrap=True)
    for kind, registry in KINDS.items():
        if kind != "writer":
            terminal.print(f"{kind + 's':<10}{', '.join(registry.names())}", soft_wrap=True)
    terminal.print(
        "\nAll about one of them: tabes samplers NAME.  @cache=N in a comparison: row cache.", soft_wrap=True
    )


def _print_rule(one: Rule) -> None:
    preset = one.preset
    known = {
        "is": preset.summary,
        "family": preset.family,
        "paper": preset.paper,
        "made of": ", ".join(f"{piece.kind} {piece.name}" for piece in one.pieces),
        "revises": "yes: written tokens may change until the end" if one.revises else "no",
        "costs": preset.cost,
        "choose it": preset.choose,
        "source": preset.source,
        "verified": preset.verified,
        "departs": preset.departures,
    }
    _print_facts(one.name, known)
    for piece in one.pieces:
        if (piece.kind, piece.name) != ("budget", "even"):
            console().print()
            _print_text(piece)
    _print_settings("its own parameters", one.own)
    _print_settings("what rules made of parts take", one.shared)


def _print_pieces(found: Sequence[Piece]) -> None:
    for piece in found:
        _print_text(piece)
        _print_settings("parameters", piece.settings)


def _print_text(piece: Piece) -> None:
    console().print(f"[bold]{piece.kind} {piece.name}[/bold]")
    console().print(piece.text, markup=False)


def _print_facts(title: str, facts: dict[str, str]) -> None:
    from rich.markup import escape
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        shown.add_column()
    for what, text in facts.items():
        if text:
            shown.add_row(what, escape(text))
    console().print(f"[bold]{title}[/bold]")
    console().print(shown)


def _print_settings(title: str, settings: Sequence[Setting]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from tabes.cli._catalogue import spelled, values

    if not settings:
        return
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in (title, "default", "values", "what it is"):
        shown.add_column(column)
    for one in settings:
        shown.add_row(*map(escape, (one.name, spelled(one.default), values(one.range), one.help)))
    console().print()
    console().print(shown)
