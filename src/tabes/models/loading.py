"""From a hub name, a local folder or an object in memory to a network and its tokenizer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.hub import cached_file

from tabes.errors import ModelError, UsageError
from tabes.models import guard
from tabes.models.families import Checkpoint, Family, family_of, hub
from tabes.models.network import Network
from tabes.models.opening import network_of

__all__ = ["open_network", "open_tokenizer"]

Place = str | int | torch.device

# Without any of these transformers makes up a tokenizer that knows five special tokens.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)

_QUIETLY: dict[str, Any] = {
    "_raise_exceptions_for_missing_entries": False,
    "_raise_exceptions_for_connection_errors": False,
}


def open_network(
    source: str | Path | PreTrainedModel | Network,
    *,
    dtype: str | torch.dtype | None = None,
    device: Place | None = None,
    device_map: str | dict[str, Any] | None = None,
    revision: str | None = None,
) -> tuple[Network, PreTrainedTokenizerBase | None]:
    """Load a network to decode.

    Args:
        source: A hub name, a folder, a transformers model, or a network already. A model in memory is changed in
            place: evaluation mode, frozen parameters, and an attention implementation that is SDPA with a memory.
        dtype: Such as "bfloat16"; None or "auto" takes the checkpoint's own.
        device: Where to put the whole model.
        device_map: Where to put its parts; needs accelerate.
        revision: Of a hub checkpoint.

    Returns:
        The network, and its tokenizer if the checkpoint has one.
    """
    if device is not None and device_map is not None:
        raise UsageError("device and device_map were both given: give one of them")
    precision = _dtype(dtype)
    if isinstance(source, PreTrainedModel):
        with guard.quiet():
            return _adopt(source, precision, device), None
    if isinstance(source, str | Path):
        with guard.quiet():
            return _load(str(source), precision, device, device_map, revision)
    other: Any = source
    if isinstance(other, Network):
        return other, None
    kind = type(other).__name__
    raise UsageError(f"a model is a hub name, a folder or a transformers model with a head, not {kind}")


def _adopt(model: PreTrainedModel, dtype: torch.dtype | None, device: Place | None) -> Network:
    kind = type(model).__name__
    guard.refuse(model.config, kind)
    if dtype is not None:
        torch.nn.Module.to(model, dtype)
    return _opened(_placed(model, device), model.config.name_or_path or kind)


def _load(
    name: str,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
    revision: str | None,
) -> tuple[Network, PreTrainedTokenizerBase | None]:
    if device_map is not None and find_spec("accelerate") is None:
        raise UsageError("device_map needs the package accelerate: pip install accelerate, or give a device instead")
    guard.check_folder(Path(name))
    hub.check_name(name, revision)
    checkpoint = Checkpoint.find(name, revision)
    family = None if checkpoint is None else family_of(checkpoint.config)
    if checkpoint is not None and family is not None:
        with guard.explained(name):
            network = family.open(checkpoint, dtype=dtype, device=device, device_map=device_map)
        return network, _tokenizer(name, revision, family) or _usual_tokenizer(network)
    _check_code(checkpoint)
    options: dict[str, Any] = {"revision": revision or "main", "trust_remote_code": False}
    with guard.explained(name):
        config = AutoConfig.from_pretrained(name, **options)
        loaded: Any = _kind(config, name).from_pretrained(
            name,
            config=config,
            dtype=dtype or "auto",
            device_map=device_map,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that we can say which
            **options,
        )
    model, report = loaded
    guard.check_complete(model, report, name)
    network = _opened(model if device_map is not None else _placed(model, device), name)
    return network, _tokenizer(name, revision)


def _check_code(checkpoint: Checkpoint | None) -> None:
    """Transformers would ask for trust_remote_code, which nobody can give here."""
    kind = None if checkpoint is None else checkpoint.config.get("model_type")
    if checkpoint is not None and checkpoint.config.get("auto_map") and kind not in CONFIG_MAPPING:
        raise ModelError(
            f"{checkpoint.name} is of the family '{kind}', whose own code is needed and is never run here: load that "
            "model yourself and pass it to tabes.load, or use one of `tabes models`"
        )


def _tokenizer(name: str, revision: str | None, family: Family | None = None) -> PreTrainedTokenizerBase | None:
    if not any(cached_file(name, file, revision=revision or "main", **_QUIETLY) for file in _TOKENIZER_FILES):
        return None
    own = getattr(family, "open_tokenizer", None)
    if own is None:
        return open_tokenizer(name, revision=revision)
    with guard.explained(f"the tokenizer of {name}"):
        tokenizer: PreTrainedTokenizerBase = own(name, revision or "main")
    return tokenizer


def _usual_tokenizer(network: Network) -> PreTrainedTokenizerBase | None:
    """That of checkpoints which come without one, if the hub has it for us."""
    name = getattr(network, "usual_tokenizer", None)
    try:
        return None if name is None else open_tokenizer(name)
    except ModelError:
        return None


def open_tokenizer(name: str | Path, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a hub name or a folder."""
    with guard.quiet(), guard.explained(f"the tokenizer of {name}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            str(name), revision=revision or "main", trust_remote_code=False
        )
    return tokenizer


def _kind(config: PreTrainedConfig, name: str) -> type[AutoModelForMaskedLM] | type[AutoModelForCausalLM]:
    architecture = (config.architectures or [""])[0]
    guard.refuse(config, architecture)
    if architecture.endswith(("ForCausalLM", "LMHeadModel")):
        return AutoModelForCausalLM
    if architecture.endswith(("ForMaskedLM", "ForPreTraining")):
        return AutoModelForMaskedLM
    raise ModelError(
        f"{name} has no masked-language-model head: its config names {architecture or 'no architecture'}, "
        "where a ...ForMaskedLM, or a bidirectional ...ForCausalLM, is needed"
    )


def _opened(model: PreTrainedModel, name: str) -> Network:
    head = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if model.base_model is model or head is None:
        raise ModelError(f"{type(model).__name__} has no vocabulary head: load its ...ForMaskedLM form")
    guard.check_weights(model, name)
    return network_of(model, name)


def _placed(model: PreTrainedModel, device: Place | None) -> PreTrainedModel:
    if device is not None:
        try:
            torch.nn.Module.to(model, device)
        except (RuntimeError, AssertionError) as error:
            reason = guard.first_sentence(error)
            raise UsageError(f"the model cannot be put on device '{device}': {reason}") from error
    return model


def _dtype(dtype: str | torch.dtype | None) -> torch.dtype | None:
    if dtype is None or dtype == "auto":
        return None
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UsageError(f"unknown dtype '{dtype}': use float32, bfloat16, float16, float64 or auto")
    return found
