"""P2: the recorded plans step by step, its limits, its planners and what they cost."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.cost import Ledger
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.errors import UsageError
from tabes.kernels.p2 import _KAPPA, P2, _below_cut
from tests.conftest import GOLDEN, MASK

PLANS = sorted((GOLDEN / "p2").glob("*.json"))
OPEN_DLLM = sorted((GOLDEN / "p2_open_dllm").glob("*.json"))


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def trace(steps: list[tabes.Step]) -> list[dict[str, list[Any]]]:
    return [
        {
            "committed": [list(pair) for pair in zip(step.positions[0], step.tokens[0], strict=True)],
            "remasked": list(step.remasked[0]),
            "rewritten": list(step.rewritten[0]),
        }
        for step in steps
    ]


def recorded(case: dict[str, Any]) -> list[dict[str, list[Any]]]:
    keys = ("committed", "remasked", "rewritten")
    return [{key: step.get(key, []) for key in keys} for step in case["steps"]]


def run(model: AnyDenoiser, canvas: Canvas, rule: Any, seed: int = 3, **arguments: Any) -> list[tabes.Step]:
    return list(tabes.decode(model, canvas, rule, seed=seed, **arguments))


def last(steps: list[tabes.Step]) -> Tensor:
    return steps[-1].canvas.tokens_BL


def ragged(block_length: int | None = None) -> Canvas:
    """Two rows, the shorter one padded on the left, the longer one with a hole in its prompt."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(
        prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, block_length=block_length
    )


def alone(canvas: Canvas, row: int) -> Canvas:
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


