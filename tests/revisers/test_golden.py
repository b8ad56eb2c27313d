"""The recorded steps of the reference samplers that revise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tabes
from tabes.budgets import Draft, Quota, TokensPerStep
from tabes.rankings import Confidence
from tabes.revisers import Edit, Loop, Verify
from tabes.sampling import PartSampler
from tabes.writers import Argmax
from tests.conftest import GOLDEN, MASK


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def cases(sampler: str, pattern: str = "*.json") -> list[Path]:
    return sorted((GOLDEN / sampler).glob(pattern))


def looping(params: dict[str, Any]) -> PartSampler:
    k = params["unmask_k"]
    reviser = Loop(loop_share=params["init_unmask_ratio"], loops=params["loop_steps"], take_back=k)
    return PartSampler(Confidence(), TokensPerStep(k), Argmax(), reviser)


def verifying(params: dict[str, Any]) -> PartSampler:
    return PartSampler(Confidence(), Draft(params["threshold"]), Argmax(), Verify(params["threshold_back"]))


def editing(params: dict[str, Any]) -> PartSampler:
    steps = params["num_inference_steps"] * params["gen_length"] // params["block_length"]
    budget = Quota(num_steps=steps, threshold=params["threshold"])
    return PartSampler(Confidence(), budget, Argmax(), Edit(params["editing_threshold"], params["max_post_steps"]))


CASES = [
    *((path, looping) for path in cases("pcs_loop_remask")),
    *((path, verifying) for path in cases("wino")),
    *((path, editing) for path in cases("block_refinement", "*editing*.json")),
]


def happened(step: tabes.Step) -> tuple[Any, Any, Any]:
    written = [list(pair) for pair in zip(step.positions[0], step.tokens[0], strict=True)]
    before, after = step.before.tokens_BL[0].tolist(), step.canvas.tokens_BL[0].tolist()
    return written, list(step.remasked[0]), [[at, before[at], after[at]] for at in step.rewritten[0]]


@pytest.mark.parametrize(("path", "rule"), CASES, ids=lambda value: value.stem if isinstance(value, Path) else "")
def test_trace(path: Path, rule: Any, golden_model: tabes.Denoiser) -> None:
    case = read(path)
    output = tabes.generate(
        golden_model,
        input_ids=torch.tensor([case["prompt_ids"]]),
        max_new_tokens=case["gen_length"],
        sampler=rule(case["params"]),
        block_length=case["params"].get("block_length"),
    )
    expected = [(one["committed"], one.get("remasked", []), one.get("rewritten", [])) for one in case["steps"]]
    assert [happened(step) for step in output.steps] == expected
    assert output.sequences[0].tolist() == case["final_ids"]
    assert MASK not in case["final_ids"]


def test_verification_costs_a_row_for_every_row_of_the_block(golden_model: tabes.Denoiser) -> None:
    case = read(GOLDEN / "wino" / "block16.json")
    output = tabes.generate(
        golden_model,
        input_ids=torch.tensor([case["prompt_ids"]]),
        max_new_tokens=case["gen_length"],
        sampler=verifying(case["params"]),
        block_length=16,
    )
    # The reference pays for the shadows in every forward; ours asks them where something may be taken back.
    for index, step in enumerate(output.steps):
        asked = len(step.positions[0]) > 1 and index > 0 and len(output.steps[index - 1].positions[0]) > 1
        assert step.cost.forward_calls == 1 + asked
        assert step.cost.forward_tokens == case["canvas_length"] + 16 * asked
