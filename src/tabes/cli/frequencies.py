"""`tabes frequencies`: count the tokens of a corpus for the sampler that wants to know what is common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tabes.cli._options import Json
from tabes.cli._output import console, print_json, progress, remark
from tabes.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tabes.frequencies import FileCount, Frequencies

__all__ = ["frequencies"]

# Beyond this share of unknown tokens the wrong tokenizer is likelier than odd text.
_MANY = 0.1


def frequencies(
    corpus: Annotated[list[Path], typer.Argument(help="Text files, or .jsonl files with an object per line.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the table (JSON).")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Count with the tokenizer of this model: a hub name or a folder."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Count with this tokenizer, where the model has none of its own.")
    ] = None,
    field: Annotated[str, typer.Option(help="Where a line of a .jsonl file has its text.")] = "text",
    as_json: Json = False,
) -> None:
    """Count how often each token occurs in a corpus, for the sampler pc.

    Use text like what the model is to write, but not the items you evaluate on. Files are streamed; only the
    tokenizer is loaded. The table appears when it is whole.

    \b
      tabes frequencies wiki.txt books.jsonl --model ./checkpoint --out table.json
      tabes generate --model ./checkpoint --sampler pc --set table=table.json --prompt ...
    """
    from tabes.frequencies import count_files
    from tabes.frequencies.count import check_file

    sizes = [check_file(path) for path in corpus]
    _check_out(out, corpus)
    name, found = _tokenizer(model, tokenizer)
    with progress("counting", sum(sizes)) as advance:
        table, files = count_files(corpus, found, key=field, on_bytes=advance)
    table.save(out, tokenizer=name, files=[one.path.name for one in files])
    unknown = table.counts.get(found.unk_token_id, 0) / table.num_tokens
    if unknown > _MANY:
        remark(f"{unknown:.0%} of the tokens are unknown to this tokenizer; is it the model's, and the text its kind?")
    if as_json:
        print_json(_described(out, name, table, files))
        return
    _print_table(files)
    typer.echo(f"{out}: {len(table.counts):,} different tokens among {table.num_tokens:,}; the others count 1")


def _check_out(out: Path, corpus: Sequence[Path]) -> None:
    """What would only be found out when everything was counted."""
    if out.is_dir() or not out.absolute().parent.is_dir():
        what = "is a folder" if out.is_dir() else "lies in a folder that does not exist"
        raise UsageError(f"--out {out} {what}; give the path of a file to write")
    if out.resolve() in [path.resolve() for path in corpus]:
        raise UsageError(f"--out {out} is a file of the corpus; give another one")


def _tokenizer(model: str | None, tokenizer: str | None) -> tuple[str, PreTrainedTokenizerBase]:
    from tabes import bundled
    from tabes.models.loading import open_tokenizer

    name = tokenizer or model
    if name is None:
        raise UsageError("no tokenizer to count with; give --model or --tokenizer")
    return name, open_tokenizer(bundled.folder(name) or name)


def _described(out: Path, name: str, table: Frequencies, files: Sequence[FileCount]) -> dict[str, Any]:
    found = [
        {"path": str(one.path), "bytes": one.size, "tokens": one.tokens, "different": len(one.counts)} for one in files
    ]
    total = {"num_token": table.num_tokens, "different": len(table.counts)}
    return {"out": str(out), "tokenizer": name, **total, "files": found}


def _print_table(files: Sequence[FileCount]) -> None:
    from rich.table import Table

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown.add_column("file")
    for column in ("bytes", "tokens", "different"):
        shown.add_column(column, justify="right")
    for one in files:
        shown.add_row(str(one.path), f"{one.size:,}", f"{one.tokens:,}", f"{len(one.counts):,}")
    console().print(shown)
