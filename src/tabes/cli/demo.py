"""`tabes demo`: see in under two minutes what a decoding rule changes, with the model inside the package."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tabes.cli._options import Json
from tabes.cli._output import console, print_json, progress, remark

if TYPE_CHECKING:
    from tabes.bench import Row, SamplerSpec
    from tabes.denoiser import Denoiser
    from tabes.tasks import Item

__all__ = ["demo"]

_SAMPLERS = "confidence,boe,boe-verify,left-to-right,random,confidence@cache=4"


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the rows.")] = Path("demo"),
    model: Annotated[
        str, typer.Option("--model", "-m", help="A Sudoku model: the bundled one or a folder.")
    ] = "sudoku",
    items: Annotated[int, typer.Option("--items", "-n", help="How many puzzles.")] = 48,
    clues: Annotated[int, typer.Option(help="Digits given in each puzzle.")] = 27,
    seed: Annotated[int, typer.Option(help="Chooses the puzzles and makes draws repeatable.")] = 0,
    as_json: Json = False,
) -> None:
    """See in two minutes what a decoding rule changes.

    Watch a Sudoku being filled, then many with every rule: what each rule solved and what it cost.
    Saves order.png (the order in which each rule fills the same grid) and rows.jsonl in --out.

    \b
      tabes demo --out demo
    """
    import tabes
    from tabes.bench import parse_samplers, run, summarise, write_rows
    from tabes.bench.report import note, table
    from tabes.tasks import SudokuTask

    task, specs = SudokuTask(clues), parse_samplers(_SAMPLERS)
    denoiser = tabes.load(model)
    puzzles = task.items(items, seed)
    if not as_json:
        _show_one(denoiser, puzzles[0], specs[0])
    with progress(f"decoding {items} puzzles with {len(specs)} rules", items * len(specs)) as advance:
        rows = list(run(denoiser, task, specs, items=items, seed=seed, on_items=advance))
    summaries = summarise(rows)
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "rows.jsonl", rows)
    picture = _picture(out / "order.png", denoiser, puzzles, specs, rows)
    if as_json:
        found = {"items": items, "clues": clues, "seed": seed, "picture": None if picture is None else str(picture)}
        print_json(found | {"samplers": [summary.as_dict() for summary in summaries]})
        return
    console().print(f"\n[bold]{items} puzzles with {clues} given digits, one digit per step[/bold]\n")
    console().print(table(summaries))
    typer.echo(f"\n{note(summaries)}\n\nEvery puzzle's answer: {out / 'rows.jsonl'}")
    if picture is not None:
        typer.echo(f"The order each rule fills the same grid in, a grid the rules disagree on: {picture}")


def _show_one(denoiser: Denoiser, item: Item, spec: SamplerSpec) -> None:
    """One puzzle filled before your eyes."""
    from tabes.bench.tracing import trace
    from tabes.cli._frames import Frames

    typer.echo(f"One puzzle, filled by '{spec.text}': the digit the model is surest of comes first.\n")
    with Frames(console(), denoiser, item) as frames:
        trace(denoiser, item, spec, seed=0, on_canvas=frames.show)


def _picture(
    path: Path, denoiser: Denoiser, puzzles: Sequence[Item], specs: Sequence[SamplerSpec], rows: Sequence[Row]
) -> Path | None:
    """The picture of one puzzle that tells the rules apart; None without matplotlib."""
    if find_spec("matplotlib") is None:
        remark("no picture was drawn: it needs matplotlib, which comes with pip install 'tabes[bench]'")
        return None
    from tabes.bench.order_plot import most_divided, save_orders
    from tabes.bench.tracing import trace

    chosen = most_divided(rows)
    with progress("drawing order.png", len(specs)) as advance:
        traces = []
        for spec in specs:
            traces.append(trace(denoiser, puzzles[chosen.item], spec, seed=chosen.seed))
            advance(1)
        save_orders(path, puzzles[chosen.item], traces)
    return path
