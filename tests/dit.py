"""MDLM and SEDD written down a second time, plainly, as a reference; and small checkpoints in their formats."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tabes.models.families.dit_network import DiTNetwork
from tabes.models.families.sedd import SEDDNetwork
from tabes.models.loading import open_network
from tests.decoders import DECODERS
from tests.tiny import FAMILIES, HEADS, E, V

COND, BLOCKS, LENGTH = 12, 3, 64
TIME = 0.4
MDLM_CONFIG = {
    "model_type": "mdlm",
    "architectures": ["MDLM"],
    "cond_dim": COND,
    "dropout": 0.1,
    "hidden_dim": E,
    "model_length": LENGTH,
    "n_blocks": BLOCKS,
    "n_heads": HEADS,
    "time_conditioning": False,
    "vocab_size": V,
}
SEDD_CONFIG = {
    "graph": {"type": "absorb", "file": "data", "report_all": False},
    "model": {
        "name": "small",
        "type": "ddit",
        "hidden_size": E,
        "cond_dim": COND,
        "length": LENGTH,
        "n_blocks": BLOCKS,
        "n_heads": HEADS,
        "scale_by_sigma": True,
        "dropout": 0.1,
    },
    "noise": {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20},
    "tokens": V - 1,
}


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def _moved(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale) + shift


class _Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(E))


class Attention(nn.Module):
    """By hand: complex numbers are turned, scores written out. `reads` says which key which row may read."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_qkv, self.attn_out = nn.Linear(E, 3 * E, bias=False), nn.Linear(E, E, bias=False)

    def forward(self, x_BLE: Tensor, angles_BLF: Tensor, reads: Tensor | None = None) -> Tensor:
        heads = self.attn_qkv(x_BLE).view(*x_BLE.shape[:2], 3, HEADS, -1).transpose(1, 3)  # (B, H, 3, L, D)
        query, key, value = heads.unbind(2)
        turn = torch.polar(torch.ones_like(angles_BLF), angles_BLF)[:, None]
        query, key = (self._turned(part, turn) for part in (query, key))
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if reads is not None:
            scores = scores.masked_fill(~reads, -torch.inf)
        out = scores.softmax(-1) @ value
        return self.attn_out(out.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _turned(self, x: Tensor, turn: Tensor) -> Tensor:
        first, second = x.chunk(2, -1)
        turned = torch.complex(first, second) * turn
        return torch.cat([turned.real, turned.imag], -1)


class _Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attention = _Scale(), _Scale(), Attention()
        self.mlp = nn.Sequential(nn.Linear(E, 4 * E), nn.GELU(approximate="tanh"), nn.Linear(4 * E, E))
        self.adaLN_modulation = nn.Linear(COND, 6 * E)

    def forward(self, x: Tensor, cond: Tensor, angles: Tensor, reads: Tensor | None) -> Tensor:
        s1, c1, g1, s2, c2, g2 = self.adaLN_modulation(cond)[:, None].chunk(6, -1)
        x = x + g1 * self.attention(_moved(_norm(x, self.norm1.weight), s1, c1), angles, reads)
        return x + g2 * self.mlp(_moved(_norm(x, self.norm2.weight), s2, c2))


class _Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(V, E))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.embedding[tokens]


class _Sigma(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, COND), nn.SiLU(), nn.Linear(COND, COND))

    def forward(self, sigma: Tensor) -> Tensor:
        angles = sigma[:, None] * 10_000.0 ** (-torch.arange(128, dtype=sigma.dtype) / 128)
        return torch.nn.functional.silu(self.mlp(torch.cat([angles.cos(), angles.sin()], -1)))  # type: ignore[no-any-return]


class _Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_final, self.linear, self.adaLN_modulation = _Scale(), nn.Linear(E, V), nn.Linear(COND, 2 * E)