@pytest.fixture(scope="module")
def planner(words: Any) -> Denoiser:
    """Another model with the same ids, and a ledger of its own."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig.from_pretrained(GOLDEN / "denoiser")
    config.initializer_range = 0.4
    torch.manual_seed(5)
    return tabes.load(BertForMaskedLM(config).eval(), tokenizer=words)


@pytest.mark.parametrize("path", PLANS, ids=label)
def test_trace(path: Path, golden_model: Denoiser) -> None:
    case = json.loads(path.read_text())
    params = case["params"]
    canvas = Canvas.create(torch.tensor([case["prompt_ids"]]), mask_id=MASK, max_new_tokens=case["gen_length"])
    steps = run(golden_model, canvas, P2(num_steps=params["num_steps"], eta=params["eta"], kappa=params["kappa"]))
    assert trace(steps) == recorded(case)
    assert last(steps)[0].tolist() == case["final_ids"]
    assert sum(step.cost.forward_calls for step in steps) == case["counts"]["forward_calls"]
    if params["eta"] > 0:
        assert any(step.remasked[0] for step in steps)


@pytest.mark.parametrize("path", OPEN_DLLM, ids=label)
def test_open_dllms_p2_is_eta_1(path: Path, words: Any) -> None:
    case = json.loads(path.read_text())
    model = tabes.load(GOLDEN / "denoiser", tokenizer=words)
    model.network.shifted = case["logit_alignment"] == "shifted_by_one"
    canvas = Canvas.create(torch.tensor([case["prompt_ids"]]), mask_id=MASK, max_new_tokens=case["gen_length"])
    steps = run(model, canvas, P2(num_steps=case["params"]["steps"], eta=1.0))
    assert trace(steps) == recorded(case)
    assert last(steps)[0].tolist() == case["final_ids"]
    assert trace(run(model, canvas, P2(num_steps=case["params"]["steps"], eta=0.5))) != recorded(case)


def test_kept_masks_are_the_known_answer(golden_model: Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4]]), mask_id=MASK, max_new_tokens=32)
    steps = run(golden_model, canvas, P2(num_steps=16, eta=2.0))
    assert [int(step.canvas.masked_BL.sum()) for step in steps] == list(range(30, -1, -2))


@pytest.mark.parametrize(("free", "steps"), [(10, 10), (7, 49), (49, 7), (1, 3), (30, 30)])
def test_a_linear_plan_is_integer_arithmetic(free: int, steps: int) -> None:
    rule = P2(num_steps=steps)
    canvas = Canvas.create(torch.tensor([[3]]), mask_id=MASK, max_new_tokens=free)
    clock, kept, over = rule.init(canvas), [], []
    for _ in range(steps):
        kept_B, last_B = rule._kept(clock, clock.area(canvas).sum(1))
        kept.append(int(kept_B))
        over.append(bool(last_B))
        clock = clock.tick(last_B)
    assert kept == [free * (steps - i) // steps for i in range(1, steps + 1)]
    assert over == [False] * (steps - 1) + [True]


def test_every_kappa_rises_from_0_to_1() -> None:
    r = torch.linspace(0, 1, 101, dtype=torch.float64)
    for name, kappa in _KAPPA.items():
        share = kappa(r)
        assert float(share[0]) == pytest.approx(0, abs=1e-12), name
        assert float(share[-1]) == pytest.approx(1, abs=1e-12), name
        assert bool((share.diff() > 0).all()), name


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("block_length", [None, 8])
def test_eta_0_is_confidence(golden_model: Denoiser, temperature: float, block_length: int | None) -> None:
    prompts_BP = torch.tensor([[3, 4, 5], [6, 7, 8]])
    canvas = Canvas.create(prompts_BP, mask_id=MASK, max_new_tokens=24, block_length=block_length)
    plan = run(golden_model, canvas, P2(num_steps=12, eta=0.0, temperature=temperature))
    locked = run(golden_model, canvas, tabes.sampler("confidence", num_steps=12, temperature=temperature))
    assert [step.positions for step in plan] == [step.positions for step in locked]
    assert last(plan).equal(last(locked))
    assert not any(row for step in plan for row in step.remasked)


def test_eta_0_reads_no_written_rows(golden_model: Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=8)
    heads = [
        [step.cost.head_rows for step in run(golden_model, canvas, P2(num_steps=8, eta=eta))] for eta in (0.0, 1.0)
    ]
    assert heads == [[8, 7, 6, 5, 4, 3, 2, 1], [8] * 8]


def test_ties_at_the_cut_are_not_masked() -> None:
    scores_BL = torch.tensor([[0.0, -1.0, 0.0, 0.0, -9.0], [-1.0, -1.0, -2.0, 0.0, 0.0]])
    area_BL = torch.tensor([[True, True, True, True, False]] * 2)
    low_BL = _below_cut(scores_BL, area_BL, torch.tensor([3, 1]))
    assert low_BL.tolist() == [[False, True, False, False, False], [False, False, True, False, False]]


def test_a_random_plan_is_ancestral_at_eta_0(golden_model: Denoiser) -> None:
    """Every row is as likely as any other to be among the first; with eta 1 written rows come and go."""
    canvas = Canvas.create(torch.tensor([[3, 4, 5]] * 400), mask_id=MASK, max_new_tokens=4)
    first = run(golden_model, canvas, P2(num_steps=4, eta=0.0, planner="random"))
    counts_L = first[0].canvas.writable_BL.sum(0)[3:] - first[0].canvas.masked_BL.sum(0)[3:]
    assert int(counts_L.sum()) == 400
    assert float(((counts_L - 100) ** 2 / 100).sum()) < 16.3, "chi-square with 3 degrees of freedom, p < 1e-3"
    assert not any(row for step in first for row in step.remasked)
    again = run(golden_model, canvas, P2(num_steps=4, eta=1.0, planner="random"))
    assert any(row for step in again for row in step.remasked)
    assert not bool((last(again) == MASK).any())


def test_another_denoiser_judges_the_completed_sequence(golden_model: Denoiser, planner: Denoiser) -> None:
    """One step by hand: masked rows by the model's own proposal, written ones by the planner, who sees no mask."""
    tokens = [3, 4, 11, MASK, 28, MASK, 46, MASK, MASK, 55]
    canvas = Canvas.create(torch.tensor([tokens]), mask_id=MASK)
    canvas = replace(canvas, writable_BL=torch.arange(10)[None] >= 2, block_BL=torch.zeros_like(canvas.block_BL))
    step = run(golden_model, canvas, P2(num_steps=2, eta=0.7, planner=planner))[0]

    masked_L = canvas.masked_BL[0]
    own_LV = torch.full((10, 67), 0.0)
    own_LV[masked_L] = golden_model.predict(canvas, canvas.masked_BL).logits_NV().log_softmax(-1)
    completed_L = torch.where(masked_L, own_LV.argmax(-1), canvas.tokens_BL[0])
    full = canvas.with_tokens(completed_L[None])
    theirs_LV = planner.predict(full, torch.ones_like(full.writable_BL)).logits_NV().log_softmax(-1)
    mine_L = own_LV.gather(1, completed_L[:, None]).squeeze(1)
    written_L = canvas.writable_BL[0] & ~masked_L
    expected_L = torch.where(written_L, 0.7 * theirs_LV.gather(1, completed_L[:, None]).squeeze(1), mine_L)
    assert step.scores_BL is not None
    torch.testing.assert_close(step.scores_BL[0][2:], expected_L[2:], rtol=1e-5, atol=1e-5)
    low = set((expected_L[2:].argsort()[:4] + 2).tolist())
    assert set(step.canvas.masked_BL[0].nonzero().squeeze(1).tolist()) == low
    assert set(step.remasked[0]) == low & set(written_L.nonzero().squeeze(1).tolist())


