"""Predictions of one batch that went through the network in parts, as one. Shapes: N predicted rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.prediction import LogitSource, Prediction

__all__ = ["joined"]


def joined(parts: Sequence[Prediction]) -> Prediction:
    """The parts one after the other, without what was remembered. Several parts forget the statistics they knew."""
    if len(parts) == 1:
        return parts[0]
    source = _Joined(tuple(part.source for part in parts))
    rows_BL, computed_B = (torch.cat(x) for x in zip(*((p.rows_BL, p.computed_B) for p in parts), strict=True))
    return Prediction(rows_BL, source, parts[0].impossible, computed_B=computed_B)


@dataclass(frozen=True)
class _Joined:
    """Rows of several sources, those of the first one first."""

    sources: tuple[LogitSource, ...]

    @property
    def vocab_size(self) -> int:
        return self.sources[0].vocab_size

    def __len__(self) -> int:
        return sum(map(len, self.sources))

    def pick(self, index_M: Tensor) -> _Joined:
        """Rows in ascending order, as predictions pick them."""
        picked, start = [], 0
        for source in self.sources:
            here_M = (index_M >= start) & (index_M < start + len(source))
            picked.append(source.pick(index_M[here_M] - start))
            start += len(source)
        return _Joined(tuple(picked))

    def logits(self, rows: slice) -> Tensor:
        found, start = [], 0
        for source in self.sources:
            first, last = max(rows.start - start, 0), min(rows.stop - start, len(source))
            if first < last:
                found.append(source.logits(slice(first, last)))
            start += len(source)
        return torch.cat(found)
