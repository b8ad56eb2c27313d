"""What a step really draws has the recorded frequencies: chi-square over twenty thousand equal batch rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import tabes
from tabes.canvas import Move
from tabes.errors import NumericsError
from tabes.kernels import ReMDM
from tabes.kernels.base import Chances, Kernel, KernelState, Now
from tabes.prediction import LogitSource, Prediction
from tabes.randomness import Randomness
from tabes.view import View
from tests.conftest import GOLDEN, MASK
from tests.kernels.golden import KERNELS, Record, cases, kernel_of, log_p, memory_of, records

DRAWS = 20_000
LEAST_P = 1e-3
RECORDS = [record for sampler in KERNELS for path in cases(sampler) for record in records(path)[::2]]


class Same:
    """A denoiser that says the same of every batch row."""

    def __init__(self, log_p_LV: Tensor) -> None:
        self.log_p_LV = log_p_LV

    def predict(self, canvas: Any, rows_BL: Tensor, *, statistics: Iterable[str] = (), **rest: Any) -> Prediction:
        return Prediction(rows_BL, _Rows(self.log_p_LV, rows_BL.nonzero()[:, 1]), (MASK,), statistics)


class _Rows:
    def __init__(self, log_p_LV: Tensor, row_N: Tensor) -> None:
        self.log_p_LV, self.row_N, self.vocab_size = log_p_LV, row_N, log_p_LV.shape[1]

    def __len__(self) -> int:
        return len(self.row_N)

    def logits(self, rows: slice) -> Tensor:
        return self.log_p_LV[self.row_N[rows]]

    def pick(self, index_M: Tensor) -> LogitSource:
        return _Rows(self.log_p_LV, self.row_N[index_M])


def at_step(kernel: Kernel, record: Record) -> KernelState:
    """The state in which the kernel meets the record."""
    state = kernel.init(replace(record.canvas, tokens_BL=torch.full_like(record.canvas.tokens_BL, MASK)))
    taken_B = torch.full_like(state.clock.taken_B, record.facts["step_index"])
    memory = memory_of(record)
    return KernelState(replace(state.clock, taken_B=taken_B), state.memory if memory is None else memory)


def counts(kernel: Kernel, record: Record, log_p_LV: Tensor, seed: int = 1) -> Tensor:
    """(L, V): how often every token came next in one step."""
    batch = torch.zeros(DRAWS, dtype=torch.int64)
    canvas, state = record.canvas.select(batch), at_step(kernel, record).select(batch)
    denoiser: Any = Same(log_p_LV)
    view = View(canvas, denoiser, 0, Randomness.create(seed, DRAWS, torch.device("cpu")))
    move, _ = kernel.step(view, state)
    tokens_BL = canvas.apply(move).tokens_BL
    return torch.nn.functional.one_hot(tokens_BL, log_p_LV.shape[1]).sum(0)


def p_value(counts_LV: Tensor, p_LV: Tensor) -> float:
    """Pearson's test over all rows; tokens expected fewer than five times are one bin, or belong to the largest one."""
    expected_LV = p_LV * DRAWS
    rare_LV = expected_LV < 5
    rare_L = (expected_LV * rare_LV).sum(1)
    largest_L1 = expected_LV.argmax(1, keepdim=True)
    rare_counts_L = (counts_LV * rare_LV).sum(1)
    pools_L = rare_L >= 5
    e_LV, c_LV = expected_LV.masked_fill(rare_LV, 0.0), counts_LV.double().masked_fill(rare_LV, 0.0)
    e_LV = e_LV.scatter_add(1, largest_L1, torch.where(pools_L, 0.0, rare_L)[:, None])
    c_LV = c_LV.scatter_add(1, largest_L1, torch.where(pools_L, 0.0, rare_counts_L.double())[:, None])
    e_LB = torch.cat([e_LV, torch.where(pools_L, rare_L, 0.0)[:, None]], 1)
    c_LB = torch.cat([c_LV, torch.where(pools_L, rare_counts_L.double(), 0.0)[:, None]], 1)
    bins_LB = e_LB > 0
    statistic = ((c_LB - e_LB)[bins_LB] ** 2 / e_LB[bins_LB]).sum()
    freedom = int((bins_LB.sum(1) - 1).sum())
    return float(chi2.sf(float(statistic), freedom)) if freedom else float(statistic == 0)


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_frequencies(record: Record, golden_model: tabes.Denoiser) -> None:
    found_LV = counts(kernel_of(record.case), record, log_p(golden_model, record.canvas))
    possible_LV = record.transition_LV > 1e-9
    assert not bool(found_LV[~possible_LV].any()), "drew what cannot come"
    assert p_value(found_LV, record.transition_LV) > LEAST_P


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("mdlm_nucleus", {"nucleus": "keep"}),
    ("mdlm_nucleus", {"temperature": 1.1}),
    ("mdlm_nucleus", {"schedule": "cosine"}),
    ("mdlm_nucleus", {"num_steps": 20}),
    ("remdm_cap", {"nucleus": "keep"}),
    ("remdm_cap", {"eta": 0.03}),
    ("remdm_cap", {"rate": "rescale"}),
    ("remdm_cap", {"switch": 0.1}),
    ("remdm_rescale", {"rate": "cap"}),
    ("remdm_conf", {"rate": "rescale"}),
    ("remdm_loop", {"alpha_on": 0.85}),
    ("remdm_loop", {"eta": 0.06}),
    ("dfm", {"beta": 8.0}),
]


