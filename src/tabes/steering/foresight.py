"""Foresight: what the network says after each of some paths, by a forward of every path or by a replay.

"full" runs the whole canvas once for every path, as published; the forward of the path that gets written is the next
step's, so it need not be made again. "replay" runs only the rows that are watched and those written, every other row
as remembered. Shapes: B batch rows, L canvas rows, K paths of a batch row, N paths of all batch rows together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser
from tabes.errors import NumericsError
from tabes.prediction import Prediction
from tabes.steering.joined import joined
from tabes.steering.paths import Paths
from tabes.steering.scene import Scene, at_once

__all__ = ["Foreseen", "Scope", "Trial", "Walk", "chunks", "keeps_nothing", "placed", "watched"]

Scope = Literal["masks", "block", "all"]


@dataclass(frozen=True)
class Walk:
    """What came of the paths that were tried: number n is the path `path_N[n]` of batch row `batch_N[n]`.

    `mean_N` is the mean of a statistic over the rows watched, `watched` the prediction at these and `whole` at all that
    may be asked for next.
    """

    batch_N: Tensor
    path_N: Tensor
    canvas: Canvas
    mean_N: Tensor
    watched: Prediction
    whole: Prediction

    def spread(self, value_N: Tensor, like_BK: Tensor) -> Tensor:
        """(B, K): values at their paths, -inf at those that were not tried."""
        return value_N.new_full(like_BK.shape, -torch.inf).index_put((self.batch_N, self.path_N), value_N)

    def won(self, index_B: Tensor) -> Tensor:
        """(N,): which paths are those chosen."""
        return index_B[self.batch_N] == self.path_N


@dataclass(frozen=True)
class Trial:
    """How paths are tried: which rows are watched, by which statistic, and what else is read in the same pass."""

    scope: Scope
    statistic: Literal["entropy", "confidence"]
    statistics: frozenset[str]

    def full(self, scene: Scene, paths: Paths, tried_BK: Tensor) -> Walk:
        """A forward of the canvas after every path in `tried_BK`, read at all that may be asked for next too."""
        batch_N, path_N, canvas, read_NL = self._after(scene, paths, tried_BK)
        whole_NL = read_NL | canvas.masked_BL | scene.prediction.rows_BL[batch_N]
        wholes, seen, means = [], [], []
        for n in chunks(batch_N, read_NL.shape[1]):
            with placed(batch_N[n]):
                # A row cache would take the paths for steps.
                whole = scene.denoiser.begin().predict(canvas.select(n), whole_NL[n], statistics=self.statistics)
                wholes.append(whole)
                seen.append(whole.at(read_NL[n]))
                means.append(self._mean(seen[-1]))
        return Walk(batch_N, path_N, canvas, torch.cat(means), joined(seen), joined(wholes))

    def replayed(self, scene: Scene, paths: Paths, tried_BK: Tensor, remember: bool) -> Walk:
        """The same with only the rows watched and written run anew; what is to be remembered is kept for all."""
        batch_N, path_N, canvas, read_NL = self._after(scene, paths, tried_BK)
        part_B = tried_BK.any(1)
        memory, place_N = scene.select(part_B).memory, (part_B.cumsum(0) - 1)[batch_N]
        rows_NL = read_NL | paths.write_BKL[batch_N, path_N]
        seen, means = [], []
        for n in [torch.arange(len(batch_N), device=batch_N.device)] if remember else chunks(batch_N, len(rows_NL[0])):
            with placed(batch_N[n]):
                seen.append(
                    scene.denoiser.replay(
                        memory.select(place_N[n]),
                        rows_NL[n],
                        tokens_BL=canvas.tokens_BL[n],
                        read_BL=read_NL[n],
                        statistics=self.statistics,
                        remember=remember,
                    )
                )
                means.append(self._mean(seen[-1]))
        together = joined(seen)
        return Walk(batch_N, path_N, canvas, torch.cat(means), together, together)

    def _after(self, scene: Scene, paths: Paths, tried_BK: Tensor) -> tuple[Tensor, Tensor, Canvas, Tensor]:
        """Which paths, their canvases, and what is watched there."""
        batch_N, path_N = tried_BK.nonzero(as_tuple=True)
        write_NL, canvas = paths.write_BKL[batch_N, path_N], scene.canvas.select(batch_N)
        read_NL = watched(scene.canvas, self.scope)[batch_N]
        if self.scope != "all":
            read_NL = read_NL & ~write_NL
        tokens_NL = torch.where(write_NL, scene.tokens_BL[batch_N], canvas.tokens_BL)
        return batch_N, path_N, canvas.with_tokens(tokens_NL), read_NL

    def _mean(self, prediction: Prediction) -> Tensor:
        value_NL = prediction.entropy_BL if self.statistic == "entropy" else prediction.confidence_BL
        return value_NL.sum(1) / prediction.rows_BL.sum(1).clamp(min=1)


@dataclass(frozen=True)
class Foreseen(Batched):
    """The forwards of the canvases that will be if what was chosen gets written, for the batch rows that have one."""

    tokens_BL: Tensor
    known_B: Tensor
    watched: Prediction
    whole: Prediction

    @classmethod
    def of(cls, walk: Walk, index_B: Tensor, canvas: Canvas) -> Self:
        """The canvases and forwards of the paths chosen."""
        won_N = walk.won(index_B)
        batch_M = walk.batch_N[won_N]
        tokens_BL = canvas.tokens_BL.index_put((batch_M,), walk.canvas.tokens_BL[won_N])
        known_B = torch.zeros_like(index_B, dtype=torch.bool).index_fill(0, batch_M, True)
        return cls(tokens_BL, known_B, walk.watched.select(won_N), walk.whole.select(won_N))

    def select(self, batch: Tensor) -> Self:
        """The batch rows where the bool mask is set; the predictions hold only those that are known."""
        kept = batch[self.known_B]
        predictions = self.watched.select(kept), self.whole.select(kept)
        return type(self)(self.tokens_BL[batch], self.known_B[batch], *predictions)

    def prediction(self, canvas: Canvas, rows_BL: Tensor) -> Prediction | None:
        """What was foreseen of these rows, if this is the canvas that was foreseen."""
        if not bool(self.known_B.all()) or not self.tokens_BL.equal(canvas.tokens_BL):
            return None
        for known in (self.watched, self.whole):
            if not bool((rows_BL & ~known.rows_BL).any()):
                return known.at(rows_BL)
        return None


def keeps_nothing(denoiser: AnyDenoiser) -> bool:
    """Whether a forward made early is the one that would be made later: nothing is kept from step to step."""
    return denoiser.begin() == denoiser


def watched(canvas: Canvas, scope: Scope) -> Tensor:
    """(B, L): all masks, those of the current block, or everything that may be written."""
    return {"masks": canvas.masked_BL, "block": canvas.open_BL, "all": canvas.writable_BL}[scope]


def chunks(batch_N: Tensor, length: int) -> Iterator[Tensor]:
    """As many paths at a time as go through the network together."""
    yield from torch.arange(len(batch_N), device=batch_N.device).split(at_once(batch_N.device, length))


@contextmanager
def placed(batch_n: Tensor, where: str = "after a path tried") -> Iterator[None]:
    """Errors inside name the batch row, not the path."""
    try:
        yield
    except NumericsError as error:
        row = None if error.batch_row is None else int(batch_n[error.batch_row])
        raise NumericsError(f"{error.what} {where}", row, error.position) from None
