"""A dense reference for shadow rows, by transformers alone: a forward of canvas and shadows under a 4-D mask."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from tests.tiny import REPLAYING

__all__ = ["dense"]

_NAME = "tabes-tests"
_WINDOWS = {"modernbert": (None, 3, None)}  # half the config's width, in every second layer


def dense(name: str, tokens_L: Tensor, rows: list[int], shadows_R: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden rows of an unpadded canvas (L, d) and of its shadows (R, d)."""
    family, L, R = REPLAYING[name], len(tokens_L), len(rows)
    model = family.build().eval().requires_grad_(False)
    places = torch.cat([torch.arange(L), torch.tensor(rows, dtype=torch.int64)])
    reads = torch.ones(L + R, L + R, dtype=torch.bool)
    reads[:, L:] = False
    reads[L:, L:] = True
    reads[L + torch.arange(R), rows] = False
    near = (places[:, None] - places).abs()
    masks = [reads if width is None else reads & (near <= width) for width in _WINDOWS.get(name, (None,) * 3)]
    with _masked(masks):
        model.set_attn_implementation(_NAME)
        hidden: Tensor = model.base_model(
            input_ids=torch.cat([tokens_L, shadows_R])[None], position_ids=places[None] + family.start
        )[0][0]
    return hidden[:L], hidden[L:]


@contextmanager
def _masked(masks: list[Tensor]) -> Iterator[None]:
    """Attention by hand under the next of these masks at every call."""

    def attention(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scaling = kwargs.get("scaling") or query.shape[-1] ** -0.5
        scores = (query @ key.transpose(2, 3) * scaling).masked_fill(~masks.pop(0), -torch.inf)
        return (scores.softmax(-1) @ value).transpose(1, 2), None

    AttentionInterface.register(_NAME, attention)
    AttentionMaskInterface.register(_NAME, lambda *args, **kwargs: None)
    try:
        yield
        assert not masks, "fewer attention calls than masks"
    finally:
        del AttentionInterface._global_mapping[_NAME]
        del AttentionMaskInterface._global_mapping[_NAME]
