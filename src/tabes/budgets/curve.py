"""Few tokens first, many later, along a curve (MaskGIT, arXiv 2202.04200).

    masks kept after step s of S = floor(n curve(s / S)), at least one token a step, everything at the last

    cosine: cos(pi r / 2)    linear: 1 - r    power: 1 - r^k    log: -log r / log n    exp: 1 - n^(r - 1)

with n the masks the block started with. Cosine, power and exp start slowly, log starts fast. `power` with
exponent 1 is `linear`, `linear` is `even` where S divides n; with one step every curve is `even` with one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, pi

import torch
from torch import Tensor

from tabes.budgets.blocks import BlockClock, num_steps_setting
from tabes.canvas import Canvas
from tabes.parts import BUDGETS, CountBudget
from tabes.settings import setting
from tabes.view import View

__all__ = ["Curve"]

_CURVES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "cosine": lambda r_B, n_B, k: (r_B * (pi / 2)).cos(),
    "linear": lambda r_B, n_B, k: 1 - r_B,
    "power": lambda r_B, n_B, k: 1 - r_B**k,
    "log": lambda r_B, n_B, k: -r_B.log() / n_B.log(),
    "exp": lambda r_B, n_B, k: 1 - n_B ** (r_B - 1),
}
# A product that is a whole number may come out a hair below it.
_HAIR = 1e-9


@BUDGETS.register("curve")
@dataclass(frozen=True)
class Curve(CountBudget):
    """`num_steps` steps in all, shared evenly between blocks; None means as many as there are masks."""

    num_steps: int | None = num_steps_setting()
    curve: str = setting("cosine", "how the share of masks kept falls from step to step", choices=tuple(_CURVES))
    exponent: float = setting(2.0, "k of the curve 'power'", above=0, below=inf)

    def init(self, canvas: Canvas) -> BlockClock:
        return BlockClock.create(canvas, self.num_steps)

    def progress(self, view: View, state: BlockClock) -> Tensor:
        return state.progress(view.canvas)

    def counts(self, view: View, state: BlockClock) -> tuple[Tensor, BlockClock]:
        masks_B, progress_B = state.now(view.canvas)[0], state.progress(view.canvas)
        share_B = _CURVES[self.curve](progress_B, masks_B.double().clamp(min=2), self.exponent).clamp(0, 1)
        kept_B = (masks_B * share_B + _HAIR).floor().long()
        open_B = view.canvas.open_BL.sum(1)
        count_B = torch.where(progress_B >= 1, open_B, (open_B - kept_B.clamp(min=1)).clamp(min=1))
        return count_B, state.tick(view.canvas)
