"""LLaDA-MoE and LLaDA2.x: recognised, so that whoever loads one learns at once that they cannot be loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from tabes.errors import ModelError
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.families.weights import Place

__all__ = ["open", "recognises"]


def recognises(config: Mapping[str, Any]) -> bool:
    """By its model type or its experts: LLaDA-MoE calls itself llada."""
    kind = str(config.get("model_type")).lower()
    return kind.startswith("llada") and ("moe" in kind or "num_experts" in config)


def open(  # noqa: A001 (what every family offers)
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None,
    device: Place | None,
    device_map: str | dict[str, Any] | None,
) -> NoReturn:
    """There is nothing to open."""
    raise ModelError(
        f"{checkpoint.name} is a mixture of experts ({checkpoint.config.get('model_type')}), which cannot be loaded: "
        "of the LLaDA family only dense models (LLaDA-8B, LLaDA-1.5) can"
    )
