"""First weights for a Sudoku transformer that already knows which cells share a row, a column or a box.

Hidden dimensions 0..26 begin as three one-hot codes (row, column, box) and 27..36 as the token; the rest are free. In
every layer head 0 begins by comparing row codes, head 1 column codes, head 2 box codes. If a code has squared length
`c` after the embedding's layer norm, query and key weights `s` give two cells of one unit an attention score
`s * s * c / sqrt(head width)` above two others, so `s` is solved for the wanted gap.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import AlbertForMaskedLM
    from transformers.models.albert.modeling_albert import AlbertLayer

__all__ = ["start_with_geometry", "unit_codes"]

GAP: Final = 4.0  # attention score of a cell in the same unit above one outside it: e^4 = 55 times the weight
_UNITS: Final = 9
_TOKENS_FROM: Final = 3 * _UNITS
_RESERVED: Final = _TOKENS_FROM + 10


def unit_codes() -> Tensor:
    """Row, column and box of each cell as centred one-hot codes, (3, 81, 9)."""
    cell = torch.arange(81)
    row, column = cell // 9, cell % 9
    units = torch.stack([row, column, row // 3 * 3 + column // 3])
    return functional.one_hot(units, _UNITS).float() - 1 / _UNITS


def start_with_geometry(model: AlbertForMaskedLM) -> None:
    """Replace the first weights of `model`, in place, drawing from torch's global random state."""
    from transformers.models.albert.modeling_albert import AlbertLayer

    with torch.no_grad():
        _start_embeddings(model)
        score = GAP / _code_length(model)
        depth = model.config.num_hidden_layers * model.config.inner_group_num
        for module in model.modules():
            if isinstance(module, AlbertLayer):
                _start_layer(module, depth, score)


def _start_embeddings(model: AlbertForMaskedLM) -> None:
    embeddings = model.albert.embeddings
    embeddings.token_type_embeddings.weight.zero_()
    positions = embeddings.position_embeddings.weight
    positions.zero_()
    positions[:, :_TOKENS_FROM] = unit_codes().permute(1, 0, 2).flatten(1)
    words = embeddings.word_embeddings.weight
    words.zero_()
    words[:, _RESERVED:].normal_(0, 0.05)
    for token in range(1, 11):  # nine digits and the mask
        words[token, _TOKENS_FROM + token - 1] = 1.0
    words[model.config.pad_token_id].zero_()
    nn.init.eye_(model.albert.encoder.embedding_hidden_mapping_in.weight)


def _code_length(model: AlbertForMaskedLM) -> float:
    """The squared length of one unit code after the layer norm of the embeddings, for a canvas of masks."""
    masks = torch.full((1, 81), model.config.mask_token_id)
    rows = model.albert.embeddings(masks)[0, :, :_UNITS]
    return float((rows - rows.mean(0)).square().sum(1).mean())


def _start_layer(layer: AlbertLayer, depth: int, score: float) -> None:
    attention = layer.attention
    width, head = attention.hidden_size, attention.attention_head_size
    for projection in (attention.query, attention.key):
        projection.weight.normal_(0, 0.5 * width**-0.5)
        projection.weight[: 3 * head] *= 0.2
        for unit in range(3):
            block = projection.weight[unit * head : unit * head + _UNITS, unit * _UNITS : (unit + 1) * _UNITS]
            block.copy_(math.sqrt(score * math.sqrt(head)) * torch.eye(_UNITS))
    attention.value.weight.normal_(0, width**-0.5)
    layer.ffn.weight.normal_(0, width**-0.5)
    for output in (attention.dense, layer.ffn_output):  # small, and smaller still where the codes and tokens live
        output.weight.normal_(0, 0.5 * (output.in_features * 2 * depth) ** -0.5)
        output.weight[:_RESERVED] *= 0.1
