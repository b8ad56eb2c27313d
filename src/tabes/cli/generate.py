"""`tabes generate`: text in, text out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tabes.cli._options import (
    BlockLength,
    CacheEvery,
    Device,
    Dtype,
    Json,
    Model,
    NumSteps,
    Suppressed,
    Temperature,
    every,
    tokens,
)
from tabes.cli._output import is_watched, print_json, remark, warnings_remarked
from tabes.errors import UsageError

if TYPE_CHECKING:
    from tabes.denoiser import AnyDenoiser
    from tabes.generation import Output

__all__ = ["generate"]


def generate(
    model: Model,
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt", "-p", help="The text. Mask tokens in it are holes to fill; '-' reads stdin. Repeat for a batch."
        ),
    ],
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is what a user says to a chat model, not text to continue.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What a chat model is told beforehand; --chat goes with it.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", "-n", help="Holes to add at the end.")
    ] = None,
    num_steps: NumSteps = None,
    block_length: BlockLength = None,
    sampler: Annotated[str, typer.Option("--sampler", "-s", help="The decoding rule; see: tabes samplers.")] = "boe",
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A parameter of the sampler, such as tokens_per_step=2, budget=threshold or reviser=loop. Repeatable.",
        ),
    ] = None,
    temperature: Temperature = None,
    top_p: Annotated[
        float | None, typer.Option(help="Draw from the most probable tokens that hold this share.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from this many most probable tokens.")] = None,
    cfg_scale: Annotated[float, typer.Option(help="Guidance towards the prompt; doubles the work. 0: none.")] = 0.0,
    suppress: Suppressed = None,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop at this text (left out of the answer). Repeatable.")
    ] = None,
    stop_at_end: Annotated[
        bool, typer.Option("--stop-at-end", help="Stop at an end-of-text token: the same text, for less work.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Makes draws repeatable.")] = None,
    cache_every: CacheEvery = None,
    dtype: Dtype = None,
    device: Device = None,
    mask_token_id: Annotated[int | None, typer.Option(help="The mask id, if the checkpoint does not name it.")] = None,
    as_json: Json = False,
) -> None:
    """Fill the holes of a text, or write new text behind it.

    \b
    A Sudoku, blanks as dots (the bundled model):
      tabes generate -m sudoku -p "53..7.... 6..195... .98....6. 8...6...3 \\
          4..8.3..1 7...2...6 .6....28. ...419..5 ....8..79"
    A masked language model of the hub, its mask token where a word is missing:
      tabes generate -m bert-base-uncased -p "Paris is the [MASK] of France."
    A checkpoint in a folder, 64 new tokens in 32 steps, the prompt from stdin:
      tabes generate -m ./checkpoint -p - -n 64 --num-steps 32 < question.txt
    As many tokens a step as are sure (a budget):
      tabes generate -m ./checkpoint -p "Once" -n 64 -s confidence \\
          --set budget=threshold --set threshold=0.9
    With second thoughts (a reviser), and never ending early:
      tabes generate -m ./checkpoint -p "Once" -n 64 -s confidence \\
          --set reviser=loop --suppress end
    A question to a chat model (tabes models llada: its ids, what to know, its authors' settings):
      tabes generate -m GSAI-ML/LLaDA-8B-Instruct --dtype bfloat16 --device cuda --chat \\
          -p "What is masked diffusion?" -n 256 --block-length 32 --stop-at-end
    """
    import tabes
    from tabes.bench.specs import parse_parameters
    from tabes.encoding import hole
    from tabes.suppression import end_ids

    rule = {"num_steps": num_steps, "temperature": temperature, "top_p": top_p, "top_k": top_k}
    rule = {name: value for name, value in rule.items() if value is not None}
    chosen = tabes.sampler(sampler, **(rule | parse_parameters(setting or (), "--set")))
    texts = [_text(part) for part in prompt]
    base = tabes.load(model, dtype=dtype, device=device, mask_token_id=mask_token_id)
    ends = end_ids(base, "leave --stop-at-end out") if stop_at_end else ()
    with warnings_remarked():
        output = tabes.generate(
            _wrapped(base, cfg_scale, cache_every),
            [tabes.chat(text, system) for text in texts] if chat or system is not None else texts,
            sampler=chosen,
            max_new_tokens=max_new_tokens,
            block_length=block_length,
            suppress=tokens(suppress),
            stop=[*(stop or ()), *ends] or None,
            seed=seed,
            progress=is_watched() and not as_json,
        )
    if not output.steps:
        remark(f"nothing to fill: the prompt has no {hole(base)} and --max-new-tokens is {max_new_tokens or 0}")
    if as_json:
        print_json(_as_dict(output) | {"model": model, "sampler": sampler, "seed": seed})
        return
    for text in output.texts or ():
        typer.echo(_for_people(text, model))


def _text(prompt: str) -> str:
    """The prompt itself, or standard input; either must be text."""
    raw = sys.stdin.buffer.read() if prompt == "-" else prompt.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        where = "standard input" if prompt == "-" else "--prompt"
        raise UsageError(
            f"{where} is not text: byte {error.start + 1} is 0x{raw[error.start]:02x}; give UTF-8"
        ) from None
    return text.removesuffix("\n") if prompt == "-" else text


def _wrapped(model: AnyDenoiser, cfg_scale: float, cache_every: str | None) -> AnyDenoiser:
    """The cache goes outside: it remembers both halves of a guided forward."""
    import tabes

    guided = tabes.Guidance(model, cfg_scale) if cfg_scale else model
    refresh = every(cache_every)
    return guided if refresh is None else tabes.RowCache(guided, refresh)


def _as_dict(output: Output) -> dict[str, Any]:
    return {
        "texts": output.texts,
        "sequences": output.sequences.tolist(),
        "steps": len(output.steps),
        "cost": output.cost.as_dict(),
    }


def _for_people(text: str, model: str) -> str:
    """The text; a Sudoku as a grid when a person is looking."""
    if model != "sudoku" or not sys.stdout.isatty():
        return text
    from tabes.tasks.sudoku import from_text, render

    try:
        return render(from_text(text))
    except ValueError:
        return text
