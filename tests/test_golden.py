"""The recorded behaviour of the reference samplers, step by step."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tabes
from tabes.models.network import Network
from tests.conftest import GOLDEN, MASK

SAMPLERS = {
    "llada_low_confidence": "confidence",
    "margin": "margin",
    "entropy": "entropy",
    "klass_baseline_topk_margin": "margin",
    # At temperature 0 without filters, as they were recorded.
    "dream_entropy": "dream-entropy",
    "dream_maskgit_plus": "dream-confidence",
    "dream_topk_margin": "dream-margin",
}
UNFILTERED = {"temperature": 0.0, "top_p": 1.0}
CASES = [path for name in SAMPLERS for path in sorted((GOLDEN / name).glob("*.json"))]
FAITHFUL = [path for path in CASES if "reference_ignores_blocks" not in path.stem]
BUGS = [path for path in CASES if "reference_ignores_blocks" in path.stem]
REVERSED = GOLDEN / "klass_baseline_entropy" / "entropy_sign_bug.json"
BATCHES = sorted((GOLDEN / "llada_low_confidence_batch").glob("*.json"))


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def run(model: tabes.Denoiser, case: dict[str, Any], sampler: str) -> tabes.Output:
    params = case["params"]
    more: dict[str, Any] = UNFILTERED if sampler.startswith("dream-") else {}
    if params.get("confidence_eos_eot_inf"):
        model, more = replace(model, eos_ids=(params["eos_id"], params["eot_id"])), {"ends_last": True}
    if case["logit_alignment"] == "shifted_by_one":
        model = shifted(model)
    return tabes.generate(
        model,
        input_ids=torch.tensor([case["prompt_ids"]]),
        max_new_tokens=case["gen_length"],
        sampler=tabes.sampler(sampler, num_steps=params["steps"], **more),
        block_length=params.get("block_length"),
        cfg_scale=params.get("cfg_scale", 0.0),
        suppress=params["eos_id"] if params.get("logits_eos_inf") else None,
    )


def shifted(model: tabes.Denoiser) -> tabes.Denoiser:
    """The same network, its row j read as the prediction of row j + 1."""
    network: Network = copy(model.network)
    network.shifted = True
    return replace(model, network=network)


def committed(step: tabes.Step, row: int = 0) -> list[list[int]]:
    return [list(pair) for pair in zip(step.positions[row], step.tokens[row], strict=True)]


@pytest.mark.parametrize("path", FAITHFUL, ids=label)
def test_trace(path: Path, golden_model: tabes.Denoiser) -> None:
    case = read(path)
    output = run(golden_model, case, SAMPLERS[case["sampler"]])
    # A Dream step may write nothing; the reference's first does where there are as many steps as masks.
    assert [committed(step) for step in output.steps] == [step["committed"] for step in case["steps"]]
    assert output.sequences[0].tolist() == case["final_ids"]
    assert output.cost.forward_calls == case["counts"]["forward_calls"]
    assert output.cost.forward_tokens == case["counts"]["forward_rows"] * case["canvas_length"]


@pytest.mark.parametrize("path", BUGS, ids=label)
def test_reference_that_ignores_blocks_differs_from_the_definition(path: Path, golden_model: tabes.Denoiser) -> None:
    """The reference writes into later blocks and leaves masks over; ours keeps to the block and fills everything."""
    case = read(path)
    output = run(golden_model, case, SAMPLERS[case["sampler"]])
    assert case["masks_left"] > 0
    assert MASK not in output.sequences[0].tolist()
    prompt, block = case["prompt_length"], case["params"]["block_length"]
    for mine, theirs in zip(output.steps, case["steps"], strict=False):
        first_mask = int(mine.before.masked_BL[0].long().argmax())
        end = prompt + ((first_mask - prompt) // block + 1) * block
        if any(position >= end for position, _ in theirs["committed"]):
            assert committed(mine) != theirs["committed"]
            return
        assert committed(mine) == theirs["committed"]
    raise AssertionError("the trace never left its block")


def test_the_reference_with_the_sign_reversed_writes_the_most_uncertain_row_first(golden_model: tabes.Denoiser) -> None:
    """Ours, asked at every state of theirs, puts the row they wrote last; so the traces part at the first step."""
    case = read(REVERSED)
    ours = run(golden_model, case, "entropy")
    assert committed(ours.steps[0]) != case["steps"][0]["committed"]
    assert MASK not in ours.sequences[0].tolist()
    tokens_1L = torch.tensor([case["prompt_ids"] + [MASK] * case["gen_length"]])
    for step in case["steps"]:
        canvas = tabes.Canvas.create(tokens_1L, mask_id=MASK)
        entropy_L = golden_model.predict(canvas, canvas.masked_BL, statistics={"entropy"}).entropy_BL[0]
        ((position, token),) = step["committed"]
        assert int(entropy_L.where(canvas.masked_BL[0], torch.tensor(-1.0)).argmax()) == position
        tokens_1L[0, position] = token


@pytest.mark.parametrize("path", BATCHES, ids=label)
def test_batch_trace_with_positions_counted_from_the_left_edge(path: Path, golden_model: tabes.Denoiser) -> None:
    case = read(path)
    params = case["params"]
    prompt_BP = torch.tensor([row["prompt_ids"] for row in case["rows"]])
    attention = torch.tensor(case["attention_mask_prompt"]) if "attention_mask_prompt" in case else None
    canvas = tabes.Canvas.create(
        prompt_BP,
        mask_id=MASK,
        attention_mask=attention,
        position_ids=torch.arange(case["canvas_length"]).expand(len(prompt_BP), -1),
        max_new_tokens=case["gen_length"],
        block_length=params["block_length"],
    )
    rule = tabes.sampler("confidence", num_steps=params["steps"])
    steps = list(tabes.decode(golden_model, canvas, rule))
    for index, row in enumerate(case["rows"]):
        assert [committed(step, index) for step in steps] == [step["committed"] for step in row["steps"]]
        assert steps[-1].canvas.tokens_BL[index].tolist() == row["final_ids"]
