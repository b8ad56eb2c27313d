"""Rankings that try whole sets of rows: draw some paths, look one step ahead of each, let one win.

The rows of the winner come first, whatever the budget then cuts; all others follow by confidence. Nothing is tried
where there is only one path. With evaluate="full" a path costs a forward, and the winner's is the next step's
prediction if that step finds the canvas foreseen and the denoiser keeps nothing from step to step (a row cache does);
else the next step makes its own. With "replay" (ours) a path costs a replay of the rows watched, and a row cache is
offered the winner's. Shapes: B batch rows, L canvas rows, K paths of a batch row, N paths tried.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from tabes.parts import Proposal, Ranking
from tabes.prediction import Prediction
from tabes.settings import setting
from tabes.steering.foresight import Foreseen, Scope, Trial, Walk, keeps_nothing
from tabes.steering.order import in_front
from tabes.steering.paths import Paths
from tabes.steering.scene import Scene
from tabes.view import View

__all__ = ["Evaluate", "PathRanking"]

Evaluate = Literal["full", "replay"]


@dataclass(frozen=True)
class PathRanking(Ranking):
    """Draws, tries, chooses. A subclass says how paths are drawn, what they are worth and which one wins."""

    evaluate: Evaluate = setting(
        "full", "a forward for each path, or a replay of the rows watched", choices=("full", "replay")
    )
    scope: Scope = setting(
        "masks",
        "rows watched: what is still masked, that in the block, or all that may be written",
        choices=("masks", "block", "all"),
    )

    @abstractmethod
    def _drawn(self, view: View, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Paths:
        """The paths of this step, no two alike; `count_B` rows each."""

    @abstractmethod
    def _worth(self, prediction: Prediction, paths: Paths, walk: Walk) -> Tensor:
        """(B, K): what each path is worth, -inf where it was not tried."""

    def _chosen(self, view: View, worth_BK: Tensor) -> Tensor:
        """(B,): the winner; the first of equals."""
        return worth_BK.argmax(1)

    @property
    def _statistic(self) -> Literal["entropy", "confidence"]:
        return "entropy"

    @property
    def statistics(self) -> frozenset[str]:  # type: ignore[override]
        """The confidence of the proposals."""
        return frozenset({"log_normaliser"})

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        """Only replays start from what a forward left behind."""
        return self.evaluate == "replay"

    def foreseen(self, view: View, rows_BL: Tensor, state: Any) -> Prediction | None:
        return None if state is None else state.prediction(view.canvas, rows_BL)

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> tuple[Tensor, Any]:
        canvas, confidence_BL = view.canvas, proposal.confidence_BL(prediction)
        count_B = torch.ones_like(canvas.block_B) if proposal.count_B is None else proposal.count_B
        paths = self._drawn(view, prediction, confidence_BL, torch.minimum(count_B, canvas.open_BL.sum(1)))
        index_B, state = paths.valid_BK.long().argmax(1), None
        chooses_B = paths.count_B > 1
        if bool(chooses_B.any()):
            walk = self._walked(view, Scene.of(view, prediction, proposal), paths, chooses_B)
            chosen_B = self._chosen(view, self._worth(prediction, paths, walk))
            index_B = torch.where(chooses_B, chosen_B, index_B)
            state = self._kept(view, walk, index_B)
        first_BL = paths.at(index_B)
        others_BL = torch.where(canvas.open_BL, confidence_BL, -torch.inf)
        ordered_BL = in_front(first_BL, confidence_BL, others_BL)
        return torch.where(first_BL.any(1, keepdim=True), ordered_BL, confidence_BL), state

    def _walked(self, view: View, scene: Scene, paths: Paths, chooses_B: Tensor) -> Walk:
        tried_BK = paths.valid_BK & chooses_B[:, None]
        if self.evaluate == "replay":
            return self._trial.replayed(scene, paths, tried_BK, self._offers(view, scene, chooses_B))
        if keeps_nothing(view.denoiser):
            # The only path of a batch row costs what its next step would, and then that of all need not be made.
            left_BK = view.canvas.masked_BL.sum(1, keepdim=True) > paths.write_BKL.sum(2)
            tried_BK = paths.valid_BK & left_BK
        return self._trial.full(scene, paths, tried_BK)

    def _kept(self, view: View, walk: Walk, index_B: Tensor) -> Foreseen | None:
        """What the next step may use: here, or in the cache it is offered to."""
        if self.evaluate == "full":
            return Foreseen.of(walk, index_B, view.canvas) if keeps_nothing(view.denoiser) else None
        if walk.watched.remembered:
            won_N = walk.won(index_B)
            view.denoiser.offer(walk.canvas.select(won_N), walk.watched.select(won_N))
        return None

    def _offers(self, view: View, scene: Scene, chooses_B: Tensor) -> bool:
        """Whether a cache may take the winner's replay for its own: of the whole batch, and at its own time."""
        return view.denoiser.takes_offers and bool(chooses_B.all()) and scene.next_time_B is None

    @cached_property
    def _trial(self) -> Trial:
        # What the next step reads of the winner comes in the same pass.
        more = {"top_token", "top_logit", self._statistic}
        return Trial(self.scope, self._statistic, self.statistics | more)
