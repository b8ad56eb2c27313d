"""`tabes.load`: a name, a folder or a model in memory becomes a Denoiser."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabes import bundled
from tabes.denoiser import Denoiser
from tabes.errors import ModelError, UnknownNameError, UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tabes.models.network import Network

__all__ = ["load"]


def load(
    name_or_path_or_model: str | Path | PreTrainedModel | Network,
    *,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: Any = None,
    revision: str | None = None,
    mask_token_id: int | None = None,
) -> Denoiser:
    """A masked diffusion model ready to decode.

    Takes the name of a bundled model ("sudoku"), of a hub repository, a local folder, or a model already loaded (which
    is put into evaluation mode, frozen, and given our attention function). The mask, pad and end ids come from the
    tokenizer, else from the config; `mask_token_id` overrides.
    """
    from tabes.models.loading import open_network, open_tokenizer

    source = name_or_path_or_model
    if isinstance(source, str):
        source = bundled.folder(source) or _not_misspelled(source)
    network, found = open_network(source, dtype=dtype, device=device, device_map=device_map, revision=revision)
    if isinstance(tokenizer, str | Path):
        found = open_tokenizer(tokenizer)
    elif tokenizer is not None:
        found = tokenizer
    config = getattr(network, "config", None)
    name = str(name_or_path_or_model) if isinstance(name_or_path_or_model, str | Path) else network.name
    return Denoiser(
        network=network,
        tokenizer=found,
        mask_id=_mask_id(name, found, config, mask_token_id),
        pad_id=_first(found, config, "pad_token_id"),
        eos_ids=_end_ids(found, config),
        name=name,
    )


def _not_misspelled(name: str) -> str:
    """The name, unless it is nearly a bundled one: asking the hub for it would take long and say little."""
    if "/" not in name and not Path(name).exists() and get_close_matches(name, bundled.names(), cutoff=0.8):
        raise UnknownNameError("bundled model", name, bundled.names())
    return name


def _mask_id(name: str, tokenizer: Any, config: Any, given: int | None) -> int:
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int):
            raise UsageError(f"mask_token_id is {given!r}; give an integer id")
        return given
    mask_id = _first(tokenizer, config, "mask_token_id")
    if mask_id is None:
        raise ModelError(f"{name} has no mask token in its tokenizer or config; pass mask_token_id=")
    return mask_id


def _first(tokenizer: Any, config: Any, name: str) -> int | None:
    for source in (tokenizer, config):
        value = getattr(source, name, None)
        if isinstance(value, int):
            return value
    return None


def _end_ids(tokenizer: Any, config: Any) -> tuple[int, ...]:
    found: list[int] = []
    for source in (tokenizer, config):
        value = getattr(source, "eos_token_id", None)
        found += [value] if isinstance(value, int) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(found))
