"""Path planning (P2, arXiv 2502.03540): every step decides anew which rows are masked, the written ones included.

    z_j ~ p_j        score_j = log p_j(z_j) at masked rows, eta log p_j(z_j) at written ones
    masked after step i of N: the floor(F (1 - kappa(i / N))) lowest scores of the F free rows

Masks that are not among them take z_j; written rows keep their token or become masks. Of rows at the cut with equal
scores none is masked. z_j is the fresh proposal at written rows too: they are judged by how sure the model is there
now, not by the token they hold. `planner` says who judges:
* "self": the model, as above. p_j is its own distribution: temperature and filters choose z, not its score;
* "random": log u_j with u_j uniform. With eta 0 that is ancestral sampling with fixed counts;
* another denoiser q with the same ids: log q_j(y_j | y) at written rows, y the canvas with the block's masks filled by
  z. A second forward, counted in the same ledger as the model's, so that `Step.cost` has both.

Limits: eta 0 never takes anything back: the confidence ranking with the same counts. eta 1 is the rule Open-dLLM calls
p2 (it ranks probabilities, whose order is that of their logarithms). Blocks one after the other, N / blocks steps each.
Shapes: B batch rows, L canvas rows, N predicted rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, pi
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tabes.canvas import Canvas, Move
from tabes.denoiser import Denoiser
from tabes.errors import UsageError
from tabes.kernels.clock import KernelClock
from tabes.parts import Proposal, Writer
from tabes.prediction import Prediction
from tabes.sampling import KERNELS
from tabes.settings import as_in, check, setting
from tabes.view import View
from tabes.writers import Argmax, Categorical

__all__ = ["P2"]

_KAPPA: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda r: r,
    "cosine": lambda r: 1 - torch.cos(r * (pi / 2)),
    "sine": lambda r: torch.sin(r * (pi / 2)),
    "square": lambda r: r**2,
    "root": lambda r: r**0.5,
}
"""The share written after the share r of the steps; all rise from 0 to 1. Cosine and square start slowly."""
# What a product of float64 numbers may fall short of the integer that is meant.
_SLACK = 1e-9


@KERNELS.register("p2")
@dataclass(frozen=True)
class P2:
    """Plans anew in every step which rows stay written."""

    revises: ClassVar[bool] = True

    num_steps: int | None = setting(None, "steps in all, evenly over blocks; none: one per token", least=1, whole=True)
    eta: float = setting(1.0, "how readily written rows are taken back; 0: never", least=0, below=inf)
    kappa: str = setting("linear", "how the share of written rows grows", choices=tuple(_KAPPA))
    planner: Denoiser | Literal["self", "random"] = setting(
        "self", "who judges written rows: 'self', 'random', or another denoiser with the same ids"
    )
    temperature: float = setting(0.0, "how flat the distribution is made before the draw", least=0, below=inf)
    top_p: float | None = as_in(Categorical, "top_p")
    top_k: int | None = as_in(Categorical, "top_k")

    def __post_init__(self) -> None:
        check(self)
        if not isinstance(self.planner, Denoiser) and self.planner not in ("self", "random"):
            raise UsageError(f"planner is {self.planner!r}; it must be 'self', 'random' or a denoiser without wrappers")
        for name in ("top_p", "top_k"):
            if self.temperature == 0 and getattr(self, name) is not None:
                value = getattr(self, name)
                raise UsageError(f"{name}={value} has no effect at temperature 0; set a temperature above 0")

    @cached_property
    def writer(self) -> Writer:
        return Categorical(self.temperature, self.top_p, self.top_k) if self.temperature else Argmax()

    def init(self, canvas: Canvas) -> KernelClock:
        if isinstance(self.planner, Denoiser):
            self.planner.check(canvas)
        # There are no more blocks than rows; a step for every token is counted by the block, not by the clock.
        return KernelClock.create(canvas, self.num_steps or canvas.tokens_BL.shape[1], self._plan)

    def step(self, view: View, state: KernelClock) -> tuple[Move, KernelClock]:
        area_BL, masked_BL = state.area(view.canvas), view.canvas.masked_BL
        judged_by_model = self.planner == "self" and self.eta > 0
        rows_BL = area_BL if judged_by_model else area_BL & masked_BL
        prediction = view.predict(rows_BL, statistics=self.writer.statistics | {"log_normaliser"})
        proposal = self.writer.propose(view, prediction)
        scores_BL = self._scores(view, area_BL, prediction, proposal)

        kept_B, leave_B = self._kept(state, area_BL.sum(1))
        low_BL = _below_cut(scores_BL, area_BL, kept_B)
        state = state.tick(leave_B)
        write_BL, remask_BL = area_BL & masked_BL & ~low_BL, low_BL & ~masked_BL
        return Move(write_BL, proposal.tokens_BL, remask_BL, scores_BL, state.done()), state

    def _plan(self, steps: int) -> Tensor:
        """The share that is masked before, after 1, ... and after all of the steps."""
        return 1 - _KAPPA[self.kappa](torch.arange(steps + 1, dtype=torch.float64) / steps)

    def _kept(self, clock: KernelClock, free_B: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the free rows (B,) are to be masked after this step, and whether it is the block's last."""
        share_B, last_B = clock.next_time_B, clock.last_B
        if self.num_steps is None:
            after_B = clock.taken_B + 1
            share_B, last_B = 1 - _KAPPA[self.kappa](after_B.double() / free_B), after_B >= free_B
        return torch.where(last_B, 0, (free_B * share_B + _SLACK).floor().long()), last_B

    def _scores(self, view: View, area_BL: Tensor, prediction: Prediction, proposal: Proposal) -> Tensor:
        """Log-probabilities, at most 0, the written rows' times eta."""
        written_BL = area_BL & ~view.canvas.masked_BL
        if self.planner == "random":
            scores_BL = view.uniform("p2.planner").log().float()
        else:
            scores_BL = proposal.logit_BL - prediction.log_normaliser_BL
        if isinstance(self.planner, Denoiser) and self.eta > 0 and bool(written_BL.any()):
            tokens_BL = torch.where(prediction.rows_BL, proposal.tokens_BL, view.canvas.tokens_BL)
            scores_BL = torch.where(written_BL, _judged(self.planner, view, tokens_BL, written_BL), scores_BL)
        return torch.where(written_BL, self.eta * scores_BL, scores_BL)


