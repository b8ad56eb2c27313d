"""`tabes compare`: the same items with several rules, paired."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tabes.cli._options import BlockLength, CacheEvery, Device, Dtype, Json, Model, NumSteps, Temperature, every
from tabes.cli._output import console, print_json, progress, remark

__all__ = ["compare"]


def compare(
    model: Model = "sudoku",
    samplers: Annotated[
        str,
        typer.Option(
            "--samplers",
            "-s",
            help="Names separated by commas; the others are compared with the first. Parameters after ':', the row "
            "cache and tokens that must not come after '@': margin:num_steps=9@cache=4@suppress=end",
        ),
    ] = "confidence,margin,entropy,random",
    task: Annotated[str, typer.Option(help="What to decode; parameters after ':' as in sudoku:clues=28.")] = "sudoku",
    clues: Annotated[int | None, typer.Option(help="Short for --task sudoku:clues=N (32 unless told).")] = None,
    items: Annotated[int, typer.Option("--items", "-n", help="How many items.")] = 64,
    seed: Annotated[int, typer.Option(help="Chooses the items and makes draws repeatable.")] = 0,
    num_steps: NumSteps = None,
    tokens_per_step: Annotated[int | None, typer.Option(help="Tokens written at every step, instead.")] = None,
    block_length: BlockLength = None,
    temperature: Temperature = None,
    cache_every: CacheEvery = None,
    batch_size: Annotated[int, typer.Option(help="Items decoded together. Changes speed, not results.")] = 64,
    dtype: Dtype = None,
    device: Device = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write every item's row to this file, a JSON object per line.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare rules on the same items: what is right, what it cost, how sure.

    Differences are paired: every rule decodes the same items, and only items where two rules disagree count.

    \b
    Four rules on 64 Sudokus:
      tabes compare --model sudoku --samplers confidence,margin,entropy,random
    What do two tokens at once, or the row cache, save and cost?
      tabes compare -s confidence,confidence:tokens_per_step=2,confidence@cache=4
    What does another budget, or a reviser, do to a rule?
      tabes compare -s confidence,confidence:budget=threshold:threshold=0.8
      tabes compare -s confidence,confidence:reviser=loop:loops=8
    """
    import tabes
    from tabes.bench import parse_samplers, parse_task, run, summarise, write_rows
    from tabes.bench.report import note, table

    shared = {"num_steps": num_steps, "tokens_per_step": tokens_per_step, "temperature": temperature}
    specs = parse_samplers(samplers, shared, every(cache_every))
    chosen = parse_task(task, {"clues": clues})
    denoiser = tabes.load(model, dtype=dtype, device=device)
    with progress("comparing", items * len(specs)) as advance:
        rows = list(
            run(
                denoiser,
                chosen,
                specs,
                items=items,
                seed=seed,
                batch_size=batch_size,
                block_length=block_length,
                on_items=advance,
            )
        )
    if out is not None:
        write_rows(out, rows)
    summaries = summarise(rows)
    if as_json:
        first = {"model": model, "task": task, "items": items, "seed": seed}
        print_json(first | {"samplers": [summary.as_dict() for summary in summaries]})
        return
    console().print(table(summaries))
    remark(note(summaries))
