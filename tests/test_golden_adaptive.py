"""The recorded steps of the reference samplers that write as many rows as they dare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas
from tabes.sampling import Sampler
from tests.conftest import GOLDEN, MASK

READY = {"all": "all", "max_conf": "confidence", "min_kl": "divergence"}


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def rule(case: dict[str, Any]) -> Sampler:
    """Our preset with the parameters of the reference."""
    params, sampler = case["params"], case["sampler"]
    if sampler == "eb_sampler":
        return tabes.sampler("entropy-bound", bound=params["gamma"])
    if sampler == "fast_dllm_factor":
        return tabes.sampler("factor", factor=params["factor"])
    if sampler == "fast_dllm_threshold":
        if params["threshold"] is None:
            return tabes.sampler("confidence", num_steps=params["steps"])
        return tabes.sampler("threshold", threshold=params["threshold"])
    if sampler == "block_refinement":
        steps = params["num_inference_steps"] * params["gen_length"] // params["block_length"]
        return tabes.sampler("quota", threshold=params["threshold"], num_steps=steps)
    if sampler == "klass":
        return tabes.sampler(
            "klass",
            num_steps=params["steps"],
            threshold=params["conf_threshold"],
            divergence=params["kl_threshold"],
            history=params["kl_history_length"],
            ready=READY[params["unmask_strategy"]],
        )
    return tabes.sampler({"topk_margin": "margin", "entropy": "entropy"}[params["alg"]], num_steps=params["steps"])


def run(model: tabes.Denoiser, case: dict[str, Any]) -> tabes.Output:
    return tabes.generate(
        model,
        input_ids=torch.tensor([case["prompt_ids"]]),
        max_new_tokens=case["gen_length"],
        sampler=rule(case),
        block_length=case["params"].get("block_length"),
        cfg_scale=case["params"].get("cfg_scale", 0.0),
    )


def committed(step: tabes.Step) -> list[list[int]]:
    return [list(pair) for pair in zip(step.positions[0], step.tokens[0], strict=True)]


def canvases(case: dict[str, Any]) -> Iterator[tuple[Canvas, dict[str, Any]]]:
    """What the reference had before it at every step, and what it did."""
    canvas = Canvas.create(
        torch.tensor([case["prompt_ids"]]),
        mask_id=MASK,
        max_new_tokens=case["gen_length"],
        block_length=case["params"].get("block_length"),
    )
    for step in case["steps"]:
        yield canvas, step
        tokens_BL = canvas.tokens_BL.clone()
        for position, token in step["committed"]:
            tokens_BL[0, position] = token
        canvas = canvas.with_tokens(tokens_BL)


ADAPTIVE = ("eb_sampler", "fast_dllm_factor", "fast_dllm_threshold", "block_refinement", "klass")
CASES = [
    path
    for name in (*ADAPTIVE, "klass_baseline_topk_margin")
    for path in sorted((GOLDEN / name).glob("*.json"))
    if "records_reference_bug" not in read(path) and "editing" not in path.stem
]
QUIRKS = sorted((GOLDEN / "fast_dllm_factor").glob("*quirk.json"))


def test_all_cases_are_here() -> None:
    assert len(CASES) == 4 + 2 + 5 + 2 + 4 + 2
    assert len(QUIRKS) == 2


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_trace(path: Path, golden_model: tabes.Denoiser) -> None:
    case = read(path)
    output = run(golden_model, case)
    assert [committed(step) for step in output.steps] == [step["committed"] for step in case["steps"]]
    assert output.sequences[0].tolist() == case["final_ids"]
    assert output.cost.forward_calls == case["counts"]["forward_calls"]
    assert output.cost.forward_tokens == case["counts"]["forward_rows"] * case["canvas_length"]


@pytest.mark.parametrize("path", QUIRKS, ids=lambda path: path.stem)
def test_the_factor_rule_differs_where_the_reference_accepts_a_last_row_that_fails(
    path: Path, golden_model: tabes.Denoiser
) -> None:
    case = read(path)
    departs = []
    for canvas, theirs in canvases(case):
        mine = committed(next(tabes.decode(golden_model, canvas, rule(case))))
        if mine != theirs["committed"]:
            departs.append(theirs["step"])
            assert all(pair in theirs["committed"] for pair in mine)
            assert len(mine) + 1 == len(theirs["committed"]) == int(canvas.open_BL.sum()), "it was the last one open"
    assert departs == case["steps_where_reference_departs_from_stated_rule"]
    assert MASK not in run(golden_model, case).sequences[0].tolist()


def test_klass_ends_a_block_when_it_is_full(golden_model: tabes.Denoiser) -> None:
    """The reference goes on when the steps of a block are over, with masks left; until then both do the same."""
    case = read(GOLDEN / "klass" / "klass_2tok_masks_left.json")
    output = run(golden_model, case)
    assert case["masks_left"] > 0
    assert MASK not in output.sequences[0].tolist()
    block, prompt = case["params"]["block_length"], case["prompt_length"]
    leaves = next(
        theirs["step"]
        for canvas, theirs in canvases(case)
        if bool(canvas.open_BL.any()) and min(at for at, _ in theirs["committed"]) >= prompt + block
    )
    assert leaves == case["params"]["steps"] // 2
    for mine, theirs in zip(output.steps[:leaves], case["steps"][:leaves], strict=True):
        assert committed(mine) == theirs["committed"]
    assert all(position < prompt + block for position, _ in committed(output.steps[leaves]))


def test_the_entropy_baseline_of_klass_is_ours_reversed(golden_model: tabes.Denoiser) -> None:
    """Its sign is wrong: at every step it writes what our ranking puts last."""
    case = read(GOLDEN / "klass_baseline_entropy" / "entropy_sign_bug.json")
    assert "records_reference_bug" in case
    same = 0
    for canvas, theirs in canvases(case):
        step = next(tabes.decode(golden_model, canvas, tabes.sampler("entropy")))
        assert step.scores_BL is not None
        worst = torch.where(canvas.open_BL, step.scores_BL, torch.inf)[0].argmin()
        assert [int(worst)] == [position for position, _ in theirs["committed"]]
        same += committed(step) == theirs["committed"]
    assert same == 1, "only where one row is left"
