"""Published formats that transformers does not know, one file each: recognised by their config, loaded without remote
code. A family is a module with `recognises` and `open`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from tabes.models.families import dream, llada, llada_moe, mdlm, sedd
from tabes.models.families.checkpoint import Checkpoint
from tabes.models.network import Network

__all__ = ["Checkpoint", "Family", "family_of"]


class Family(Protocol):
    """What a family's module offers."""

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """Whether a checkpoint with this config.json is one of the family's."""

    def open(
        self,
        checkpoint: Checkpoint,
        *,
        dtype: torch.dtype | None,
        device: str | int | torch.device | None,
        device_map: str | dict[str, Any] | None,
    ) -> Network:
        """The network, complete and checked. Without a dtype it has that of the files."""


_FAMILIES: tuple[Family, ...] = (llada_moe, llada, dream, mdlm, sedd)


def family_of(config: Mapping[str, Any]) -> Family | None:
    """The family whose config this is, None where transformers should know."""
    return next((family for family in _FAMILIES if family.recognises(config)), None)
