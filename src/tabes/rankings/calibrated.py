"""Confident, uncommon and early first: PC-Sampler (arXiv 2508.13021).

    score_i = exp(-decay pos_i) min(-p_i(v_i) log(f(v_i) + 1e-9), cap)

with v_i the proposed token, p_i the model's own distribution, f the relative frequency of tokens in ordinary text, and
pos_i = 0, 1, ... counted from the start of the current block. Text that is given is not counted: of two holes with a
paragraph between them the second is one place behind the first. Rows are ordered by the logarithm of the score, because
exp(-0.25 x 420) is 0 in float32 and a canvas may be longer than that.

Without a table f = 1/V: the order of confidence times exp(-decay pos_i), where the probabilities above
cap / log V (0.85 for LLaDA's vocabulary and cap 10) are all the same.
Reduces to confidence with no table, decay 0 and cap log V or more; to left to right within the block as decay grows, or
with decay above 0 and a cap so small that it binds everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf, log
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.frequencies.table import SMALLEST, Frequencies
from tabes.parts import RANKINGS, Proposal, Ranking
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.view import View

__all__ = ["Calibrated"]


@RANKINGS.register("calibrated")
@dataclass(frozen=True)
class Calibrated(Ranking):
    """The probability of the proposed token times its surprise in ordinary text, falling along the block."""

    table: str | Path | Frequencies | None = setting(
        None, "token counts, a JSON file (see: tabes frequencies); none: all tokens are equally frequent"
    )
    decay: float = setting(0.25, "how fast the score falls along the block; 0: not at all", least=0, below=inf)
    cap: float = setting(10.0, "the largest p log(1/f), so that one rare token does not outweigh all", above=0)
    statistics: ClassVar[frozenset[str]] = frozenset({"log_normaliser"})

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.frequencies  # a table that cannot be read is the caller's error, not the first step's

    @cached_property
    def frequencies(self) -> Frequencies | None:
        """The table, read."""
        if self.table is None or isinstance(self.table, Frequencies):
            return self.table
        if not isinstance(self.table, str | Path):
            raise UsageError(f"table is {self.table!r}; it must be a path, a Frequencies or None")
        return Frequencies.load(self.table)

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        calibrated_BL = proposal.confidence_BL(prediction) * self._surprise(prediction, proposal.tokens_BL)
        smallest = torch.finfo(calibrated_BL.dtype).tiny  # log(0) is no score
        return calibrated_BL.clamp(min=smallest, max=self.cap).log() - self.decay * _place(view)

    def _surprise(self, prediction: Prediction, tokens_BL: Tensor) -> Tensor | float:
        vocab_size = prediction.vocab_size
        if self.frequencies is None:
            return -log(1 / vocab_size + SMALLEST)
        return self.frequencies.surprise(vocab_size, tokens_BL.device)[tokens_BL]


def _place(view: View) -> Tensor:
    """How many writable rows (B, L) of the current block come before each row, written ones included."""
    canvas = view.canvas
    inside_BL = canvas.writable_BL & (canvas.block_BL == canvas.block_B[:, None])
    return inside_BL.cumsum(1) - inside_BL.long()
