"""What a rule sees at one step: canvas, clock, denoiser, randomness. Nothing is computed until asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.denoiser import AnyDenoiser
from tabes.prediction import Prediction
from tabes.randomness import Randomness

__all__ = ["View"]


@dataclass
class View:
    """One step of one decoding.

    Shapes: B batch rows, L canvas rows. `time_B` falls from 1 (nothing written yet) to 0 (nothing masked).
    """

    canvas: Canvas
    denoiser: AnyDenoiser
    step: int
    randomness: Randomness
    _last: Prediction | None = field(default=None, repr=False)

    @property
    def time_B(self) -> Tensor:
        """The share of the writable rows that is still masked."""
        return self.canvas.time_B

    def predict(
        self,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        """The network's prediction at `rows_BL`: one forward, once per step for the same rows.

        Ask once for all the rows a step needs: other rows mean another forward. `time_B` is for rules with a clock of
        their own: what a timed network is told, if not the canvas's time.
        """
        last = self._last
        if last is not None and torch.equal(last.rows_BL, rows_BL) and last.remembered >= remember:
            return last
        self._last = self.denoiser.predict(
            self.canvas, rows_BL, statistics=statistics, remember=remember, time_B=time_B
        )
        return self._last

    def uniform(self, purpose: str) -> Tensor:
        """float64 in (0, 1) for every canvas row (B, L), from each row's own stream; one set per `purpose` and step."""
        return self.randomness.uniform(purpose, self.step, self.canvas.positions_BL)
