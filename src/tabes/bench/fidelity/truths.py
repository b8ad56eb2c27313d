"""What is true of a candidate: the exact drop when its token is written, and the relaxed path of the theorem.

    drop_i = sum_{j != i} H_j(before) - sum_{j != i} H_j(token of i written)        (one full forward for each i)
    H~(alpha; i) = sum_{j != i} H_j(row i embedded as e_mask + alpha delta_i)       (nothing else moved)

Shapes: B batch rows, L canvas rows, N copies, G points of the path, E embedding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tabes.steering import Copies, Objective, Scene, soft_deltas

__all__ = ["exact_drops", "relaxed_paths"]


def exact_drops(scene: Scene, candidates_BL: Tensor, objective: Objective) -> Tensor:
    """(B, L); 0 off the candidates. Nothing is replayed: whatever a replay leaves out is in here."""
    canvas, copies = scene.canvas, Copies.of(candidates_BL)
    before = scene.prediction.at(canvas.masked_BL)
    left_BL = objective.value(canvas, before)[:, None] - objective.own(canvas, before)
    drops = []
    for part in copies.chunks(candidates_BL.shape[1]):
        copied = canvas.select(part.batch_N)
        own_nL = part.own(candidates_BL.shape[1])
        written = copied.with_tokens(torch.where(own_nL, scene.tokens_BL[part.batch_N], copied.tokens_BL))
        after = scene.denoiser.predict(written, written.masked_BL, statistics=objective.statistics)
        drops.append(part.gather(left_BL) - objective.value(written, after))
    return copies.spread(torch.cat(drops), candidates_BL)


def relaxed_paths(
    scene: Scene,
    candidates_BL: Tensor,
    objective: Objective,
    points: int,
    on_point: Callable[[], None] = lambda: None,
) -> Tensor:
    """(B, L, G): the objective over the other masked rows at alpha = 0 ... 1; 0 off the candidates."""
    copies, delta_BLE = Copies.of(candidates_BL), soft_deltas(scene, candidates_BL)
    path = []
    for alpha in torch.linspace(0, 1, points).tolist():
        parts = copies.chunks(candidates_BL.shape[1])
        path.append(torch.cat([_at(scene, part, delta_BLE, objective, alpha) for part in parts]))
        on_point()
    path_NG = torch.stack(path, 1)
    return path_NG.new_zeros(*candidates_BL.shape, points).index_put((copies.batch_N, copies.row_N), path_NG)


def _at(scene: Scene, part: Copies, delta_BLE: Tensor, objective: Objective, alpha: float) -> Tensor:
    """(n,): one point of every copy's path, by a replay of all its rows, which is a dense forward."""
    canvas, b_n = scene.canvas.select(part.batch_N), part.batch_N
    own_nL = part.own(canvas.tokens_BL.shape[1])
    plain_nLE = scene.denoiser.base.network.embed(canvas.tokens_BL)
    moved_nLE = alpha * delta_BLE[b_n] * own_nL[..., None]
    prediction = scene.denoiser.replay(
        scene.memory.select(b_n),
        scene.content_BL[b_n],
        embeddings_BLE=plain_nLE + moved_nLE.to(plain_nLE.dtype),
        read_BL=canvas.masked_BL & ~own_nL,
        statistics=objective.statistics,
    )
    return objective.value(canvas, prediction)
