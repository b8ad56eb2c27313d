"""The bundled Sudoku model: its architecture, its first weights, its tokenizer, and the run that trains it.

A standard ALBERT: two layers, applied again and again, which suits a problem that is solved by applying the same few
rules again and again. What is special is only where it starts (`geometry`): position embeddings begin as row + column +
box codes, and three attention heads begin by looking along the row, the column and the box. Everything stays free
to move.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.models.guard import quiet
from tabes.tasks._grids import Digits
from tabes.tasks.sudoku import grid_stream, grids
from tabes.training.geometry import start_with_geometry
from tabes.training.loop import LogRow, Recipe, train

if TYPE_CHECKING:
    from transformers import AlbertForMaskedLM, PreTrainedTokenizerFast

__all__ = ["RECIPE", "sudoku_model", "sudoku_tokenizer", "train_sudoku", "training_batch"]

PAD, MASK, UNK = 0, 10, 11  # the digits 1..9 are their own ids
RECIPE: Final = Recipe(steps=3_000)

# A chunk of 2048 grids has about 1920 for training. A fixed number of them gives every batch its place in the stream.
_CHUNK_GRIDS: Final = 1792
_VALIDATION_GRIDS: Final = 2048
_VALIDATION_SEED: Final = 7


def train_sudoku(
    out_dir: Path,
    *,
    seed: int = 0,
    steps: int | None = None,
    resume: bool = True,
    report: Callable[[LogRow], None] | None = None,
) -> Path:
    """Train the Sudoku model from nothing and return the folder that `tabes.load` takes, `out_dir / "model"`.

    `seed` decides the first weights, the grids and the masks; `steps` defaults to the bundled model's. A killed run
    goes on from `out_dir / "checkpoint.pt"` unless `resume` is False. After each validation (every 500 steps) the
    model folder is replaced by the current averaged weights and `report` is called with the log line.
    """
    if seed < 0:
        raise UsageError(f"seed is {seed}; it must be at least 0")
    recipe = replace(RECIPE, seed=seed, steps=RECIPE.steps if steps is None else steps)
    model, folder = sudoku_model(seed), out_dir / "model"
    validation = _tokens(grids(_VALIDATION_GRIDS, _VALIDATION_SEED, "validation"))

    def batch_at(step: int) -> Tensor:
        return training_batch(seed, step, recipe.batch_size)

    def keep(row: LogRow) -> None:
        _save(model, folder)
        if report is not None:
            report(row)

    train(model, recipe, batch_at, validation, MASK, out_dir, resume=resume, report=keep)
    _save(model, folder)  # once more: resuming a run that is done reports nothing
    return folder


def _save(model: AlbertForMaskedLM, folder: Path) -> None:
    with quiet():
        model.save_pretrained(folder)
        sudoku_tokenizer().save_pretrained(folder)


def training_batch(seed: int, step: int, batch_size: int) -> Tensor:
    """The grids of one step, (batch_size, 81): every grid of the stream is met once."""
    per_chunk = _CHUNK_GRIDS // batch_size
    first = step % per_chunk * batch_size
    return _tokens(_training_chunk(seed, step // per_chunk)[first : first + batch_size])


@lru_cache(maxsize=1)
def _training_chunk(seed: int, index: int) -> Digits:
    chunk = next(grid_stream(seed, "train", start=index))
    if len(chunk) < _CHUNK_GRIDS:  # eleven standard deviations away, so the split would be broken
        raise RuntimeError(f"chunk {index} has only {len(chunk)} training grids of the {_CHUNK_GRIDS} needed")
    return chunk


def _tokens(grids_NP: Digits) -> Tensor:
    return torch.from_numpy(grids_NP.astype(np.int64))


def sudoku_model(seed: int = 0) -> AlbertForMaskedLM:
    """The untrained model, its first weights drawn from `seed` (the global random state is left alone)."""
    from transformers import AlbertConfig, AlbertForMaskedLM

    config = AlbertConfig(  # type: ignore[call-arg]  # the base class takes any further key
        vocab_size=12,
        embedding_size=128,
        hidden_size=128,
        num_hidden_layers=4,  # times two: the pair of layers is applied four times over
        num_hidden_groups=1,
        inner_group_num=2,
        num_attention_heads=4,
        intermediate_size=512,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout_prob=0.0,
        max_position_embeddings=81,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=PAD,
        bos_token_id=None,
        eos_token_id=None,
        mask_token_id=MASK,
        tie_word_embeddings=False,
        attn_implementation="eager",  # several times faster than sdpa in bfloat16 on a CPU; not stored with the weights
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AlbertForMaskedLM(config)
        start_with_geometry(model)
    return model


def sudoku_tokenizer() -> PreTrainedTokenizerFast:
    """One token per cell: digits, `.` or `0` for a mask; spaces and box lines vanish, anything else is [UNK]."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"[PAD]": PAD, **{str(digit): digit for digit in range(1, 10)}, "[MASK]": MASK, "[UNK]": UNK}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    drop, blank = normalizers.Replace(Regex(r"[\s|+\-]"), ""), normalizers.Replace(Regex(r"[.0]"), "[MASK]")
    tokenizer.normalizer = normalizers.Sequence([drop, blank])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\[MASK\]|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    special = {"mask_token": "[MASK]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=81, **special
    )
