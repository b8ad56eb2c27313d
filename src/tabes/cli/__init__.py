"""The command line: one file per verb. Errors are one sentence on stderr; 0 done, 1 failed, 2 bad usage, 130 stopped.

Only typer is imported here; each verb imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import tabes
from tabes.cli.compare import compare
from tabes.cli.demo import demo
from tabes.cli.fidelity import fidelity
from tabes.cli.frequencies import frequencies
from tabes.cli.generate import generate
from tabes.cli.models import models
from tabes.cli.samplers import samplers
from tabes.cli.train import train
from tabes.errors import TabesError

__all__ = ["app", "main"]

app = typer.Typer(
    name="tabes",
    help="Decode masked diffusion language models with any rule, and know what it cost.\n\nStart with: tabes demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS: tuple[Callable[..., None], ...] = (generate, compare, fidelity, train, samplers, models, frequencies, demo)
for _verb in _VERBS:
    app.command()(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tabes {tabes.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


# What typer raises for bad usage; its public name moved between versions of typer, that of its subclass did not.
_BadUsage: Any = typer.BadParameter.__base__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    try:
        return int(app(args=arguments, prog_name="tabes", standalone_mode=False) or 0)
    except _BadUsage as error:
        return _failed(error.format_message(), 2)
    except TabesError as error:
        return _failed(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; nothing can be flushed to it any more.
        sys.stdout = None
        return 1
    except (OSError, MemoryError) as error:
        return _failed(f"{type(error).__name__}: {error}", 1)


def _failed(message: str, code: int) -> int:
    # Without a verb typer has shown the help and has nothing more to say.
    if message:
        typer.echo(f"tabes: {' '.join(message.split())}", err=True)
    return code
