"""A small training loop for masked diffusion models: one seed, one number of steps, the same result after a kill.

Everything random at step s is drawn from (seed, s) alone, and a checkpoint holds all that changes; so a run that was
killed and resumed walks through exactly the states of one that was not (same machine, same number of threads).
Not covered: several processes, gradient accumulation, padding (every row is trained on).

Legend: B batch, N held-out sequences, L rows, V vocabulary.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tabes.errors import NumericsError
from tabes.training.objective import Masking, mask_by_count, nelbo, paired_error
from tabes.training.recipe import LogRow, Recipe, read_log, write_log
from tabes.training.state import TrainingState

__all__ = ["LogRow", "Recipe", "held_out_loss", "train"]

_MASKS, _VALIDATION = 1, 2  # what a random stream is for
_DIVERGED = 2.0  # a validation loss this many times the best one is no noise: the run is lost, and says so

Report = Callable[[LogRow], None]


def train(
    model: nn.Module,
    recipe: Recipe,
    batch_at: Callable[[int], Tensor],
    validation_NL: Tensor,
    mask_token_id: int,
    out_dir: Path,
    *,
    resume: bool = True,
    report: Report | None = None,
) -> list[LogRow]:
    """Train `model` in place and leave the averaged weights in it; returns the log.

    `batch_at(step)` gives the token ids of a step, (B, L), and must depend on nothing but the step. `report` is
    called with every log line; while it runs, `model` holds the averaged weights. `out_dir` gets `checkpoint.pt`
    (about every minute and at each log line) and `training_log.jsonl` (a line per validation). A loss that is not a
    number, or a validation loss of twice the best one, raises `NumericsError`.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    checkpoint, log_path = out_dir / "checkpoint.pt", out_dir / "training_log.jsonl"
    state, log = TrainingState(model, recipe), list[LogRow]()
    if resume and checkpoint.exists():
        state.load(checkpoint)
        log = read_log(log_path, up_to=state.step)
    started, saved_at = time.monotonic() - state.seconds, time.monotonic()
    model.train()
    while state.step < recipe.steps:
        state.advance(_batch_loss(model, recipe, batch_at(state.step), state.step, mask_token_id))
        state.seconds = time.monotonic() - started
        due = state.step % recipe.validate_every == 0 or state.step == recipe.steps
        if due:
            best = min((row.validation for row in log), default=math.inf)
            log.append(_log_row(model, state, validation_NL, mask_token_id, best, report))
            write_log(log_path, log)
        if due or time.monotonic() - saved_at > recipe.checkpoint_seconds:
            state.save(checkpoint)
            saved_at = time.monotonic()
    state.keep_average()
    model.eval()
    return log


def held_out_loss(
    model: nn.Module, tokens_NL: Tensor, mask_token_id: int, *, seed: int = 0, bfloat16: bool = False, batch: int = 64
) -> tuple[float, float]:
    """The negative ELBO of held-out sequences in nats per token, and its standard error. Equal seeds mask alike."""
    losses = []
    with torch.no_grad():
        for index, tokens_BL in enumerate(tokens_NL.split(batch)):
            masking = mask_by_count(tokens_BL, _generator(seed, _VALIDATION, index))
            losses.append(_losses(model, tokens_BL, masking, mask_token_id, bfloat16) / tokens_BL.shape[1])
    losses_N = torch.cat(losses)
    return float(losses_N.mean()), paired_error(losses_N)


def _batch_loss(model: nn.Module, recipe: Recipe, tokens_BL: Tensor, step: int, mask_token_id: int) -> Tensor:
    masking = mask_by_count(tokens_BL, _generator(recipe.seed, _MASKS, step))
    return _losses(model, tokens_BL, masking, mask_token_id, recipe.bfloat16).mean() / tokens_BL.shape[1]


def _losses(model: nn.Module, tokens_BL: Tensor, masking: Masking, mask_token_id: int, bfloat16: bool) -> Tensor:
    shown_BL = tokens_BL.masked_fill(masking.hidden, mask_token_id)
    with torch.autocast(shown_BL.device.type, torch.bfloat16, enabled=bfloat16):
        logits_BLV = model(input_ids=shown_BL).logits
    return nelbo(logits_BLV, tokens_BL, masking)


def _log_row(
    model: nn.Module,
    state: TrainingState,
    validation_NL: Tensor,
    mask_token_id: int,
    best: float,
    report: Report | None,
) -> LogRow:
    """Measure the averaged weights, and let the caller keep them unless they are spoiled: `best` is the loss so far."""
    recipe = state.recipe
    with state.averaged():
        loss, error = held_out_loss(
            model, validation_NL, mask_token_id, seed=recipe.seed, bfloat16=recipe.bfloat16, batch=recipe.batch_size
        )
        if not loss < _DIVERGED * best:
            raise NumericsError(f"validation rose from {best:.3f} to {loss:.3f} in step {state.step}; lower the rates")
        row = LogRow(state.step, float(np.mean(state.losses)), loss, error, state.seconds)
        if report is not None:
            report(row)
    state.losses = []
    return row


def _generator(*key: int) -> torch.Generator:
    """An independent stream for each key, such as (seed, purpose, step)."""
    word = np.random.SeedSequence(key).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(word >> np.uint64(1)))