def _below_cut(scores_BL: Tensor, area_BL: Tensor, count_B: Tensor) -> Tensor:
    """Rows strictly below the score of which `count_B` rows are lower: as many, or fewer where scores are equal."""
    keys_BL = torch.where(area_BL, scores_BL, inf)
    count_B1 = count_B.clamp(max=keys_BL.shape[1] - 1)[:, None]
    return keys_BL < keys_BL.sort(dim=1).values.gather(1, count_B1)


def _judged(planner: Denoiser, view: View, tokens_BL: Tensor, rows_BL: Tensor) -> Tensor:
    """The log-probability that `planner` gives to the tokens at these rows, all of them seen; its work counts here."""
    base = view.denoiser.base
    if planner.network.vocab_size < base.network.vocab_size:
        sizes = f"{planner.network.vocab_size} words but {base.name} {base.network.vocab_size}"
        raise UsageError(f"the planner {planner.name} has {sizes}; it must have the same ids")
    canvas = view.canvas.with_tokens(tokens_BL).to(planner.device)
    judge = replace(planner, ledger=base.ledger)
    prediction = judge.predict(canvas, rows_BL.to(planner.device), statistics=("log_normaliser",))
    token_N1 = canvas.tokens_BL[prediction.rows_BL][:, None]
    found = prediction.reduce(lambda logits_nV, rows: {"logit": logits_nV.gather(1, token_N1[rows]).squeeze(1)})
    return (found["logit"] - prediction.log_normaliser_BL).to(tokens_BL.device)
