"""From a transformers model to a network: what it can do is found out by running it on a few tokens, not by its name.

Every check compares two ways to compute the same hidden rows. So a model whose positions cannot be given, whose rows
mix outside attention, or whose attention ignores the registry is recognised whatever it is called.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tabes.attention import Record, registered, using
from tabes.attention.outputs import RecordOutputs, hook_outputs, using_outputs
from tabes.errors import ModelError, TabesError
from tabes.models import checks, guard
from tabes.models.backbone import Backbone
from tabes.models.dense import DenseNetwork
from tabes.models.flops import attention_flops, count_linear
from tabes.models.network import Work
from tabes.models.transformer import RowNetwork, TransformerNetwork

__all__ = ["network_of"]

N = TypeVar("N", bound=TransformerNetwork)


@torch.no_grad()
def network_of(model: PreTrainedModel, name: str) -> TransformerNetwork:
    """The best network for a model. The model is changed: evaluation mode, frozen, and our attention function."""
    try:
        return _network_of(model, name)
    except (TabesError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {guard.first_sentence(error)}"
        raise ModelError(f"{name} does not run as a backbone followed by a vocabulary head ({reason})") from error


def _network_of(model: PreTrainedModel, name: str) -> TransformerNetwork:
    model.train(False)
    model.requires_grad_(False)
    backbone = Backbone(model)
    tokens_BL = _sample_tokens(backbone)
    before = model.config._attn_implementation
    reason = _adopt(model)
    hidden_BLd = backbone.run(tokens_BL)
    if not bool(torch.isfinite(hidden_BLd).all()):
        raise ModelError(f"{name} computes NaN or infinite hidden states: its weights are damaged")
    backbone.embeddable = backbone.embeddable and checks.embeds(backbone, tokens_BL, hidden_BLd)
    backbone.offset = checks.offset(backbone, tokens_BL, hidden_BLd)
    if reason is None and backbone.offset is None:
        reason = "it takes no position ids" if not backbone.takes_positions else "its positions have no fixed start"
    if reason is None:
        network, reason = _row_network(name, backbone, tokens_BL)
        if reason is None:
            return network
    model.set_attn_implementation(before)
    return _dense_network(name, backbone, tokens_BL, reason)


def _adopt(model: PreTrainedModel) -> str | None:
    """Give the model our attention function, or say why that is not possible."""
    registered.register()
    try:
        model.set_attn_implementation(registered.NAME)
    except ValueError:
        return "transformers does not let us replace its attention"
    return None


def _sample_tokens(backbone: Backbone) -> Tensor:
    """Two rows of a few different tokens, without padding tokens: some models treat those by their id."""
    size = backbone.embedding_weight().shape[0]
    padding = backbone.padding_id
    ids = [i for i in range(min(size, 40)) if i != padding]
    length = min(8, (backbone.limit or 10) - 2)
    tokens = [[ids[(7 * i + 3 * b + 1) % len(ids)] for i in range(length)] for b in range(2)]
    return torch.tensor(tokens, device=backbone.model.device)


def _row_network(name: str, backbone: Backbone, tokens_BL: Tensor) -> tuple[RowNetwork, str | None]:
    tape = Record()
    with using(tape), count_linear(backbone.base, tokens_BL.numel()) as linear:
        hidden_BLd = backbone.run(tokens_BL, positions_BL=checks.positions(tokens_BL))
    work = Work(linear.flops, attention_flops(tape), 0.0)
    network = _finished(RowNetwork, name, backbone, work, hidden_BLd)
    if not tape.layers:
        return network, "its attention does not go through transformers' registry"
    if not backbone.embeddable:
        return network, "it does not run from embeddings"
    return network, None if checks.replays(network, tokens_BL) else "its rows mix outside attention"


def _dense_network(name: str, backbone: Backbone, tokens_BL: Tensor, reason: str) -> TransformerNetwork:
    hook_outputs(backbone.base)
    tape = RecordOutputs()
    with count_linear(backbone.base, tokens_BL.numel()) as linear:
        hidden_BLd = backbone.run(tokens_BL, positions_BL=checks.positions(tokens_BL))
    refusal = _refusal(backbone, tokens_BL, tape)
    # An estimate: these modules do not show their heads, which together are as wide as the model nearly everywhere.
    calls = len(tape.layers) or getattr(backbone.model.config, "num_hidden_layers", 0)
    work = Work(linear.flops, 4.0 * hidden_BLd.shape[-1] * calls, 0.0, saves=False)
    if refusal is None:
        network = _finished(DenseNetwork, name, backbone, work, hidden_BLd)
        network.reason = reason
        return network
    refused = _finished(TransformerNetwork, name, backbone, work, hidden_BLd)
    way_out = "use a sampler without gradients and replays, such as 'confidence'"
    refused.refusal = f"{name} cannot replay rows because {refusal}: {way_out}"
    return refused


def _refusal(backbone: Backbone, tokens_BL: Tensor, tape: RecordOutputs) -> str | None:
    if not backbone.embeddable:
        return "it does not run from embeddings"
    try:
        with using_outputs(tape):
            backbone.run(tokens_BL, positions_BL=checks.positions(tokens_BL))
    except ModelError as error:
        return str(error)
    if not tape.layers:
        return "it has no attention modules"
    return None if checks.holds(backbone, tokens_BL) else "its rows mix outside attention"


def _finished(kind: type[N], name: str, backbone: Backbone, work: Work, hidden_BLd: Tensor) -> N:
    """The network, once its head has been measured."""
    rows_Nd = hidden_BLd.flatten(0, 1)
    with count_linear(backbone.model, rows_Nd.shape[0]) as linear:
        logits_NV = backbone.head(rows_Nd)
    vocab_size = logits_NV.shape[-1]
    if not bool(torch.isfinite(logits_NV).all()):
        raise ModelError(f"{name} computes NaN or infinite logits: its weights are damaged")
    embeddings, width = backbone.embedding_weight().shape
    if embeddings != vocab_size:
        raise ModelError(f"{name} embeds {embeddings} tokens but its head scores {vocab_size}: they must be the same")
    # A head tied by hand multiplies with the embedding table, which no linear module shows.
    head = linear.flops + (0 if vocab_size in linear.widths else 2 * width * vocab_size)
    work = Work(work.linear, work.attention, head, work.saves)
    return kind(name, backbone, work, vocab_size=vocab_size, hidden_size=rows_Nd.shape[-1])
