"""Networks without numbers: made from a config alone, in their real sizes, and run like any other.

Every tensor is a fake one (`torch._subclasses.FakeTensor`: shape, dtype and storage, nothing in it), so that an 8B
model costs nothing and still runs the very code that decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2ForCausalLM,
)
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding

from tabes import bundled
from tabes.attention import registered
from tabes.errors import ModelError
from tabes.models import guard
from tabes.models.backbone import Backbone
from tabes.models.cards import cards
from tabes.models.families import Checkpoint, dream, hub, llada, llada_moe, mdlm, sedd
from tabes.models.families.dit import DiT
from tabes.models.families.dit_files import section, sizes_of
from tabes.models.families.dit_network import DiTNetwork
from tabes.models.network import Network, Work
from tabes.models.transformer import RowNetwork
from tabes.planning.published import PUBLISHED

__all__ = ["Shape", "fake_network"]


class Shape:
    """A network without numbers, and the tensors that are its weights."""

    def __init__(self, network: Network, module: nn.Module) -> None:
        self.network, self.weights = network, [*module.parameters(), *module.buffers()]
        self.parameters = sum(parameter.numel() for parameter in module.parameters())

    @property
    def bytes(self) -> int:
        """Of parameters and buffers, those that are shared once."""
        storages = {w.untyped_storage()._cdata: w.untyped_storage().nbytes() for w in self.weights}
        return sum(storages.values())


@contextmanager
def fake_network(name: str, dtype: torch.dtype | None, revision: str | None = None) -> Iterator[Shape]:
    """The network of a folder, of a published model or of any name of the hub; tensors made in here are fake too."""
    checkpoint = _checkpoint(name, revision)
    with guard.quiet(), guard.explained(name):
        module = _module(checkpoint, dtype or _dtype(checkpoint))
    with FakeTensorMode():
        _without_numbers(module)
        yield Shape(_network(checkpoint, module), module)


def _checkpoint(name: str, revision: str | None) -> Checkpoint:
    """Published sizes need no connection; the name of a family stands for the first of its models."""
    folder = bundled.folder(name)
    name = name if folder is None else str(folder)
    if not Path(name).exists():
        name = next((one for card in cards() if card.name == name for one in card.repositories), name)
        if name in PUBLISHED:
            return Checkpoint(name, PUBLISHED[name])
    guard.check_folder(Path(name))
    with guard.quiet():
        hub.check_name(name, revision)
        checkpoint = Checkpoint.find(name, revision)
    if checkpoint is None:
        raise ModelError(f"{name} has a config.json that cannot be read")
    return checkpoint


def _dtype(checkpoint: Checkpoint) -> torch.dtype:
    """What the config says its files are in; they are not opened."""
    named = checkpoint.config.get("dtype") or checkpoint.config.get("torch_dtype") or "float32"
    found = getattr(torch, str(named).removeprefix("torch."), None)
    return found if isinstance(found, torch.dtype) and found.is_floating_point else torch.float32


def _module(checkpoint: Checkpoint, dtype: torch.dtype) -> nn.Module:
    with torch.device("meta"):
        module = _built(checkpoint, dtype)
    return module.train(False).requires_grad_(False)


def _built(checkpoint: Checkpoint, dtype: torch.dtype) -> nn.Module:
    config = checkpoint.config
    if llada_moe.recognises(config):
        llada_moe.open(checkpoint, dtype=dtype, device=None, device_map=None)
    if llada.recognises(config):
        return _decoder(LlamaForCausalLM, llada._config(checkpoint), llada.ExactRotation, dtype)
    if dream.recognises(config):
        return _decoder(Qwen2ForCausalLM, dream._config(checkpoint), Qwen2RotaryEmbedding, dtype)
    if mdlm.recognises(config):
        return DiT(sizes_of(checkpoint, config, mdlm._SIZES), dtype)
    if sedd.recognises(config):
        table = section(checkpoint, "model")
        return DiT(sizes_of(checkpoint, table, sedd._SIZES, vocab=config["tokens"] + 1), dtype)
    return _of_transformers(checkpoint).to(dtype)


def _of_transformers(checkpoint: Checkpoint) -> nn.Module:
    config = AutoConfig.from_pretrained(checkpoint.name, revision=checkpoint.revision, trust_remote_code=False)
    architecture = (config.architectures or [""])[0]
    guard.refuse(config, architecture)
    decoder = architecture.endswith(("ForCausalLM", "LMHeadModel"))
    kind: Any = AutoModelForCausalLM if decoder else AutoModelForMaskedLM
    module: nn.Module = kind.from_config(config)
    return module


def _decoder(kind: Any, config: Any, rotation: Any, dtype: torch.dtype) -> nn.Module:
    """As `tabes.models.families.native` makes it."""
    config.is_causal = False
    model: nn.Module = kind(config).to(dtype)
    model.base_model.rotary_emb = rotation(config)  # type: ignore[union-attr]
    return model


def _without_numbers(module: nn.Module) -> None:
    """Every weight becomes a fake one, on what it takes for a CPU; weights that are shared stay shared."""
    fakes: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in fakes:
            fakes[id(tensor)] = torch.empty(tensor.shape, dtype=tensor.dtype)
        return fakes[id(tensor)]

    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(fake(parameter), requires_grad=False)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fake(buffer)


def _network(checkpoint: Checkpoint, module: nn.Module) -> Network:
    if isinstance(module, DiT):
        timed = mdlm.recognises(checkpoint.config)
        kind = DiTNetwork if timed else sedd.SEDDNetwork
        options: dict[str, Any] = {"timed": False} if timed else {"scaled": True}
        return kind(checkpoint.name, module, **options)
    assert isinstance(module, PreTrainedModel)
    registered.register()
    with suppress(ValueError):  # some keep their own; what cannot be replayed is found out when it is tried
        module.set_attn_implementation(registered.NAME)
    backbone = Backbone(module)
    backbone.offset = 0 if backbone.takes_positions else None
    table_VE = backbone.embedding_weight()
    text = module.config.get_text_config()
    network = RowNetwork(
        checkpoint.name, backbone, Work(1.0, 1.0, 1.0), vocab_size=len(table_VE), hidden_size=text.hidden_size
    )
    network.shifted = dream.recognises(checkpoint.config)
    return network
