"""Tiny random models of many families, and a dense reference for replays that shares no code with the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from tabes.models.opening import network_of
from tabes.models.transformer import TransformerNetwork

V, E, HEADS = 60, 32, 4


@dataclass(frozen=True)
class Family:
    """How to build one, and what is known about it from its paper or its code, not from ours."""

    model: str
    config: str
    options: dict[str, Any] = field(default_factory=dict)
    start: int = 0  # first position id
    tolerance: float = 1e-11
    positions: bool = True

    def build(self, dtype: torch.dtype = torch.float64) -> Any:
        torch.manual_seed(7)
        options: dict[str, Any] = {
            "vocab_size": V,
            "hidden_size": E,
            "intermediate_size": 40,
            "num_hidden_layers": 3,
            "num_attention_heads": HEADS,
            "max_position_embeddings": 64,
        }
        special = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "sep_token_id": 2, "cls_token_id": 0}
        config = getattr(transformers, self.config)(**{**options, **special, **self.options})
        model = getattr(transformers, self.model)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                # Larger than real inits, so that positions, attention and biases all matter in three layers.
                parameter.add_(0.15 * torch.randn_like(parameter))
        return model.to(dtype)

    def network(self, dtype: torch.dtype = torch.float64) -> TransformerNetwork:
        network = network_of(self.build(dtype), self.model)
        # Loading notices broken replays and falls back: without this, every test below could pass on the fallback.
        assert network.replays == (self in REPLAYING.values())
        return network


_ROTARY_IN_FLOAT32 = 2e-6
_WINDOWS = {"local_attention": 6, "global_attn_every_n_layers": 2}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False}

REPLAYING = {
    "llama": Family("LlamaForCausalLM", "LlamaConfig", {"is_causal": False}),
    "llama-grouped": Family("LlamaForCausalLM", "LlamaConfig", {"is_causal": False, "num_key_value_heads": 1}),
    "qwen2-grouped": Family("Qwen2ForCausalLM", "Qwen2Config", {"is_causal": False, "num_key_value_heads": 2}),
    "bert": Family("BertForMaskedLM", "BertConfig"),
    "modernbert": Family("ModernBertForMaskedLM", "ModernBertConfig", _WINDOWS, tolerance=_ROTARY_IN_FLOAT32),
    "roberta": Family("RobertaForMaskedLM", "RobertaConfig", start=2),
    "camembert": Family("CamembertForMaskedLM", "CamembertConfig", start=2),
    "xlm-roberta": Family("XLMRobertaForMaskedLM", "XLMRobertaConfig", start=2),
    "albert": Family("AlbertForMaskedLM", "AlbertConfig", {"embedding_size": 16}),
    "distilbert": Family("DistilBertForMaskedLM", "DistilBertConfig", {"dim": E, "n_layers": 3, "n_heads": HEADS}),
    "electra": Family("ElectraForMaskedLM", "ElectraConfig", {"embedding_size": 16}),
    "ernie": Family("ErnieForMaskedLM", "ErnieConfig"),
    "esm": Family(
        "EsmForMaskedLM",
        "EsmConfig",
        {"position_embedding_type": "rotary", "mask_token_id": 5},
        tolerance=_ROTARY_IN_FLOAT32,
    ),
    "nomic-bert": Family("NomicBertForMaskedLM", "NomicBertConfig"),
    "eurobert": Family("EuroBertForMaskedLM", "EuroBertConfig"),
}
DENSE = {
    "deberta-v2": Family("DebertaV2ForMaskedLM", "DebertaV2Config", _RELATIVE),
    "mpnet": Family("MPNetForMaskedLM", "MPNetConfig", start=2),
    "roformer": Family("RoFormerForMaskedLM", "RoFormerConfig", positions=False),
    "megatron-bert": Family("MegatronBertForMaskedLM", "MegatronBertConfig"),
    "rembert": Family("RemBertForMaskedLM", "RemBertConfig", {"input_embedding_size": 16, "output_embedding_size": 16}),
}
# Attention outside, next to, or instead of what can be held constant.
REFUSED = {
    "deberta-v2 with a convolution": Family(
        "DebertaV2ForMaskedLM", "DebertaV2Config", {**_RELATIVE, "conv_kernel_size": 3, "conv_act": "gelu"}
    ),
    "fnet": Family("FNetForMaskedLM", "FNetConfig"),
    "mobilebert": Family(
        "MobileBertForMaskedLM", "MobileBertConfig", {"embedding_size": 16, "intra_bottleneck_size": 16}
    ),
    "esm with token dropout": Family(
        "EsmForMaskedLM",
        "EsmConfig",
        {"position_embedding_type": "rotary", "mask_token_id": 5, "token_dropout": True},
    ),
}
FAMILIES = {**REPLAYING, **DENSE}


@dataclass
class Canvas:
    """Padded batch rows with different row sets: the arguments of a forward and of a replay."""

    tokens_BL: Tensor
    positions_BL: Tensor
    padding_BL: Tensor | None
    rows_BR: Tensor
    valid_BR: Tensor | None


def ragged() -> Canvas:
    """Three canvases of 13 rows: without padding, padded on the left, padded on both sides; 4, 2 and 6 rows active."""
    generator = torch.Generator().manual_seed(3)
    tokens_BL = torch.randint(6, V, (3, 13), generator=generator)
    content = [range(13), range(4, 13), range(1, 11)]
    active = [[0, 12, 5, 7], [9, 4], [1, 10, 8, 3, 4, 2]]
    padding_BL = torch.ones(3, 13, dtype=torch.bool)
    positions_BL = torch.zeros(3, 13, dtype=torch.int64)
    rows_BR = torch.zeros(3, 6, dtype=torch.int64)
    valid_BR = torch.zeros(3, 6, dtype=torch.bool)
    for b, inside in enumerate(content):
        padding_BL[b, list(inside)] = False
        positions_BL[b, list(inside)] = torch.arange(len(inside))
        others = [row for row in range(13) if row not in active[b]]
        rows_BR[b] = torch.tensor((active[b] + others)[:6])
        valid_BR[b, : len(active[b])] = True
    tokens_BL[padding_BL] = 1
    return Canvas(tokens_BL, positions_BL, padding_BL, rows_BR, valid_BR)


def full(length: int, rows: list[list[int]]) -> Canvas:
    """Canvases without padding, with as many active rows each."""
    generator = torch.Generator().manual_seed(length)
    tokens_BL = torch.randint(6, V, (len(rows), length), generator=generator)
    positions_BL = torch.arange(length).expand(len(rows), length)
    return Canvas(tokens_BL, positions_BL, None, torch.tensor(rows), None)


class Reference:
    """One unpadded canvas, computed whole every time, with the attention outputs of inactive rows held constant."""

    def __init__(self, family: Family, tokens_L: Tensor, dtype: torch.dtype = torch.float64) -> None:
        self.model = family.build(dtype).eval().requires_grad_(False)
        self.family = family
        self.embeddings_LE = self.model.get_input_embeddings()(tokens_L).detach()
        self.modules = _innermost_attention(self.model.base_model)
        self.outputs: list[Tensor] = []
        self.hidden_Ld = self._run(self.embeddings_LE, lambda call, output: output).detach()

    def replay(self, rows: list[int], embeddings_RE: Tensor) -> Tensor:
        """Hidden rows (R, d); the attention outputs and embeddings become those of this replay."""
        before = self.outputs
        active_L1 = torch.zeros(len(self.embeddings_LE), 1, dtype=torch.bool)
        active_L1[rows] = True
        embeddings_LE = self.embeddings_LE.index_copy(0, torch.tensor(rows), embeddings_RE)
        hidden_Ld = self._run(embeddings_LE, lambda call, output: torch.where(active_L1, output, before[call]))
        self.embeddings_LE = embeddings_LE.detach()
        return hidden_Ld[rows]

    def detached(self, rows: list[int], embeddings_LE: Tensor) -> Tensor:
        """Hidden rows (L, d), the paper to the letter: the attention outputs of the other rows are detached."""
        active_L1 = torch.zeros(len(embeddings_LE), 1, dtype=torch.bool)
        active_L1[rows] = True
        return self._run(embeddings_LE, lambda call, output: torch.where(active_L1, output, output.detach()))

    def _run(self, embeddings_LE: Tensor, change: Any) -> Tensor:
        outputs: list[Tensor] = []

        def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            changed = change(len(outputs), output[0] if isinstance(output, tuple) else output)
            outputs.append(changed.detach())
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        handles = [module.register_forward_hook(hook) for module in self.modules]
        places: dict[str, Any] = {}
        if self.family.positions:
            places["position_ids"] = torch.arange(len(embeddings_LE))[None] + self.family.start
        try:
            hidden: Tensor = self.model.base_model(inputs_embeds=embeddings_LE[None], **places)[0][0]
        finally:
            for handle in handles:
                handle.remove()
        self.outputs = outputs
        return hidden


def _innermost_attention(model: nn.Module) -> list[nn.Module]:
    named = [module for module in model.modules() if "Attention" in type(module).__name__]
    return [m for m in named if not any("Attention" in type(child).__name__ for child in list(m.modules())[1:])]