def test_what_the_planner_costs_is_in_the_steps(golden_model: Denoiser, planner: Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=8)
    before = planner.ledger.forward_calls
    steps = run(golden_model, canvas, P2(num_steps=4, eta=1.0, planner=planner))
    # Nothing is written before the first step, so nothing is judged.
    assert [step.cost.forward_calls for step in steps] == [1, 2, 2, 2]
    assert [step.cost.forward_tokens for step in steps] == [11, 22, 22, 22]
    assert [step.cost.head_rows for step in steps] == [8] * 4
    assert steps[1].cost.flops > 1.9 * (steps[0].cost.flops - 8 * golden_model.network.work.head)
    assert planner.ledger.forward_calls == before, "the planner was counted where nobody looks"
    assert trace(steps) != trace(run(golden_model, canvas, P2(num_steps=4, eta=1.0)))
    locked = run(golden_model, canvas, P2(num_steps=4, eta=0.0, planner=planner))
    assert [step.cost.forward_calls for step in locked] == [1] * 4


@pytest.mark.parametrize("wrapper", ["plain", "cache", "block", "guidance"])
@pytest.mark.parametrize("block_length", [None, 4])
@pytest.mark.parametrize("kind", ["self", "drawn", "random", "planned", "one per token"])
def test_a_batch_row_is_the_row_alone(
    golden_model: Denoiser, planner: Denoiser, wrapper: str, block_length: int | None, kind: str
) -> None:
    rule = {
        "self": P2(num_steps=8, eta=1.5),
        "drawn": P2(num_steps=8, temperature=0.8, top_p=0.95, top_k=30),
        "random": P2(num_steps=8, planner="random", kappa="cosine"),
        "planned": P2(num_steps=8, planner=planner),
        "one per token": P2(kappa="root"),
    }[kind]
    model: AnyDenoiser = {
        "plain": golden_model,
        "cache": RowCache(golden_model, 3),
        "block": RowCache(golden_model, "block"),
        "guidance": Guidance(golden_model, 0.7),
    }[wrapper]
    canvas = ragged(block_length)
    steps = run(model, canvas, rule)
    assert not bool(steps[-1].canvas.masked_BL.any())
    assert last(steps)[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL])
    assert block_length or any(row for step in steps for row in step.remasked)
    for row in range(2):
        single = run(model, alone(canvas, row), rule, seed=3 + row)
        assert last(single)[0].equal(last(steps)[row][~canvas.padding_BL[row]])
        assert [step.remasked[0] for step in single] == [
            tuple(at - int(canvas.padding_BL[row].sum()) for at in step.remasked[row]) for step in steps[: len(single)]
        ]


def test_one_step_for_every_token_of_every_block(golden_model: Denoiser) -> None:
    steps = run(golden_model, ragged(4), P2())
    taken_B = 1 + torch.stack([~step.done_B for step in steps]).sum(0)
    assert taken_B.tolist() == ragged().masked_BL.sum(1).tolist() == [9, 10]


def test_more_steps_than_rows_go_on_planning(golden_model: Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=4)
    steps = run(golden_model, canvas, P2(num_steps=12))
    assert len(steps) == 12
    assert [int(step.canvas.masked_BL.sum()) for step in steps] == [4 * (12 - i) // 12 for i in range(1, 13)]


def test_stop_and_names(golden_model: Denoiser) -> None:
    assert "p2" in tabes.samplers()
    output = tabes.generate(golden_model, input_ids=[[3, 4, 5]], max_new_tokens=12, sampler="p2", num_steps=6)
    assert len(output.steps) == 6
    arguments: dict[str, Any] = {
        "input_ids": [[3, 4, 5]],
        "max_new_tokens": 12,
        "sampler": "p2",
        "num_steps": 6,
        "block_length": 4,
    }
    word = int(tabes.generate(golden_model, **arguments).sequences[0, 6])
    stopped = tabes.generate(golden_model, stop=word, **arguments)
    assert len(stopped.steps) == 2, "the first block holds the word and takes two of the six steps"
    assert tabes.sampler("p2", eta=0.5).revises


def test_bad_parameters(golden_model: Denoiser, planner: Denoiser) -> None:
    for wrong, words in (
        ({"eta": -0.1}, "eta is -0.1"),
        ({"kappa": "late"}, "kappa is 'late'"),
        ({"planner": "bert"}, "planner is 'bert'"),
        ({"planner": RowCache(golden_model, 2)}, "without wrappers"),
        ({"top_p": 0.9}, "no effect at temperature 0"),
        ({"num_steps": 0}, "num_steps is 0"),
    ):
        with pytest.raises(UsageError, match=words):
            tabes.sampler("p2", **wrong)
    other = replace(planner, mask_id=65, ledger=Ledger())
    canvas = Canvas.create(torch.tensor([[3, 4]]), mask_id=MASK, max_new_tokens=4)
    with pytest.raises(UsageError, match="mask id 66"):
        run(golden_model, canvas, P2(planner=other))
