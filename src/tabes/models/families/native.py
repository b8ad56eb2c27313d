"""Checkpoints that a class of transformers computes exactly, read in both directions: from their files to that class
without remote code, weights straight into their places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from packaging.version import Version
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from tabes.errors import ModelError
from tabes.models.families import spreading
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.weights import Place, fill
from tabes.models.opening import network_of
from tabes.models.transformer import RowNetwork

__all__ = ["open_native"]

_FIRST = "5.2"  # of transformers, that reads `is_causal`; older ones stay causal without a word


def open_native(
    checkpoint: Checkpoint,
    kind: type[PreTrainedModel],
    config: PreTrainedConfig,
    published: Callable[[str], str],
    *,
    rotation: Callable[[PreTrainedConfig], nn.Module],
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> RowNetwork:
    """The network, complete and checked.

    Args:
        checkpoint: Where the weights are.
        kind: A decoder of transformers.
        config: Of that class.
        published: From a name in the class to the key of the checkpoint.
        rotation: Its rotary embedding, whose numbers are in no file.
        dtype: That of the files if None.
        device: One place for everything.
        device_map: Places of its parts, as accelerate has them.
    """
    _check_version()
    config.is_causal = False
    precision = dtype or checkpoint.dtype
    with torch.device("meta"):
        model = kind(config)
    nn.Module.to(model, precision)
    model.config.dtype = precision
    names = {published(name): name for name in model.state_dict()}
    places = {"": "cpu" if device is None else device}
    if device_map is not None:
        places = spreading.places(model, device_map)
    # Keys that are nobody's keep a name that is nobody's.
    fill(
        model,
        checkpoint,
        lambda key: names.get(key, f"?{key}"),
        published=published,
        device=spreading.filled(places),
    )
    # Made on the meta device its frequencies would be whatever lay in memory: no file has them.
    model.base_model.rotary_emb = rotation(config).to(model.device)
    spreading.dispatch(model, places, checkpoint, names)
    network = network_of(model, checkpoint.name)
    if not isinstance(network, RowNetwork):
        raise ModelError(f"{checkpoint.name} does not compute the same rows twice: its weights may be damaged")
    return network


def _check_version() -> None:
    if Version(transformers.__version__) < Version(_FIRST):
        raise ModelError(
            f"transformers {transformers.__version__} is installed and reads these models left to right only: "
            f"pip install 'transformers>={_FIRST}'"
        )
