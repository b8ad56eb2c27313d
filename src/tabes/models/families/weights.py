"""From a checkpoint's tensors to a module's parameters: everything is compared before anything is read, and then read
tensor by tensor into its final place, so that loading takes hardly more memory than the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from tabes.errors import ModelError, UsageError
from tabes.models import guard
from tabes.models.families.checkpoint import Checkpoint, Stored

__all__ = ["Place", "fill"]

Place = str | int | torch.device


def fill(
    module: nn.Module,
    checkpoint: Checkpoint,
    rename: Callable[[str], str | None],
    *,
    published: Callable[[str], str] = str,
    device: Place | Mapping[str, Place] | None = None,
) -> None:
    """Give a module made on the meta device the weights of a checkpoint, in the dtypes its parameters have.

    Args:
        module: Its parameters and persistent buffers are filled and frozen; other buffers are its family's business.
        checkpoint: Where the weights are.
        rename: From a key of the checkpoint to a name in the module; None for tensors that are not needed.
        published: From a name in the module to what the files call it, for whoever has to look for it.
        device: One place, or places by the beginnings of names, as accelerate's device maps have them; what goes to
            "meta" is checked but not read.
    """
    targets = module.state_dict(keep_vars=True)
    keys = _matched(checkpoint, targets, rename, published)
    places = device if isinstance(device, Mapping) else {"": "cpu" if device is None else device}
    with torch.no_grad():
        for name, target in targets.items():
            place = _place(places, name)
            if place.type != "meta":
                _assign(module, name, _weight(checkpoint, keys[name], target.dtype, place))


def _matched(
    checkpoint: Checkpoint,
    targets: Mapping[str, Tensor],
    rename: Callable[[str], str | None],
    published: Callable[[str], str],
) -> dict[str, str]:
    """Which key holds what; one sentence if anything is missing, left over, or of another shape."""
    keys: dict[str, str] = {}
    left = []
    for key, stored in checkpoint.stored.items():
        name = rename(key)
        if name is None:
            continue
        if name not in targets or name in keys:
            left.append(key)
            continue
        _check(checkpoint, key, stored, tuple(targets[name].shape))
        keys[name] = key
    missing = [published(name) for name in targets if name not in keys]
    if missing:
        raise ModelError(f"{checkpoint.name} lacks weights its config asks for: {_some(missing)}")
    if left:
        raise ModelError(f"{checkpoint.name} has weights its config does not ask for: {_some(left)}")
    return keys


def _check(checkpoint: Checkpoint, key: str, stored: Stored, wanted: tuple[int, ...]) -> None:
    if stored.shape != wanted:
        raise ModelError(f"{checkpoint.name} has {key} with shape {stored.shape} where its config asks for {wanted}")
    if stored.dtype is None:
        raise ModelError(f"{checkpoint.name} has {key} in numbers that are no floats: load a checkpoint not quantised")


def _weight(checkpoint: Checkpoint, key: str, dtype: torch.dtype, place: torch.device) -> Tensor:
    with checkpoint.read(key) as stored:
        # A copy even where nothing changes: what was read is a window into the file.
        weight = torch.empty(stored.shape, dtype=dtype, device=place)
        weight.copy_(stored)
    if weight.numel() and not all(bool(torch.isfinite(end)) for end in torch.aminmax(weight)):
        raise ModelError(f"{checkpoint.name} has NaN or infinite weights in {key}: the checkpoint is damaged")
    return weight


def _assign(module: nn.Module, name: str, weight: Tensor) -> None:
    path, _, leaf = name.rpartition(".")
    owner = module.get_submodule(path)
    if leaf in owner._parameters:
        owner._parameters[leaf] = nn.Parameter(weight, requires_grad=False)
    else:
        owner._buffers[leaf] = weight


def _place(places: Mapping[str, Place], name: str) -> torch.device:
    starts = [start for start in places if not start or name == start or name.startswith(start + ".")]
    if not starts:
        raise UsageError(f"device_map has no place for {name}; give one for all that is not named, as ''")
    try:
        return torch.empty(0, device=places[max(starts, key=len)]).device
    except (RuntimeError, AssertionError) as error:
        place = places[max(starts, key=len)]
        raise UsageError(f"the model cannot be put on device '{place}': {guard.first_sentence(error)}") from error


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
