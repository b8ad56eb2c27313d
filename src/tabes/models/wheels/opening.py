"""From a package's files to a network and its tokenizer, in memory.

The folders in these packages were saved by a transformers of years ago: old configs, pickled weights, and a plain
vocabulary without a tokenizer that reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tabes.errors import ModelError, UsageError
from tabes.models.guard import check_complete, explained, quiet
from tabes.models.loading import open_network
from tabes.models.network import Network
from tabes.models.smiles import SMILES
from tabes.models.vocabulary import is_special, list_tokenizer, read_vocabulary
from tabes.models.wheels.known import Wheel
from tabes.models.wheels.places import unpacked

__all__ = ["open_wheel"]

# Far below any real logit, its softmax exactly 0 in float32, and still finite in float16.
_NEVER: Final = -1e4

_PATTERNS: Final = {"smiles": SMILES, "residues": r"\[[A-Z]+\]|[A-Z]"}


def open_wheel(
    wheel: Wheel,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | int | torch.device | None = None,
    device_map: Any = None,
    revision: str | None = None,
) -> tuple[Network, PreTrainedTokenizerFast]:
    """The package's model, ready to decode, and a tokenizer made of its vocabulary.

    These models were never taught not to write marks ([CLS], [SEP], [PAD], ...) and unused places of their vocabulary
    where a token belongs. The output bias of these is set to -1e4, so that whatever decodes the model gives them
    probability 0; every other logit is the published one, and the inputs are untouched.
    """
    if device_map is not None or revision is not None:
        given = "device_map" if device_map is not None else "revision"
        raise UsageError(f"{given} does not go with {wheel.name}, a small model of one version; leave it out")
    with unpacked(wheel) as root, quiet(), explained(wheel.name):
        model = _model(wheel, root / wheel.folder)
        vocabulary = read_vocabulary(root / wheel.vocabulary)
    if len(vocabulary) != model.config.vocab_size:
        raise ModelError(f"{wheel.name} has {len(vocabulary)} tokens but its model scores {model.config.vocab_size}")
    _forbid(model, [i for token, i in vocabulary.items() if is_special(token)])
    tokenizer = list_tokenizer(vocabulary, _PATTERNS[wheel.reads], model.config.max_position_embeddings)
    network, _ = open_network(model, dtype=dtype, device=device)
    return network, tokenizer


def _model(wheel: Wheel, folder: Path) -> PreTrainedModel:
    """By its class: not all of these configs say what they are of."""
    loaded: Any = getattr(transformers, wheel.architecture).from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True, local_files_only=True
    )
    model: PreTrainedModel = loaded[0]
    check_complete(model, loaded[1], wheel.name)
    model.config.name_or_path = wheel.name  # the folder will be gone
    # Old configs give a start and an end id that mean other tokens in these vocabularies.
    model.config.bos_token_id = model.config.eos_token_id = None
    return model


def _forbid(model: PreTrainedModel, ids: list[int]) -> None:
    bias_V = getattr(model.get_output_embeddings(), "bias", None)  # type: ignore[no-untyped-call]
    if not isinstance(bias_V, torch.Tensor):
        raise ModelError(f"{type(model).__name__} has no output bias, which is where special tokens are forbidden")
    with torch.no_grad():
        bias_V[ids] = _NEVER
