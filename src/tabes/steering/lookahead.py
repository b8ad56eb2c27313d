"""Sparse lookahead: write a candidate's token in a copy, replay the masked rows alone, read what is left.

    drop_i = objective(before, without row i's own part) - objective(after writing i)

Every row that is not masked keeps its remembered keys and values; that is all that is approximate (with probes of the
block masks of later blocks keep them too). With a horizon of h the best few copies go on: their surest rows are tried
in turn, and the best continuation is added to the drop. Shapes: B batch rows, L canvas rows, N copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tabes.denoiser import AnyDenoiser
from tabes.settings import check, setting
from tabes.steering.failures import row_by_row
from tabes.steering.objectives import Objective, TotalEntropy
from tabes.steering.probes import Probes
from tabes.steering.scene import Copies, Scene
from tabes.steering.work import Price, before_flops, replay_flops

__all__ = ["Lookahead"]


@dataclass(frozen=True)
class Lookahead:
    """`horizon` writes ahead; from the second on, the `beam` best copies try their `beam` surest rows."""

    objective: Objective = field(default_factory=TotalEntropy)
    probes: Probes = field(default_factory=Probes)
    horizon: int = setting(1, "how many writes ahead", least=1, whole=True)
    beam: int = setting(2, "from the second write on: copies that go on, and rows tried in each", least=1, whole=True)

    def __post_init__(self) -> None:
        check(self)

    def drops(self, scene: Scene, candidates_BL: Tensor, *, offer_to: AnyDenoiser | None = None) -> Tensor:
        """(B, L) in the objective's units; 0 off the candidates, NaN where it failed.

        A denoiser that caches is handed the best replay.
        """

        def drops(scene: Scene, candidates_BL: Tensor) -> Tensor:
            # Part of a batch is no offer: the cache is asked for all of it.
            whole = len(candidates_BL) == batch and bool(candidates_BL.any(1).all())
            return self._drops(scene, candidates_BL, offer_to if whole else None)

        batch = len(candidates_BL)
        return row_by_row(drops, scene, candidates_BL)

    def price(self, scene: Scene) -> Price:
        """A replay for each candidate; at every later step one for the beam's rows in each copy that goes on."""
        masked_B, most_B = scene.canvas.masked_BL.sum(1), self.probes.most_B(scene.canvas)
        pool_B = self.probes.pool(scene.canvas).sum(1)
        rows_B = masked_B if self.horizon > 1 else torch.minimum(most_B + 1, pool_B)
        each_B = replay_flops(scene, rows_B, torch.minimum(most_B, pool_B - 1))
        once_B = before_flops(scene, most_B)
        for ahead in range(1, self.horizon):
            left_B = masked_B - ahead
            replay_B = replay_flops(scene, left_B, torch.minimum(most_B, left_B - 1))
            once_B = once_B + self.beam ** (ahead + 1) * replay_B
        return Price(once_B, each_B)

    def _drops(self, scene: Scene, candidates_BL: Tensor, offer_to: AnyDenoiser | None = None) -> Tensor:
        copies = Copies.of(candidates_BL)
        if len(copies) == 0:
            return scene.prediction.entropy_BL.new_zeros(candidates_BL.shape)
        probes_BL = self.probes.chosen(scene.canvas, scene.prediction, candidates_BL)
        before = scene.before.at(probes_BL)
        own_BL, before_B = self.objective.own(scene.canvas, before), self.objective.value(scene.canvas, before)
        offers = offer_to is not None and self._may_offer(scene, probes_BL) and offer_to.takes_offers
        # What is to be remembered is kept for all copies anyway.
        parts = [copies] if offers else copies.chunks(candidates_BL.shape[1])
        worlds = [self._written(scene, part, probes_BL, offers or self.horizon > 1) for part in parts]
        after_N = torch.cat([self.objective.value(world.canvas, world.prediction) for world in worlds])
        drop_N = copies.gather(before_B[:, None] - own_BL) - after_N
        if self.horizon > 1:
            drop_N = drop_N + self._further(copies, drop_N, worlds, len(candidates_BL))
        drops_BL = copies.spread(drop_N, candidates_BL)
        if offers and offer_to is not None:
            # If the best one is what gets written, its replay is the next prediction.
            best_B = torch.where(candidates_BL, drops_BL, -torch.inf).argmax(1)
            best_N = best_B[copies.batch_N] == copies.row_N
            offer_to.offer(worlds[0].canvas.select(best_N), worlds[0].prediction.select(best_N))
        return drops_BL

    def _may_offer(self, scene: Scene, probes_BL: Tensor) -> bool:
        """Whether the replay of a copy is what a cache would compute next: of all it is asked for, at its own time."""
        asked_BL = self.probes.pool(scene.canvas)
        return self.horizon == 1 and scene.next_time_B is None and probes_BL.equal(asked_BL)

    def _written(self, scene: Scene, part: Copies, probes_BL: Tensor, remember: bool) -> Scene:
        """The copies, each with its own row written and the masked rows predicted anew."""
        canvas, b_n = scene.canvas.select(part.batch_N), part.batch_N
        own_nL = part.own(canvas.tokens_BL.shape[1])
        written = canvas.with_tokens(torch.where(own_nL, scene.tokens_BL[b_n], canvas.tokens_BL))
        prediction = scene.denoiser.replay(
            scene.memory.select(b_n),
            canvas.masked_BL if self.horizon > 1 else probes_BL[b_n] | own_nL,
            tokens_BL=written.tokens_BL,
            read_BL=probes_BL[b_n] & ~own_nL,
            statistics=self.objective.statistics | ({"top_token", "confidence"} if self.horizon > 1 else set()),
            remember=remember,
        )
        tokens_BL = prediction.top_token_BL if self.horizon > 1 else written.tokens_BL
        return Scene(written, scene.denoiser, prediction, tokens_BL)

    def _further(self, copies: Copies, drop_N: Tensor, worlds: Sequence[Scene], batch: int) -> Tensor:
        """What the best continuation of each batch row's best few copies adds (N,); 0 for the others."""
        kept_N = _best(drop_N, copies.batch_N, batch, self.beam)
        ahead = Lookahead(self.objective, self.probes, self.horizon - 1, self.beam)
        gains, start = [], 0
        for world in worlds:
            kept_n = kept_N[start : start + len(world.tokens_BL)]
            start += len(world.tokens_BL)
            gain_n = drop_N.new_zeros(len(kept_n))
            if bool(kept_n.any()):
                # Where nothing is left to write there is nothing to say in which precision.
                gain_n[kept_n] = self._continuation(ahead, world.select(kept_n)).to(gain_n.dtype)
            gains.append(gain_n)
        return torch.cat(gains)

    def _continuation(self, ahead: Lookahead, world: Scene) -> Tensor:
        """The best further drop of every copy (n,), 0 where nothing is left to write."""
        open_nL = world.canvas.open_BL & world.prediction.rows_BL
        sure_nL = torch.where(open_nL, world.prediction.confidence_BL, -torch.inf)
        rank_nL = sure_nL.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
        tried_nL = open_nL & (rank_nL < self.beam)
        drops_nL = ahead._drops(world, tried_nL)
        best_n = torch.where(tried_nL, drops_nL, -torch.inf).amax(1)
        return torch.where(tried_nL.any(1), best_n, 0.0)


def _best(value_N: Tensor, group_N: Tensor, groups: int, count: int) -> Tensor:
    """Which values (N,) are among the `count` largest of their group."""
    chosen_N = torch.zeros_like(value_N, dtype=torch.bool)
    for _ in range(count):
        left_N = torch.where(chosen_N, -torch.inf, value_N)
        top_G = left_N.new_full((groups,), -torch.inf).scatter_reduce(0, group_N, left_N, "amax")
        chosen_N |= (left_N == top_G[group_N]) & torch.isfinite(left_N)
    return chosen_N
