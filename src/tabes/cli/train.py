"""`tabes train`: train a bundled model again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tabes.cli._options import Json
from tabes.cli._output import print_json, progress

if TYPE_CHECKING:
    from tabes.training.loop import LogRow

__all__ = ["train"]


def train(
    what: Annotated[Literal["sudoku"], typer.Argument(help="Which model to train.")],
    out: Annotated[Path, typer.Option(help="Folder for the model, its checkpoint and its log.")],
    steps: Annotated[
        int | None, typer.Option(help="Training steps; unless told as many as the bundled model had.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the first weights, the data and the masks.")] = 0,
    resume: Annotated[bool, typer.Option(help="Go on from the checkpoint in --out, or start over.")] = True,
    as_json: Json = False,
) -> None:
    """Train the bundled Sudoku model again, from nothing.

    Grids are made as it goes; one seed gives one model. Stop it whenever you like: the same command
    goes on where it stopped.

    \b
      tabes train sudoku --out runs/sudoku
      tabes compare --model runs/sudoku/model
    """
    from tabes.errors import UsageError
    from tabes.training.sudoku import RECIPE, train_sudoku

    total = RECIPE.steps if steps is None else steps
    if total < 1:
        raise UsageError(f"--steps is {total}; give at least 1")
    log: list[LogRow] = []
    with progress(f"training {what}", total) as advance:

        def report(row: LogRow) -> None:
            advance(row.step - (log[-1].step if log else 0))
            log.append(row)
            if not as_json:
                typer.echo(_line(row))

        folder = train_sudoku(out, seed=seed, steps=steps, resume=resume, report=report)
    if as_json:
        print_json({"model": str(folder), "seed": seed, "steps": total, "log": [vars(row) for row in log]})
    else:
        typer.echo(f"{folder} is ready; try: tabes compare --model {folder}")


def _line(row: LogRow) -> str:
    losses = f"train {row.train:.4f}  validation {row.validation:.4f} +- {row.validation_error:.4f}"
    return f"step {row.step:6d}  {losses}  (nats per cell)  {row.seconds:.0f} s"
