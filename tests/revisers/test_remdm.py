"""ReMDM's coins as a reviser of other rankings."""

from __future__ import annotations

import pytest
import torch

import tabes
from tabes.canvas import Canvas
from tabes.remasking import RATES
from tests.conftest import MASK


def canvas_of(rows: int = 1, new: int = 24, **arguments: int) -> Canvas:
    return Canvas.create(torch.tensor([[3, 4, 5]] * rows), mask_id=MASK, max_new_tokens=new, **arguments)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("ranking", ["confidence", "boe"])
def test_any_ranking_can_run_with_it(golden_model: tabes.Denoiser, ranking: str, rate: str) -> None:
    rule = tabes.sampler(ranking, reviser="remdm", rate=rate, eta=0.3, num_steps=12)
    steps = list(tabes.decode(golden_model, canvas_of(4), rule, seed=0))
    assert rule.revises
    assert len(steps) == 12, "the budget writes as many more as are taken back"
    assert not bool(steps[-1].canvas.masked_BL.any())
    assert sum(len(row) for step in steps for row in step.remasked) > 0
    for step in steps[:-1]:
        assert [len(new) - len(back) for new, back in zip(step.positions, step.remasked, strict=True)] == [2] * 4


def test_eta_0_is_locked_in(golden_model: tabes.Denoiser) -> None:
    locked = tabes.decode(golden_model, canvas_of(), tabes.sampler("confidence", num_steps=8))
    coins = tabes.decode(golden_model, canvas_of(), tabes.sampler("confidence", num_steps=8, reviser="remdm", eta=0.0))
    assert [step.canvas.tokens_BL.tolist() for step in locked] == [step.canvas.tokens_BL.tolist() for step in coins]


def test_nothing_is_taken_back_before_the_switch(golden_model: tabes.Denoiser) -> None:
    rule = tabes.sampler("confidence", num_steps=12, reviser="remdm", rate="rescale", eta=1.0, switch=0.5)
    taken = 0
    for step in tabes.decode(golden_model, canvas_of(8), rule, seed=0):
        back = sum(len(row) for row in step.remasked)
        if float(step.before.time_B[0]) >= 0.5:
            assert not back
        taken += back
    assert taken


def test_how_often(golden_model: tabes.Denoiser) -> None:
    """cap: a share eta of what is written; counted over many rows while there is room for what is taken back."""
    batch, new, checked = 400, 20, 0
    rule = tabes.sampler("confidence", num_steps=10, reviser="remdm", rate="cap", eta=0.1)
    for step in tabes.decode(golden_model, canvas_of(batch, new), rule, seed=5):
        masked = float(step.before.time_B[0])
        written = batch * (1 - masked) * new
        back = sum(len(row) for row in step.remasked)
        if 0.35 < masked < 1:
            assert abs(back - 0.1 * written) <= 3 * (written * 0.1 * 0.9) ** 0.5
            checked += 1
        assert back <= 0.1 * written + 3 * (written * 0.1 * 0.9) ** 0.5
    assert checked == 6


def test_conf_prefers_what_was_unsure_when_written(golden_model: tabes.Denoiser) -> None:
    """Of two written rows the one written at a lower probability is taken back e^(difference) times as often."""
    psi_BL = torch.tensor([[0.9, 0.1, 0.0]])
    written_BL = torch.tensor([[True, True, False]])
    sigma_BL = RATES["conf"](1.0, torch.tensor([1.0], dtype=torch.float64), psi_BL, written_BL)
    assert float(sigma_BL.sum()) == pytest.approx(1.0)
    assert float(sigma_BL[0, 1] / sigma_BL[0, 0]) == pytest.approx(torch.e**0.8, rel=1e-6)
    assert float(sigma_BL[0, 2]) == 0.0


def test_blocks_stay_closed(golden_model: tabes.Denoiser) -> None:
    rule = tabes.sampler("confidence", num_steps=12, reviser="remdm", rate="rescale", eta=1.0)
    taken = 0
    for step in tabes.decode(golden_model, canvas_of(4, 24, block_length=8), rule, seed=0):
        for row, positions in enumerate(step.remasked):
            block = int(step.before.block_B[row])
            assert all(int(step.before.block_BL[row, at]) == block for at in positions)
            taken += len(positions)
    assert taken
