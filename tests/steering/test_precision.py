"""In bfloat16 the order of the drops stays what it is in float32."""

from __future__ import annotations

from functools import cache
from math import pi, tan
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas
from tabes.denoiser import Denoiser
from tabes.steering import Importance, Lookahead
from tabes.steering.candidates import top
from tabes.tasks.sudoku import puzzles
from tests.steering.scenes import scene_of


@cache
def sudoku(dtype: torch.dtype) -> Denoiser:
    return tabes.load("sudoku", dtype=dtype)


@cache
def canvas() -> Canvas:
    """Hard ones, so that some rows are sure and many are not."""
    givens_BL = torch.from_numpy(puzzles(6, clues=24, seed=1).givens).long()
    mask_id = sudoku(torch.float32).mask_id
    return Canvas.create(torch.where(givens_BL > 0, givens_BL, mask_id), mask_id=mask_id)


def drops(rule: Any, dtype: torch.dtype, candidates_BL: Tensor) -> Tensor:
    found_BL: Tensor = rule.drops(scene_of(sudoku(dtype), canvas()), candidates_BL)
    assert found_BL.dtype == torch.float32
    return found_BL


def tau(a_N: Tensor, b_N: Tensor) -> float:
    """Kendall's: the share of pairs in the same order, less that of pairs in the opposite one."""
    same_NN = (a_N[:, None] - a_N[None]).sign() * (b_N[:, None] - b_N[None]).sign()
    return float(same_NN.sum()) / (len(a_N) * (len(a_N) - 1))


# Noise of sd s on scores of sd 1 swaps a share arctan(s) / pi of the pairs, so tau is 1 - 2 arctan(s) / pi. A rounding
# to the 8 bits of bfloat16 errs by up to 2^-9; a hundred of them in a replay of ten layers and its gradient, amplified
# where entropies bend, come to some percent. A quarter of the spread is more than that and leaves the order useful.
NOISE = 0.25
FLOOR = 1 - 2 * torch.tensor(NOISE).atan().item() / pi


@pytest.mark.parametrize(
    "rule",
    [Importance(), Importance("gauss"), Importance(0.0), Lookahead()],
    ids=["half", "gauss", "mask", "lookahead"],
)
def test_bfloat16_keeps_the_order(rule: Any) -> None:
    assert tan((1 - FLOOR) * pi / 2) == pytest.approx(NOISE)
    confidence_BL = scene_of(sudoku(torch.float32), canvas()).prediction.confidence_BL
    # Where the model is sure there is nothing to gain and nothing to order: the scores are rounding errors of 0.
    candidates_BL = top(canvas().masked_BL & (confidence_BL < 0.9), confidence_BL, torch.full((6,), 12))
    exact_BL, rough_BL = (drops(rule, dtype, candidates_BL) for dtype in (torch.float32, torch.bfloat16))
    taus, kept, best = [], 0.0, 0.0
    for b in range(len(candidates_BL)):
        exact_N, rough_N = exact_BL[b, candidates_BL[b]], rough_BL[b, candidates_BL[b]]
        assert len(exact_N) == 12
        taus.append(tau(exact_N, rough_N))
        kept += float(exact_N[rough_N.argmax()])
        best += float(exact_N.max())
    assert sum(taus) / len(taus) > FLOOR
    assert kept > (1 - NOISE) * best, "its first picks are not much worse"
