"""Beam search over orders: several canvases at once, each scored by the log-probability of all it has written.

    score(canvas) = max over its orders of sum_t sum_{i in S_t} log p_i(v_i | canvas before step t),   v_i = argmax p_i

At every step each of the `beams` canvases is continued in `branch` ways: with its most confident rows, and with the
last of these exchanged for the next ones; of equal canvases the better is kept, and of all that came of a batch row the
`beams` best. The canvas shown is the best so far, so written tokens may change. One beam that never branches is
confidence with argmax; with beams and branches enough this is the best of all orders. Blocks are finished one after the
other by all beams together. A row cache saves nothing here: beams change places, so each forward is whole.
Shapes: B batch rows, L canvas rows, W beams, C continuations of a batch row, N beams of all batch rows together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.budgets.blocks import num_steps_setting
from tabes.budgets.even import Even
from tabes.budgets.tokens_per_step import TokensPerStep
from tabes.canvas import Canvas, Move
from tabes.errors import UsageError
from tabes.parts import CountBudget
from tabes.sampling import KERNELS
from tabes.settings import check, setting
from tabes.steering.foresight import chunks, placed
from tabes.steering.paths import nearest
from tabes.view import View

__all__ = ["Beam", "Beams"]

_STATISTICS = frozenset({"top_token", "top_logit", "log_normaliser"})


@dataclass(frozen=True)
class Beams(Batched):
    """The canvases of every batch row, the best first; the score is -inf where there are fewer than W."""

    tokens_BWL: Tensor
    score_BW: Tensor
    budget: Any


@KERNELS.register("beam")
@dataclass(frozen=True)
class Beam:
    """`beams` canvases, `branch` continuations of each; as many steps as `num_steps` or `tokens_per_step` say."""

    num_steps: int | None = num_steps_setting()
    tokens_per_step: int | None = setting(None, "rows written at every step", least=1, whole=True)
    beams: int = setting(4, "canvases kept", least=1, whole=True)
    branch: int = setting(2, "continuations tried of each", least=1, whole=True)

    def __post_init__(self) -> None:
        check(self)
        if self.num_steps is not None and self.tokens_per_step is not None:
            raise UsageError("num_steps and tokens_per_step exclude each other; give one")

    @property
    def revises(self) -> bool:
        """One beam cannot be overtaken."""
        return self.beams > 1

    @cached_property
    def _budget(self) -> CountBudget:
        return Even(self.num_steps) if self.tokens_per_step is None else TokensPerStep(self.tokens_per_step)

    def init(self, canvas: Canvas) -> Beams:
        tokens_BWL = canvas.tokens_BL[:, None].expand(-1, self.beams, -1)
        score_BW = torch.full(tokens_BWL.shape[:2], -torch.inf, dtype=torch.float64, device=tokens_BWL.device)
        score_BW[:, 0] = 0.0
        return Beams(tokens_BWL, score_BW, self._budget.init(canvas))

    def step(self, view: View, state: Beams) -> tuple[Move, Beams]:
        # All beams have the same masks to fill in the same block, so the count is that of the best.
        count_B, budget = self._budget.counts(view, state.budget)
        tokens_BCL, score_BC = self._continued(view, state, count_B)
        tokens_BWL, score_BW = _best(tokens_BCL, _distinct(tokens_BCL, score_BC), self.beams)
        best_BL, now_BL, mask_id = tokens_BWL[:, 0], view.canvas.tokens_BL, view.canvas.mask_id
        changed_BL = best_BL != now_BL
        move = Move(changed_BL & (best_BL != mask_id), best_BL, changed_BL & (best_BL == mask_id))
        return move, Beams(tokens_BWL, score_BW, budget)

    def _continued(self, view: View, state: Beams, count_B: Tensor) -> tuple[Tensor, Tensor]:
        """What the beams become, and their scores: -inf for those that do not exist."""
        B, W, L = state.tokens_BWL.shape
        batch_N, beam_N = torch.isfinite(state.score_BW).nonzero(as_tuple=True)
        canvas = view.canvas.select(batch_N).with_tokens(state.tokens_BWL[batch_N, beam_N])
        top_NL, log_NL = _predicted(view, canvas, batch_N)
        open_NL = canvas.open_BL
        # Ranked by the probability itself, as `confidence` does.
        paths = nearest(open_NL, log_NL.exp(), count_B[batch_N], self.branch)
        tokens_NKL = torch.where(paths.write_BKL, top_NL[:, None], canvas.tokens_BL[:, None])
        gain_NK = torch.where(paths.write_BKL, log_NL.double()[:, None], 0.0).sum(2)
        score_NK = torch.where(paths.valid_BK, state.score_BW[batch_N, beam_N][:, None] + gain_NK, -torch.inf)
        tokens_BWKL = state.tokens_BWL[:, :, None].repeat(1, 1, self.branch, 1)
        score_BWK = state.score_BW.new_full((B, W, self.branch), -torch.inf)
        tokens_BWKL = tokens_BWKL.index_put((batch_N, beam_N), tokens_NKL)
        score_BWK = score_BWK.index_put((batch_N, beam_N), score_NK)
        return tokens_BWKL.view(B, -1, L), score_BWK.view(B, -1)


def _predicted(view: View, canvas: Canvas, batch_N: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest tokens (N, L) at the open rows and their log-probabilities."""
    tops, logs = [], []
    for n in chunks(batch_N, canvas.tokens_BL.shape[1]):
        part = canvas.select(n)
        with placed(batch_N[n], "in a beam"):
            prediction = view.denoiser.begin().predict(part, part.open_BL, statistics=_STATISTICS)
            tops.append(prediction.top_token_BL)
            logs.append(prediction.top_logit_BL - prediction.log_normaliser_BL)
    return torch.cat(tops), torch.cat(logs)


def _distinct(tokens_BCL: Tensor, score_BC: Tensor) -> Tensor:
    """The scores, -inf for a canvas that is there already with as good a one."""
    B, C, L = tokens_BCL.shape
    batch_BC1 = torch.arange(B, device=tokens_BCL.device)[:, None, None].expand(B, C, 1)
    _, group_N = torch.cat([batch_BC1, tokens_BCL], 2).view(B * C, L + 1).unique(dim=0, return_inverse=True)
    group_BC = group_N.view(B, C)
    same_BCC = group_BC[:, :, None] == group_BC[:, None, :]
    other_BCC = score_BC[:, None, :]
    place_C = torch.arange(C, device=score_BC.device)
    better_BCC = (other_BCC > score_BC[:, :, None]) | (
        (other_BCC == score_BC[:, :, None]) & (place_C[None, :] < place_C[:, None])
    )
    return torch.where((same_BCC & better_BCC).any(2), -torch.inf, score_BC)


def _best(tokens_BCL: Tensor, score_BC: Tensor, beams: int) -> tuple[Tensor, Tensor]:
    """The `beams` best; the first of equals."""
    place_BW = score_BC.argsort(dim=1, descending=True, stable=True)[:, :beams]
    tokens_BWL = tokens_BCL.gather(1, place_BW[..., None].expand(-1, -1, tokens_BCL.shape[2]))
    return tokens_BWL, score_BC.gather(1, place_BW)
