"""Where output goes: results to stdout, progress and remarks to stderr, and progress only when a person is watching."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "is_watched", "print_json", "progress", "remark", "warnings_remarked"]

# Tables in a pipe keep their columns, whatever the reader's width.
_PIPE_WIDTH = 160


def print_json(value: Any) -> None:
    """The one thing a verb prints with --json."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def remark(text: str) -> None:
    """Something worth knowing that is not the result."""
    typer.echo(f"tabes: {text}", err=True)


@contextmanager
def warnings_remarked() -> Iterator[None]:
    """Warnings as remarks: one sentence each, without the file and the line they come from."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *others: remark(str(message))
        yield


def is_watched() -> bool:
    """Whether a person sees stderr."""
    return sys.stderr.isatty()


def console() -> Console:
    """Stdout, as wide as the terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


@contextmanager
def progress(description: str, total: float) -> Iterator[Callable[[float], None]]:
    """A bar on stderr; yields what to call with the work done since the last call. Nothing at all in a pipe."""
    if not is_watched():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda done: bar.advance(task, done)