class Backbone(nn.Module):
    """Hidden rows behind the last modulation. `sigma` is the noise of every row."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma, self.height = sigma, None
        self.vocab_embed, self.sigma_map, self.output_layer = _Embedding(), _Sigma(), _Last()
        self.blocks = nn.ModuleList(_Block() for _ in range(BLOCKS))

    def forward(
        self, *, inputs_embeds: Tensor, position_ids: Tensor | None = None, reads: Tensor | None = None
    ) -> tuple[Tensor]:
        x, dtype = inputs_embeds, inputs_embeds.dtype
        positions = torch.arange(x.shape[1])[None] if position_ids is None else position_ids
        # In float32, as the files have them.
        frequencies = 1.0 / 10_000.0 ** (torch.arange(0, E // HEADS, 2).float() / (E // HEADS))
        angles = positions[..., None] * frequencies.to(dtype)
        cond = self.sigma_map(torch.full((1,), self.sigma, dtype=dtype))
        for block in self.blocks:
            x = block(x, cond, angles, reads)
        last = self.output_layer
        shift, scale = last.adaLN_modulation(cond)[:, None].chunk(2, -1)
        return (_moved(_norm(x, last.norm_final.weight), shift, scale),)


class Scored(Backbone):
    """SEDD's: two more columns, as our hidden rows have them where the tokens are not known."""

    def forward(self, **arguments: Any) -> tuple[Tensor]:
        (x,) = super().forward(**arguments)
        height = -math.log(math.exp(self.sigma) - 1) - math.log(V - 1)
        columns = x.new_tensor([height, -1.0]).expand(*x.shape[:2], 2)
        return (torch.cat([x, columns], -1),)


class Model(nn.Module):
    """Looks like a model of transformers to the tests of the core."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    @property
    def base_model(self) -> Backbone:
        return self.backbone

    def get_input_embeddings(self) -> nn.Module:
        return self.backbone.vocab_embed

    def forward(self, input_ids: Tensor) -> SimpleNamespace:
        (hidden,) = self.backbone(inputs_embeds=self.backbone.vocab_embed(input_ids))
        logits = self.backbone.output_layer.linear(hidden[..., :E])
        return SimpleNamespace(logits=logits + hidden[..., E : E + 1] if hidden.shape[-1] > E else logits)


class _AtTime:
    """Told a time where a test of the core tells none."""

    def forward(self, tokens_BL: Tensor | None, *, positions_BL: Tensor, **options: Any) -> Any:
        options["time_B"] = options.get("time_B", torch.full((len(positions_BL),), TIME, dtype=torch.float64))
        return super().forward(tokens_BL, positions_BL=positions_BL, **options)  # type: ignore[misc]


class TimedDiT(_AtTime, DiTNetwork):
    pass


class TokenlessSEDD(_AtTime, SEDDNetwork):
    """Its hidden rows are the same from tokens and from their embeddings."""

    def _finished(self, hidden_BLd: Tensor, sigma_B: Tensor, tokens_BL: Tensor | None) -> Tensor:
        return super()._finished(hidden_BLd, sigma_B, None)


@dataclass(frozen=True)
class Ours:
    """A `tests.tiny.Family` whose network is loaded from a folder in the published format."""

    kind: str
    start: int = 0
    tolerance: float = 1e-11
    positions: bool = True

    @property
    def sigma(self) -> float:
        return 0.0 if self.kind == "mdlm" else -math.log(1 - 0.999 * TIME)

    def build(self, dtype: torch.dtype = torch.float64) -> Model:
        torch.manual_seed(7)
        model = Model(Scored(self.sigma) if self.kind == "sedd" else Backbone(self.sigma))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Neutral nowhere, so that whatever is dropped or swapped is seen.
                size = 1.0 if "embedding" in name else 0.2
                parameter.copy_(size * torch.randn_like(parameter) + ("norm" in name))
        return model.to(dtype)

    def save(self, folder: Path, dtype: torch.dtype = torch.float64) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors(dtype), folder / "model.safetensors", metadata={"format": "pt"})

    @property
    def config(self) -> dict[str, Any]:
        return SEDD_CONFIG if self.kind == "sedd" else {**MDLM_CONFIG, "time_conditioning": self.kind == "mdlm-timed"}

    def tensors(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """By their published names."""
        frequencies = 1.0 / 10_000.0 ** (torch.arange(0, E // HEADS, 2).float() / (E // HEADS))
        tensors = {**self.build(dtype).state_dict(), "backbone.rotary_emb.inv_freq": frequencies}
        tensors = {key.replace(".attention.", "."): value for key, value in tensors.items()}
        if self.kind == "sedd":
            tensors = {key.removeprefix("backbone."): value for key, value in tensors.items()}
        return tensors

    def network(self, dtype: torch.dtype = torch.float64) -> Any:
        with TemporaryDirectory() as folder:
            self.save(Path(folder))
            network, _ = open_network(folder, dtype=dtype)
        assert isinstance(network, DiTNetwork)
        if self.kind == "sedd":
            return TokenlessSEDD(self.kind, network.model, scaled=True)
        return TimedDiT(self.kind, network.model, timed=True) if self.kind == "mdlm-timed" else network


OURS = {kind: Ours(kind) for kind in ("mdlm", "mdlm-timed", "sedd")}
EVERY: dict[str, Any] = {**FAMILIES, **DECODERS, **OURS}
