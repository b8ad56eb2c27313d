"""The golden checkpoints of MDLM and SEDD, and what was recorded of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from tabes.models.families.dit_network import DiTNetwork
from tabes.models.loading import open_network

GOLDEN = Path(__file__).parents[1] / "golden" / "models"


@dataclass(frozen=True)
class Golden:
    """One checkpoint; recorded tensors have the noise levels S in front."""

    name: str
    noise: str  # what the recorded noise is called

    @property
    def folder(self) -> Path:
        return GOLDEN / self.name

    def network(self, **options: Any) -> DiTNetwork:
        network, _ = open_network(self.folder, **options)
        assert isinstance(network, DiTNetwork)
        return network

    @cached_property
    def recorded(self) -> dict[str, Tensor]:
        return load_file(self.folder / "io.safetensors")

    @property
    def mask_id(self) -> int:
        return int(self.recorded["mask_token_id"])

    @property
    def times_SB(self) -> Tensor:
        """When the noise is what was recorded."""
        return (1 - (-self.recorded[self.noise].double()).exp()) / (1 - 1e-3)

    def differences(self, network: DiTNetwork) -> tuple[float, float, float]:
        """Largest of all noise levels: of logits, of entropies, and of their gradients' relative norm."""
        found = [self._at(network, s) for s in range(len(self.times_SB))]
        return tuple(max(values) for values in zip(*found, strict=True))  # type: ignore[return-value]

    def _at(self, network: DiTNetwork, s: int) -> tuple[float, float, float]:
        tokens_BL, recorded = self.recorded["input_ids"], self.recorded
        embeddings_BLE = network.embed(tokens_BL).requires_grad_()
        logits_BLV = logits_of(network, tokens_BL, self.times_SB[s], embeddings_BLE)
        entropy, gradient = 0.0, 0.0
        for kind, hidden in (("full", []), ("no_mask_token", [self.mask_id])):
            p_BLV = logits_BLV.index_fill(2, torch.tensor(hidden, dtype=torch.int64), -1e30).log_softmax(-1)
            entropy_BL = -(p_BLV.exp() * p_BLV).sum(-1) * (tokens_BL == self.mask_id)
            (found_BLE,) = torch.autograd.grad(entropy_BL.sum(), embeddings_BLE, retain_graph=True)
            wanted_BLE = recorded[f"grad_entropy_{kind}"][s]
            entropy = max(entropy, float((entropy_BL - recorded[f"entropy_{kind}"][s]).detach().abs().max()))
            gradient = max(gradient, float((found_BLE - wanted_BLE).norm() / wanted_BLE.norm()))
        return float((logits_BLV - recorded["logits"][s]).detach().abs().max()), entropy, gradient


def logits_of(
    network: DiTNetwork, tokens_BL: Tensor, time_B: Tensor | None = None, embeddings_BLE: Tensor | None = None
) -> Tensor:
    """(B, L, V), as the published model returns them."""
    hidden_BLd, _ = network.forward(
        tokens_BL,
        positions_BL=torch.arange(tokens_BL.shape[1]).expand_as(tokens_BL),
        padding_BL=None,
        embeddings_BLE=embeddings_BLE,
        time_B=time_B,
    )
    return network.head(hidden_BLd.flatten(0, 1)).unflatten(0, tokens_BL.shape)


MDLM_OWT = Golden("mdlm_owt", "timesteps")
MDLM_TIMED = Golden("mdlm_time_conditioned", "timesteps")
SEDD_ABSORB = Golden("sedd_absorb", "sigma")
