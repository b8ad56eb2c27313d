"""What can be wrong with a checkpoint, each in one sentence, and transformers kept quiet meanwhile."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils.tqdm import enable_progress_bars
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from tabes.errors import ModelError, TabesError, UsageError

__all__ = ["check_complete", "check_folder", "check_weights", "explained", "first_sentence", "quiet", "refuse"]

# Parts of a checkpoint that no logit depends on.
_UNUSED = ("pooler", "contact_head", "seq_relationship")


def check_folder(folder: Path) -> None:
    """What can be said before anything is read; a path that is no folder may be a hub name."""
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"the folder {folder} has no config.json, so it is no checkpoint")
    if folder.is_file():
        raise UsageError(f"{folder} is a file: give the folder it is in")
    if not folder.exists() and (folder.is_absolute() or len(folder.parts) > 2 or folder.parts[:1] == ("..",)):
        raise UsageError(f"there is no folder {folder}")


def refuse(config: PreTrainedConfig, architecture: str) -> None:
    """Networks whose rows do not see each other in both directions."""
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(f"{architecture} is an encoder-decoder: only single stacks that fill masks can be decoded")
    decoder = architecture.endswith(("ForCausalLM", "LMHeadModel"))
    if getattr(config, "is_decoder", False) or (decoder and getattr(config, "is_causal", True)):
        raise ModelError(
            f"{architecture} reads left to right: set config.is_causal = False (and is_decoder = False) "
            "if it was trained to read in both directions"
        )


def check_complete(model: PreTrainedModel, report: dict[str, Any], name: str) -> None:
    """A weight the files lack would be random, and decode to nonsense without a word."""
    for key, found, wanted in sorted(report["mismatched_keys"]):
        raise ModelError(f"{name} has {key} with shape {tuple(found)} where its config asks for {tuple(wanted)}")
    parameters = {parameter for parameter, _ in model.named_parameters()}
    missing = sorted(key for key in report["missing_keys"] if key in parameters and not _unused(key))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(f"{name} lacks weights of {type(model).__name__}: {missing[0]}{more} would be random")


def check_weights(model: PreTrainedModel, name: str) -> None:
    """Every weight is finite. `aminmax` reads it once and copies nothing; NaN wins in both."""
    for parameter, weight in model.named_parameters():
        readable = not weight.is_meta and weight.numel()
        if readable and not all(bool(torch.isfinite(end)) for end in torch.aminmax(weight.detach())):
            raise ModelError(f"{name} has NaN or infinite weights in {parameter}: the checkpoint is damaged")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Whatever reading a checkpoint raises, as one sentence of ours."""
    try:
        yield
    except (TabesError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ModelError(f"{name} could not be loaded ({first_sentence(error)})") from error


def first_sentence(error: Exception) -> str:
    """Others explain errors in paragraphs."""
    text = str(error).strip().splitlines()
    return text[0].split(". ")[0].rstrip(".") if text else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Transformers' progress bars and advice, and the hub's retries, stay out of our users' way while it loads.

    Downloads are shown to whoever looks at a terminal: those of gigabytes take minutes.
    """
    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    others = {name: logging.getLogger(name).level for name in ("huggingface_hub", "accelerate")}
    transformers_logging.set_verbosity(logging.CRITICAL)
    for name in others:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if bars and sys.stderr.isatty():
        enable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        for name, before in others.items():
            logging.getLogger(name).setLevel(before)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _unused(key: str) -> bool:
    return any(part in key for part in _UNUSED)
