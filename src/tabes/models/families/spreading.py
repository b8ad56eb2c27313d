"""Models over several places, by accelerate: GPUs, the CPU's memory, and "disk", which is the checkpoint itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from tabes.errors import UsageError
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.weights import Place

__all__ = ["dispatch", "filled", "places"]

_DISK = "disk"
_CHOSEN = ("auto", "balanced", "balanced_low_0", "sequential")


def places(model: PreTrainedModel, device_map: str | dict[str, Any]) -> dict[str, Place]:
    """Where each part goes, by the beginnings of names; a word stands for what accelerate chooses."""
    if isinstance(device_map, dict):
        _check_apart(device_map)
        return dict(device_map)
    if device_map not in _CHOSEN:
        return {"": device_map}
    from accelerate import infer_auto_device_map
    from accelerate.utils import get_balanced_memory

    whole: dict[str, Any] = {"no_split_module_classes": sorted(model._no_split_modules or ())}
    if device_map != "sequential":
        low = device_map == "balanced_low_0"
        whole["max_memory"] = get_balanced_memory(model, dtype=model.dtype, low_zero=low, **whole)
    return dict(infer_auto_device_map(model, dtype=model.dtype, **whole))


def filled(places: Mapping[str, Place]) -> dict[str, Place]:
    """The same for whoever reads the weights: what stays on disk is not read."""
    return {name: "meta" if place == _DISK else place for name, place in places.items()}


def dispatch(
    model: PreTrainedModel, places: Mapping[str, Place], checkpoint: Checkpoint, names: Mapping[str, str]
) -> None:
    """Let the parts of a model that lies in several places hand each other what they computed.

    `names` tells the parameter that each key of the checkpoint is.
    """
    if len({str(place) for place in places.values()}) > 1:
        from accelerate import dispatch_model

        index = _index(model, checkpoint, names) if _DISK in places.values() else None
        dispatch_model(model, dict(places), offload_index=index)
    if model.get_input_embeddings().weight.is_meta:
        raise UsageError(
            f"device_map leaves the embeddings of {checkpoint.name} where nothing is computed, and every rule reads "
            "them: give model.embed_tokens a device"
        )


def _check_apart(device_map: dict[str, Any]) -> None:
    """Accelerate takes the first place that fits a name, we the longest: only maps without that choice are clear."""
    for outer in device_map:
        for inner in device_map:
            if inner != outer and (not outer or inner.startswith(f"{outer}.")):
                raise UsageError(f"device_map has '{inner}' inside '{outer}': name parts that do not hold each other")


def _index(model: PreTrainedModel, checkpoint: Checkpoint, names: Mapping[str, str]) -> dict[str, Any]:
    """Where accelerate finds each weight whenever it is needed: in the checkpoint's own files."""
    if any(stored.path.suffix == ".bin" for stored in checkpoint.stored.values()):
        raise UsageError(f"device_map leaves parts of {checkpoint.name} on disk, which needs safetensors files")
    dtype = str(model.dtype).removeprefix("torch.")
    return {
        names[key]: {"safetensors_file": str(stored.path), "weight_name": key, "dtype": dtype}
        for key, stored in checkpoint.stored.items()
    }
