"""A transformers model seen as a backbone and a head, without a line of model code.

The backbone is `model.base_model`. The head is everything the full model does afterwards: we run the full model while
its backbone answers with hidden rows we hand it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

__all__ = ["Backbone"]

_given: ContextVar[Tensor | None] = ContextVar("tabes_given_hidden", default=None)


class Backbone:
    """Runs the two halves of a model.

    Attributes:
        offset: Added to positions counted from 0 (RoBERTa's start at 2); None where the backbone takes no positions.
        embeddable: Whether input embeddings give what their tokens give.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model, self.base = model, model.base_model
        # Forwards are decorated and sometimes wrapped by accelerate: the class has the signature that counts.
        self._accepts = frozenset(inspect.signature(type(self.base).forward).parameters)
        self.offset: int | None = None
        self.embeddable = "inputs_embeds" in self._accepts
        if not isinstance(self.base.forward, _Switch):
            self.base.forward = _Switch(self.base.forward)

    @property
    def takes_positions(self) -> bool:
        return "position_ids" in self._accepts

    @property
    def padding_id(self) -> int | None:
        padding: int | None = self.model.config.get_text_config().pad_token_id
        return padding

    @property
    def limit(self) -> int | None:
        """How many positions the config allows."""
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return limit if limit and limit > 0 else None

    def run(
        self,
        tokens_BL: Tensor | None,
        embeddings_BLE: Tensor | None = None,
        *,
        positions_BL: Tensor | None = None,
        padding_BL: Tensor | None = None,
    ) -> Tensor:
        """Hidden rows (B, L, d). Embeddings win over tokens; without positions the backbone counts its own."""
        inputs: dict[str, Any] = {"input_ids": tokens_BL} if embeddings_BLE is None else {}
        if embeddings_BLE is not None:
            inputs["inputs_embeds"] = embeddings_BLE
        if padding_BL is not None:
            inputs["attention_mask"] = (~padding_BL).long()
        if positions_BL is not None and self.offset is not None:
            inputs["position_ids"] = positions_BL + self.offset
        if "use_cache" in self._accepts:
            inputs["use_cache"] = False
        hidden_BLd: Tensor = self.base(**inputs)[0]
        return hidden_BLd

    def head(self, hidden_Nd: Tensor) -> Tensor:
        """Logits (N, V)."""
        tokens_1N = torch.zeros(1, hidden_Nd.shape[0], dtype=torch.int64, device=hidden_Nd.device)
        token = _given.set(hidden_Nd[None])
        try:
            logits_1NV: Tensor = self.model(input_ids=tokens_1N).logits
        finally:
            _given.reset(token)
        return logits_1NV[0]

    def embedding_weight(self) -> Tensor:
        weight: Any = self.model.get_input_embeddings().weight
        assert isinstance(weight, Tensor)
        return weight

    def embed(self, tokens_BL: Tensor) -> Tensor:
        embeddings_BLE: Tensor = self.model.get_input_embeddings()(tokens_BL)
        return embeddings_BLE


class _Switch:
    """The backbone's forward: its own, or the rows given in this thread. Set once, so threads may share a model."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hidden = _given.get()
        if hidden is None:
            return self._forward(*args, **kwargs)
        return _Answer(hidden)


class _Answer:
    """Stands for every kind of backbone output: it has hidden rows, and nothing else a head may ask for."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int | slice) -> Any:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None
