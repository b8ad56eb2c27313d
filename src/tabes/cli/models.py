"""`tabes models`: what can be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabes.cli._options import Json
from tabes.cli._output import console, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from tabes.models import Card

__all__ = ["models"]

_REPLAYS = {"rows": "saves work", "dense": "saves nothing", "no": "not possible"}


def models(as_json: Json = False) -> None:
    """List the bundled models and the kinds of checkpoint that load.

    \b
    Give a name or a folder to any verb with --model:
      tabes generate --model sudoku --prompt ...
      tabes generate --model ./my-checkpoint --prompt ...
    """
    from tabes import bundled
    from tabes.models import cards

    found = [_described(name, bundled.folder(name)) for name in bundled.names()]
    if as_json:
        print_json({"bundled": found, "families": [asdict(card) for card in cards()]})
        return
    shown = console()
    shown.print("[bold]Bundled[/bold]" if found else "This copy of tabes has no bundled model.")
    for model in found:
        shown.print(f"  {model['name']}  ({model['megabytes']} MB)  {model['summary']}", soft_wrap=True)
    shown.print("\n[bold]Tested families[/bold], from the hub or a folder; others may load too")
    shown.print(_families(cards()))


def _families(found: Sequence[Card]) -> Table:
    from rich.table import Table

    shown = Table(box=None, header_style="bold", padding=(0, 1, 0, 2))
    for column in ("architecture", "row cache", "remark"):
        shown.add_column(column)
    for card in found:
        shown.add_row(card.architecture, _REPLAYS[card.replays], card.note)
    return shown


def _described(name: str, folder: Path | None) -> dict[str, Any]:
    assert folder is not None
    card = folder / "README.md"
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    return {
        "name": name,
        "folder": str(folder),
        "megabytes": round(size / 1e6, 1),
        "summary": _summary(card.read_text(encoding="utf-8")) if card.is_file() else "",
    }


def _summary(card: str) -> str:
    """The first paragraph of a model card: past the metadata between dashes and the headings."""
    if card.startswith("---"):
        card = card.split("\n---", 1)[-1].partition("\n")[2]
    paragraphs = (" ".join(part.split()) for part in card.split("\n\n"))
    return next((part for part in paragraphs if part and not part.startswith("#")), "")
