"""From the files of MDLM and SEDD, which name the same tensors alike, to a DiT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from tabes.errors import ModelError, UsageError
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.dit import DiT, Sizes, inverse_frequencies
from tabes.models.families.weights import Place, fill

__all__ = ["one_place", "open_dit", "section", "sizes_of"]

_ROTARY = "rotary_emb.inv_freq"
# Theirs, ours; what is not here has the same name.
_NAMES = (
    ("vocab_embed.embedding", "embedding"),
    ("sigma_map.mlp.", "noise."),
    ("output_layer.adaLN_modulation", "modulation"),
    ("output_layer.norm_final", "norm"),
    ("output_layer.linear", "head"),
    ("adaLN_modulation", "modulation"),
)


def open_dit(checkpoint: Checkpoint, sizes: Sizes, *, prefix: str, dtype: torch.dtype | None, device: Place) -> DiT:
    """The transformer with the checkpoint's weights; every key of the files begins with `prefix`."""
    _check_rotary(checkpoint, prefix + _ROTARY, sizes)
    with torch.device("meta"):
        model = DiT(sizes, dtype or checkpoint.dtype)

    def rename(key: str) -> str | None:
        name = key.removeprefix(prefix)
        for theirs, ours in _NAMES:
            name = name.replace(theirs, ours)
        # A key without the prefix keeps its own name, which is nobody's.
        return None if name == _ROTARY else name if key.startswith(prefix) else key

    fill(model, checkpoint, rename, device=device)
    return model


def sizes_of(checkpoint: Checkpoint, config: Mapping[str, Any], names: Mapping[str, str], **known: int) -> Sizes:
    """Sizes by the names a config has for them; one sentence for what is missing or impossible."""
    found = {ours: _size(checkpoint, config, theirs) for ours, theirs in names.items()}
    sizes = Sizes(**found, **known)
    if sizes.width % (2 * sizes.heads):
        raise ModelError(
            f"{checkpoint.name} has {sizes.heads} heads in a width of {sizes.width}: its config must have heads of the "
            "same even width"
        )
    return sizes


def section(checkpoint: Checkpoint, name: str) -> Mapping[str, Any]:
    """A table inside the config."""
    found = checkpoint.config.get(name)
    if not isinstance(found, Mapping):
        raise ModelError(f"the config.json of {checkpoint.name} has no table '{name}'")
    return found


def one_place(checkpoint: Checkpoint, device: Place | None, device_map: str | dict[str, Any] | None) -> Place:
    """These models are small: they go to one device, which a device map may name."""
    if device is not None or device_map is None:
        return "cpu" if device is None else device
    if isinstance(device_map, dict):
        places = set(device_map.values())
        if len(places) != 1:
            raise UsageError(
                f"device_map spreads {checkpoint.name} over {len(places)} places; it fits on one: give device"
            )
        return places.pop()  # type: ignore[no-any-return]
    if device_map in ("auto", "balanced", "balanced_low_0", "sequential"):
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device_map


def _size(checkpoint: Checkpoint, config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"the config.json of {checkpoint.name} has {name} {value!r}; it must be a positive integer")
    return value


def _check_rotary(checkpoint: Checkpoint, key: str, sizes: Sizes) -> None:
    """The only tensor whose shape tells the number of heads. Its numbers are known, so files may do without it."""
    if key not in checkpoint.stored:
        return
    known = inverse_frequencies(sizes.head_width)
    with checkpoint.read(key) as stored:
        if stored.shape != known.shape:
            raise ModelError(
                f"{checkpoint.name} has {key} with shape {tuple(stored.shape)} where its config asks for "
                f"{tuple(known.shape)}"
            )
        if not torch.allclose(stored.float(), known, rtol=1e-2):
            raise ModelError(f"{checkpoint.name} has rotary frequencies in {key} of another base than 10000")
