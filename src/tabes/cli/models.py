"""`tabes models`: what can be loaded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tabes.cli._cards import as_dict, find_card, show_card, show_cards
from tabes.cli._options import Device, Dtype, Json
from tabes.cli._output import console, print_json
from tabes.cli._packages import fetch_packages, show_packages
from tabes.cli._plan import PlanBatch, PlanLength, PlanMasked, PlanName, PlanSampler, show_plan
from tabes.errors import UsageError

__all__ = ["models"]


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A family, one of its checkpoints, or a folder.")
    ] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Download a package with a trained model in it. Repeatable."),
    ] = None,
    plan: PlanName = None,
    length: PlanLength = 4096,
    batch: PlanBatch = 1,
    masked: PlanMasked = None,
    sampler: PlanSampler = None,
    dtype: Dtype = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """List the bundled models, the packages with a model in them, and the families of checkpoints that load.

    \b
    All about a family, from its ids to the settings its authors publish:
      tabes models llada
      tabes models Dream-org/Dream-v0-Instruct-7B
      tabes models ./my-checkpoint

    \b
    Give a name or a folder to any verb with --model:
      tabes generate --model sudoku --prompt ...
      tabes generate --model ./my-checkpoint --prompt ...

    \b
    Some packages hold trained models of others; they are only downloaded, never installed or imported:
      tabes models --fetch rxnmapper
      tabes generate --model rxnmapper --prompt "CCO.CC(=O)O>>CCOC[MASK]=O)C"

    \b
    The memory a model will take, planned from its sizes alone (--dtype and --device as for the other verbs):
      tabes models --plan GSAI-ML/LLaDA-8B-Base --length 4096 --batch 8 --masked 256 --sampler boe
    """
    if plan is not None:
        asked = {"dtype": dtype, "device": device, "sampler": sampler}
        show_plan(plan, length=length, batch=batch, masked=masked, as_json=as_json, **asked)
    elif fetch:
        if name is not None:
            raise UsageError(f"--fetch takes the name itself: tabes models --fetch {name}")
        fetch_packages(fetch, as_json=as_json)
    elif name is not None:
        _one(name, as_json)
    else:
        _all(as_json)


def _one(name: str, as_json: bool) -> None:
    card = find_card(name)
    if as_json:
        print_json(as_dict(card))
    else:
        show_card(console(), card)


def _all(as_json: bool) -> None:
    from tabes import bundled
    from tabes.models import cards
    from tabes.models.wheels import wheels

    found = [_described(name, bundled.folder(name)) for name in bundled.names()]
    if as_json:
        packages = [asdict(wheel) for wheel in wheels()]
        print_json({"bundled": found, "packages": packages, "families": [as_dict(card) for card in cards()]})
        return
    shown = console()
    shown.print("[bold]Bundled[/bold]" if found else "This copy of tabes has no bundled model.")
    for model in found:
        shown.print(f"  {model['name']}  ({model['megabytes']} MB)  {model['summary']}", soft_wrap=True)
    show_packages(shown)
    show_cards(shown, cards())


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