def test_conf_remembers_the_filtered_probability_of_what_it_drew(golden_model: tabes.Denoiser) -> None:
    record = records(GOLDEN / "remdm_conf" / "T16_nucleus_0p9.json")[4]
    kernel, log_p_LV = kernel_of(record.case), log_p(golden_model, record.canvas)
    batch = torch.zeros(50, dtype=torch.int64)
    canvas, state = record.canvas.select(batch), at_step(kernel, record).select(batch)
    denoiser: Any = Same(log_p_LV)
    move, after = kernel.step(View(canvas, denoiser, 0, Randomness.create(1, 50, torch.device("cpu"))), state)
    weights_LV = kernel.weights(log_p_LV)
    p_LV = weights_LV / weights_LV.sum(-1, keepdim=True)
    p_BL = p_LV.expand(50, -1, -1).gather(2, move.tokens_BL[..., None]).squeeze(2)
    expected_BL = torch.where(move.write_BL, p_BL, state.memory.psi_BL)
    assert bool(move.write_BL.any())
    torch.testing.assert_close(after.memory.psi_BL, expected_BL)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_numbers_that_are_not_finite_are_refused(temperature: float) -> None:
    record = records(GOLDEN / "mdlm_ancestral" / "cached_T16.json")[0]
    kernel = kernel_of(record.case, temperature=temperature, num_steps=1)
    denoiser: Any = Same(torch.full((16, 67), torch.nan))
    view = View(record.canvas, denoiser, 0, Randomness.create(1, 1, torch.device("cpu")))
    with pytest.raises(NumericsError, match="top_logit is not finite"):
        kernel.step(view, kernel.init(record.canvas))


class Slower(ReMDM):
    """Masking probability (1 - eps) t in place of t, with a large eps."""

    def chances(self, now: Now, memory: Any) -> Chances:
        return super().chances(replace(now, time_B=0.7 * now.time_B, next_time_B=0.7 * now.next_time_B), memory)


class OneCoin(ReMDM):
    """Coin and token from the same uniform number."""

    def step(self, view: View, state: KernelState) -> tuple[Move, KernelState]:
        real = view.uniform
        view.uniform = lambda purpose: real("kernel.coin")  # type: ignore[method-assign]
        return super().step(view, state)


@pytest.mark.parametrize("wrong", [Slower, OneCoin])
def test_a_wrong_distribution_fails(wrong: type[ReMDM], golden_model: tabes.Denoiser) -> None:
    values = []
    for record in records(GOLDEN / "remdm_cap" / "T16_nucleus_0p9.json"):
        right = kernel_of(record.case)
        kernel = wrong(**{one.name: getattr(right, one.name) for one in fields(right)})
        found_LV = counts(kernel, record, log_p(golden_model, record.canvas))
        values.append(p_value(found_LV, record.transition_LV))
    assert min(values) < 1e-6


@pytest.mark.parametrize(("sampler", "wrong"), WRONG, ids=str)
def test_a_wrong_kernel_fails(sampler: str, wrong: dict[str, Any], golden_model: tabes.Denoiser) -> None:
    """The same test on the same records, with one thing wrong."""
    values = []
    for record in records(GOLDEN / sampler / "T16_nucleus_0p9.json"):
        found_LV = counts(kernel_of(record.case, **wrong), record, log_p(golden_model, record.canvas))
        values.append(p_value(found_LV, record.transition_LV))
    assert min(values) < 1e-6
