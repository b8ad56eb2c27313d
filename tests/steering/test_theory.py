"""The paper's theorem and its ordering corollary, on a denoiser whose curvature is bounded in closed form.

Along the segment of one soft write the logits of row j are z_j + alpha u_j. The entropy of a softmax then has the
second derivative -(Var u + E[(z - Ez)(u - Eu)^2]), at most (range u)^2 / 4 (1 + range z), and range z is convex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log2

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tabes import Canvas
from tabes.steering import Importance
from tests.steering.analytic import Mixer, denoiser, mixer
from tests.steering.scenes import canvas_of, rows, scene_of

THEOREM = Importance(expansion=0, self_term="exclude", injection="alone")
LENGTH = 6


@dataclass
class Segment:
    """What writing row i does to all other masked rows, by the formula of the network."""

    network: Mixer
    canvas: Canvas
    row: int

    def logits(self, share: float) -> Tensor:
        """(other masked rows, V without the mask)."""
        tokens_L, mask = self.canvas.tokens_BL[0], self.canvas.mask_id
        embeddings_LE = self.network.table_VE[tokens_L].clone()
        start_LV = self._all(embeddings_LE)
        soft_E = start_LV[self.row].softmax(0) @ self.network.table_VE[:mask]
        embeddings_LE[self.row] += share * (soft_E - self.network.table_VE[mask])
        others_L = tokens_L == mask
        others_L[self.row] = False
        return self._all(embeddings_LE)[others_L]

    def left(self, share: float) -> float:
        return float(torch.distributions.Categorical(logits=self.logits(share)).entropy().sum())

    @property
    def drop(self) -> float:
        return self.left(0.0) - self.left(1.0)

    @property
    def curvature(self) -> float:
        """The bound M."""
        start_JV, end_JV = self.logits(0.0), self.logits(1.0)
        spread_J = torch.maximum(_range(start_JV), _range(end_JV))
        return float((_range(end_JV - start_JV) ** 2 / 4 * (1 + spread_J)).sum())

    def _all(self, embeddings_LE: Tensor) -> Tensor:
        network = self.network
        hidden_LE = network.bias_LE[:LENGTH] + network.mix_LL[:LENGTH, :LENGTH] @ embeddings_LE
        return (hidden_LE @ network.head_EV)[:, : self.canvas.mask_id]


def _range(value_JV: Tensor) -> Tensor:
    return value_JV.amax(-1) - value_JV.amin(-1)


def cases(network: Mixer, *, given: bool = True) -> tuple[Tensor, list[Segment]]:
    mask = network.vocab_size - 1
    canvas = canvas_of([[0, mask, mask, 1, mask, mask] if given else [mask] * LENGTH], mask)
    masked = canvas.masked_BL[0].nonzero().flatten().tolist()
    tis_L = THEOREM.drops(scene_of(denoiser(network), canvas), rows(canvas, masked))[0]
    return tis_L[masked], [Segment(network, canvas, row) for row in masked]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), vocab=st.integers(3, 9), coupling=st.floats(0.003, 1.0))
def test_the_drop_is_within_half_the_curvature(seed: int, vocab: int, coupling: float) -> None:
    tis_N, segments = cases(mixer(LENGTH, vocab, 4, seed=seed, coupling=coupling))
    for tis, segment in zip(tis_N.tolist(), segments, strict=True):
        assert abs(segment.drop - tis) <= segment.curvature / 2 + 1e-12


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), coupling=st.floats(0.003, 0.3))
def test_a_gap_above_the_curvature_is_the_order_of_the_drops(seed: int, coupling: float) -> None:
    tis_N, segments = cases(mixer(LENGTH, 5, 4, seed=seed, coupling=coupling))
    bound = max(segment.curvature for segment in segments)
    for tis, segment in zip(tis_N.tolist(), segments, strict=True):
        for other_tis, other in zip(tis_N.tolist(), segments, strict=True):
            if tis - other_tis > bound:
                assert segment.drop > other.drop


def test_the_corollary_speaks_of_most_pairs_where_coupling_is_weak() -> None:
    """Importance falls with the coupling, curvature with its square."""
    decided = 0
    for seed in range(5):
        tis_N, segments = cases(mixer(LENGTH, 5, 4, seed=seed, coupling=1e-4))
        bound = max(segment.curvature for segment in segments)
        decided += int(((tis_N[:, None] - tis_N[None]) > bound).sum())
    assert decided > 0.8 * 5 * 6  # four masks: six ordered pairs out of twelve


def test_the_bound_is_nearly_reached() -> None:
    """Two tokens, both equally likely: the entropy is at its top, where its curvature is (range u)^2 / 4 exactly."""
    network = replace(mixer(LENGTH, 3, 4, seed=2, coupling=0.05), bias_LE=torch.zeros(LENGTH, 4, dtype=torch.float64))
    table_VE = network.table_VE.clone()
    table_VE[2] = 0  # masks say nothing: all rows start uniform
    tis_N, segments = cases(replace(network, table_VE=table_VE), given=False)
    assert tis_N.abs().max() < 1e-12, "at the top the slope is zero"
    shares = [abs(segment.drop - tis) / (segment.curvature / 2) for tis, segment in zip(tis_N, segments, strict=True)]
    assert min(map(float, shares)) > 0.7


@pytest.mark.parametrize(("expansion", "order"), [(0.0, 2), (0.5, 3), ("gauss", 5)])
def test_the_error_falls_with_the_order_of_the_rule(expansion: float | str, order: int) -> None:
    """Halve the step and the error falls by 2^2 at the mask, 2^3 at the midpoint, 2^5 with two Gauss points."""
    rule = replace(THEOREM, expansion=expansion)  # type: ignore[arg-type]
    base = mixer(LENGTH, 5, 4, seed=1)
    table_VE = base.table_VE.clone()
    table_VE[4] = 0  # a mask embedding of zero: the coupling scales the step and nothing else
    errors = []
    for coupling in (0.04, 0.02):
        network = replace(base, table_VE=table_VE, mix_LL=coupling * base.mix_LL)
        canvas = canvas_of([[4] * LENGTH], 4)
        found_L = rule.drops(scene_of(denoiser(network), canvas), canvas.masked_BL)[0]
        drop_L = torch.tensor([Segment(network, canvas, i).drop for i in range(LENGTH)], dtype=torch.float64)
        errors.append(float((found_L - drop_L).abs().sum()))
    assert log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.35)
