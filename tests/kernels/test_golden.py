"""The recorded transition distributions of the reference implementations, and draws against them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import tabes
from tabes.kernels import DFM
from tests.conftest import GOLDEN
from tests.kernels.golden import KERNELS, Record, cases, kernel_of, log_p, memory_of, ours, records

RECORDS = [record for sampler in KERNELS for path in cases(sampler) for record in records(path)]


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_transition(record: Record, golden_model: tabes.Denoiser) -> None:
    log_p_LV, kernel = log_p(golden_model, record.canvas), kernel_of(record.case)
    mine_LV = ours(kernel, record, log_p_LV, memory_of(record))
    torch.testing.assert_close(mine_LV.sum(-1), torch.ones(len(mine_LV), dtype=torch.float64))
    torch.testing.assert_close(mine_LV, record.transition_LV, rtol=0, atol=1e-5)
    if "p_x0" in record.tensors:
        mine_LV = ours(kernel, record, record.tensors["p_x0"].log().clamp(min=-1e30), memory_of(record))
        torch.testing.assert_close(mine_LV, record.transition_LV, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "path", [path for sampler in KERNELS for path in cases(sampler)], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_time_grid(path: Path) -> None:
    case = json.loads(path.read_text())
    times = kernel_of(case).grid(case["params"]["T"])
    theirs = torch.tensor(case["schedule"], dtype=torch.float64)
    torch.testing.assert_close(times[:-1], theirs[:, 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(times[:-1] - times[1:], theirs[:, 1], rtol=0, atol=1e-6)


def test_dfm_takes_more_steps_than_asked_for() -> None:
    known = json.loads((GOLDEN / "schedules" / "dfm_steps.json").read_text())["dfm_number_of_steps"]
    assert known["128"] == 133
    assert {steps: len(DFM().grid(int(steps))) - 1 for steps in known} == known
    assert len(DFM().grid(1024)) - 1 == 1025


@pytest.mark.parametrize("sampler", ["mdlm_nucleus", "remdm_cap"])
def test_the_other_nucleus_is_another_distribution(sampler: str, golden_model: tabes.Denoiser) -> None:
    for record in records(GOLDEN / sampler / "T16_nucleus_0p9.json")[:3]:
        other = ours(kernel_of(record.case, nucleus="keep"), record, log_p(golden_model, record.canvas))
        assert float((other - record.transition_LV).abs().max()) > 1e-3


def test_what_conf_remembers(golden_model: tabes.Denoiser) -> None:
    """The filtered probability of the drawn tokens, from one record to the next."""
    checked = 0
    for path in cases("remdm_conf"):
        found = records(path)
        for before, after in pairwise(found):
            if after.facts["step_index"] != before.facts["step_index"] + 1:
                continue
            kernel = kernel_of(before.case)
            weights_LV = kernel.weights(log_p(golden_model, before.canvas))
            p_LV = weights_LV / weights_LV.sum(-1, keepdim=True)
            after_L = after.tensors["x_t"]
            new_L = before.canvas.masked_BL[0] & ~after.canvas.masked_BL[0]
            expected_L = p_LV.gather(1, after_L[:, None]).squeeze(1)[new_L]
            torch.testing.assert_close(expected_L, -after.tensors["conf"][new_L], rtol=0, atol=1e-5)
            checked += int(new_L.sum())
    assert checked
