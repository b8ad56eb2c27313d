"""`tabes fidelity`: how well each score predicts what a write really does."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tabes.cli._options import Device, Dtype, Json, Model
from tabes.cli._output import console, print_json, progress, remark

if TYPE_CHECKING:
    from tabes.bench.fidelity import Fidelity, StateRow

__all__ = ["fidelity"]

_WIDTH = 100


def fidelity(
    model: Model = "sudoku",
    task: Annotated[
        str, typer.Option(help="Where the states come from; parameters after ':' as in sudoku:clues=28.")
    ] = "sudoku:clues=28",
    states: Annotated[int, typer.Option("--states", "-n", help="How many states, one per item of the task.")] = 96,
    candidates: Annotated[
        int, typer.Option("--candidates", "-k", help="How many of the most confident open rows compete in a state.")
    ] = 8,
    scores: Annotated[
        str | None, typer.Option("--scores", "-s", help="Names separated by commas, see above. Default: all of them.")
    ] = None,
    objective: Annotated[
        str, typer.Option(help="What a good write makes small: entropy, block_mean or information_gain.")
    ] = "entropy",
    inject: Annotated[
        Literal["candidates", "all"], typer.Option(help="Which rows a joint injection writes softly.")
    ] = "candidates",
    theory: Annotated[
        bool, typer.Option("--theory/--no-theory", help="Also measure the paper's bound and its corollary.")
    ] = True,
    points: Annotated[int, typer.Option(help="Points on each relaxed path; more of them find more curvature.")] = 17,
    seed: Annotated[int, typer.Option(help="Chooses the items and where each trajectory stops.")] = 0,
    batch_size: Annotated[int, typer.Option(help="States measured together.")] = 16,
    dtype: Dtype = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write every state's row to this file, a JSON object per line.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw score against truth, a panel per score.")] = None,
    as_json: Json = False,
) -> None:
    """How well does each score predict the exact drop of what is left?

    Held-out items are decoded by confidence and stopped anywhere. There each of the surest rows is written and the
    whole canvas predicted anew: how much less entropy is left elsewhere is the truth, which the scores are to rank.

    Scores: confidence, neg-entropy, tis-0, tis-0-exact, tis-literal, tis-half, tis-half-dense, tis-half-avoid,
    tis-half-exclude, tis-half-alone, tis-one, gauss-alone, tis-third-probes, lookahead.

    \b
    The rules of this package on the bundled model, with a picture:
      tabes fidelity --task sudoku:clues=28 --plot fidelity.png
    A quick look at two of them:
      tabes fidelity --states 16 --scores confidence,tis-half --no-theory
    """
    import tabes
    from tabes.bench import parse_task, write_rows
    from tabes.bench.fidelity import Settings, examine, measure, parse_scores, summarise
    from tabes.bench.fidelity.table import note, table, theorem

    chosen, asked = parse_task(task), parse_scores(scores)
    settings = Settings(states, candidates, seed, objective, inject, theory, points, batch_size)
    denoiser = tabes.load(model, dtype=dtype, device=device)
    with progress(f"measuring {states} states", states) as advance:
        rows = measure(denoiser, chosen, asked, settings, on_states=advance)
    if out is not None:
        write_rows(out, rows)
    summaries, examined = summarise(rows), examine(rows)
    drawn = None if plot is None else _picture(plot, rows, summaries)
    if as_json:
        given = {"model": model, "task": task, "states": len(rows), "candidates": candidates, "seed": seed}
        given |= {"objective": objective, "inject": inject, "picture": None if drawn is None else str(drawn)}
        found = {"scores": [summary.as_dict() for summary in summaries]}
        print_json(given | found | {"theory": None if examined is None else examined.as_dict()})
        return
    console().print(table(summaries))
    if examined is not None:
        typer.echo("\n" + fill(theorem(examined), _WIDTH))
    if drawn is not None:
        typer.echo(f"\nScore against truth: {drawn}")
    remark(note(summaries))


def _picture(path: Path, rows: Sequence[StateRow], summaries: Sequence[Fidelity]) -> Path | None:
    """None without matplotlib."""
    if find_spec("matplotlib") is None:
        remark("no picture was drawn: it needs matplotlib, which comes with pip install 'tabes[bench]'")
        return None
    from tabes.bench.fidelity.plot import save_fidelity

    save_fidelity(path, rows, summaries)
    return path
