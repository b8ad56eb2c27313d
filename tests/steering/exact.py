"""What a tiny model says of one unpadded canvas, by transformers and arithmetic alone: no code under test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tests.steering.scenes import MASK
from tests.tiny import Family, Reference


class Exact:
    """Entropies as a function of embeddings or tokens: of the whole canvas, or of a replay of some rows."""

    def __init__(self, family: Family, tokens_L: Tensor) -> None:
        self.family, self.tokens_L = family, tokens_L
        self.reference = Reference(family, tokens_L)
        self.model = self.reference.model
        self.table_VE = self.model.get_input_embeddings().weight.detach()
        self.embeddings_LE = self.table_VE[tokens_L]
        self._remembered = self.reference.outputs

    def p(self, embeddings_LE: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """(L, V) without the mask id, or (len(active), V) of a replay of those rows."""
        with torch.no_grad():
            if active is None:
                places = {"position_ids": torch.arange(len(embeddings_LE))[None]}
                logits = self.model(inputs_embeds=embeddings_LE[None], **places).logits[0]
            else:
                # A replay of the reference goes on from the one before: start from the forward every time.
                self.reference.outputs, self.reference.embeddings_LE = self._remembered, self.embeddings_LE
                hidden = self.reference.replay(list(active), embeddings_LE[list(active)])
                logits = (self.model.lm_head if hasattr(self.model, "lm_head") else self.model.cls)(hidden)
        logits = logits.clone()
        logits[:, MASK] = -torch.inf
        return torch.softmax(logits, -1)

    def entropies(self, embeddings_LE: Tensor, active: Sequence[int] | None = None) -> Tensor:
        """(L,); with `active` those of the other rows are 0."""
        p = self.p(embeddings_LE, active)
        found = -torch.special.xlogy(p, p).sum(-1)
        if active is None:
            return found
        return found.new_zeros(len(embeddings_LE)).index_put((torch.tensor(active),), found)

    def deltas(self) -> Tensor:
        """(L, E): the mean embedding of the predicted token less that of the mask, row by row."""
        return self.p(self.embeddings_LE) @ self.table_VE - self.table_VE[MASK]

    def written(self, writes: dict[int, int]) -> Tensor:
        """The embeddings after writing these tokens."""
        tokens_L = self.tokens_L.clone()
        for row, token in writes.items():
            tokens_L[row] = token
        return self.table_VE[tokens_L]
