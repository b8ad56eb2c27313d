"""Checkpoints in the formats of LLaDA and Dream, of any size: their files, and the class of transformers they are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from tabes.models.loading import open_network
from tests.tiny import HEADS, E, V

GOLDEN = Path(__file__).parent / "golden" / "models"
# Config names of one size, LLaDA's and Dream's.
CONFIG = {
    "width": ("d_model", "hidden_size"),
    "layers": ("n_layers", "num_hidden_layers"),
    "heads": ("n_heads", "num_attention_heads"),
    "key_heads": ("n_kv_heads", "num_key_value_heads"),
    "mlp": ("mlp_hidden_size", "intermediate_size"),
    "vocab": ("vocab_size", "vocab_size"),
    "length": ("max_sequence_length", "max_position_embeddings"),
}
# Llama's and Qwen2's names, and LLaDA's.
_OUTSIDE = {
    "model.embed_tokens": "model.transformer.wte",
    "model.norm": "model.transformer.ln_f",
    "lm_head": "model.transformer.ff_out",
}
_INSIDE = {
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
}


@dataclass(frozen=True)
class Decoder:
    """A `tests.tiny.Family` whose network is loaded from a folder in the published format."""

    kind: str  # "llada" or "dream"
    sizes: dict[str, int] = field(default_factory=dict, hash=False)
    ids: dict[str, int] = field(default_factory=lambda: {"mask": 5, "end": 2}, hash=False)
    start: int = 0
    tolerance: float = 1e-11
    positions: bool = True

    def size(self, name: str) -> int:
        usual = {"width": E, "layers": 3, "heads": HEADS, "key_heads": 2, "mlp": 40, "vocab": V, "length": 64}
        return {**usual, **self.sizes}[name]

    @property
    def config(self) -> dict[str, Any]:
        """The published key set, with these sizes."""
        config: dict[str, Any] = json.loads((GOLDEN / self.kind / "config.json").read_text())
        config |= {names[self.kind == "dream"]: self.size(name) for name, names in CONFIG.items()}
        if self.kind == "llada":
            config["embedding_size"] = self.size("vocab")
        else:
            config["bos_token_id"] = self.ids["end"]
        ids = {"mask_token_id": self.ids["mask"], "eos_token_id": self.ids["end"], "pad_token_id": self.ids["end"]}
        return config | ids

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every tensor, by the names of Llama and Qwen2."""
        d, m, V_ = self.size("width"), self.size("mlp"), self.size("vocab")
        keys = d // self.size("heads") * self.size("key_heads")
        block: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (d, d),
            "self_attn.k_proj.weight": (keys, d),
            "self_attn.v_proj.weight": (keys, d),
            "self_attn.o_proj.weight": (d, d),
            "mlp.gate_proj.weight": (m, d),
            "mlp.up_proj.weight": (m, d),
            "mlp.down_proj.weight": (d, m),
            "input_layernorm.weight": (d,),
            "post_attention_layernorm.weight": (d,),
        }
        if self.kind == "dream":
            block |= {f"self_attn.{part}_proj.bias": (n,) for part, n in (("q", d), ("k", keys), ("v", keys))}
        inside = {f"model.layers.{n}.{name}": s for n in range(self.size("layers")) for name, s in block.items()}
        return {
            "model.embed_tokens.weight": (V_, d),
            "model.norm.weight": (d,),
            "lm_head.weight": (V_, d),
            **inside,
        }

    def weights(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """Random, neutral nowhere, so that whatever is dropped or swapped is seen."""
        generator = torch.Generator().manual_seed(7)
        found = {}
        for name, shape in self.shapes.items():
            scale = 1.0 if "embed" in name else 0.2 if len(shape) == 1 else 1.2 / shape[1] ** 0.5
            found[name] = (scale * torch.randn(shape, generator=generator) + ("norm" in name)).to(dtype)
        return found

    def published(self, name: str) -> str:
        """The name in a file of a weight that Llama or Qwen2 call `name`."""
        if self.kind == "dream":
            return name
        path, _, leaf = name.rpartition(".")
        if path in _OUTSIDE:
            return f"{_OUTSIDE[path]}.{leaf}"
        _, _, number, part = path.split(".", 3)
        return f"model.transformer.blocks.{number}.{_INSIDE[part]}.{leaf}"

    def save(self, folder: Path, dtype: torch.dtype = torch.float64, *, shards: int = 1) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        weights = {self.published(name): weight for name, weight in self.weights(dtype).items()}
        if shards == 1:
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
            return
        names = {key: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, key in enumerate(weights)}
        for name in sorted(set(names.values())):
            part = {key: weights[key] for key in names if names[key] == name}
            save_file(part, folder / name, metadata={"format": "pt"})
        size = sum(weight.numel() * weight.element_size() for weight in weights.values())
        index = {"metadata": {"total_size": size}, "weight_map": names}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    def build(self, dtype: torch.dtype = torch.float64) -> Any:
        """The class of transformers, made from the weights without our loader."""
        family = "Llama" if self.kind == "llada" else "Qwen2"
        options = {names[1]: self.size(name) for name, names in CONFIG.items()}
        theta, eps = self.config["rope_theta"], self.config["rms_norm_eps"]
        config = getattr(transformers, f"{family}Config")(
            **options,
            rms_norm_eps=eps,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings=False,
            is_causal=False,
        )
        model = getattr(transformers, f"{family}ForCausalLM")(config).to(dtype)
        model.load_state_dict(self.weights(dtype), strict=True)
        return model

    def network(self, dtype: torch.dtype = torch.float64) -> Any:
        with TemporaryDirectory() as folder:
            self.save(Path(folder))
            network, _ = open_network(folder, dtype=dtype)
        assert network.replays
        return network


DECODERS = {kind: Decoder(kind) for kind in ("llada", "dream")}
