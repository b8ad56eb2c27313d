"""The scheduler: against the recorded traces by a driver like the one they were made with, and in the real pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes.errors import CombinationError, UnknownNameError, UsageError
from tabes.interop.diffusers import BlockScheduler, BlockStep
from tests.conftest import GOLDEN, MASK

CASES = sorted((GOLDEN / "block_refinement").glob("*.json"))
LOCAL = ("confidence", "margin", "entropy", "random", "left_to_right", "pc", "maskgit")
BUDGETS = ("even", "curve", "threshold", "factor", "entropy_bound", "quota", "dream", "coins", "all_sure", "stability")


def logits_of(model: tabes.Denoiser, ids_BL: Tensor) -> Tensor:
    """Of the whole canvas, without our reading of it."""
    inside: Any = model.network
    with torch.no_grad():
        found: Tensor = inside.backbone.model(input_ids=ids_BL).logits
    return found


def driven(
    model: tabes.Denoiser, scheduler: BlockScheduler, ids_BL: Tensor, blocks: list[slice], **asked: Any
) -> tuple[Tensor, list[tuple[Tensor, BlockStep]]]:
    """Block by block as the pipeline does it, with all masks in sight."""
    editing = asked.get("editing_threshold") is not None
    most, done = asked.pop("max_post_steps", 0), []
    finished = torch.zeros(len(ids_BL), dtype=torch.bool)
    for block in blocks:
        index = post = 0
        going = True
        while going:
            masked = bool((ids_BL[:, block] == MASK).any())
            post += not masked
            step = scheduler.step(
                logits_of(model, ids_BL)[:, block], index, ids_BL[:, block], mask_token_id=MASK, **asked
            )
            assert isinstance(step, BlockStep)
            done.append((ids_BL, step))
            ids_BL = torch.cat([ids_BL[:, : block.start], step.prev_sample, ids_BL[:, block.stop :]], 1)
            index += masked
            edited = step.editing_transfer_index
            going = scheduler.check_block_should_continue(index, masked, editing, edited, post, most, finished)
    return ids_BL, done


def happened(before_BL: Tensor, step: BlockStep, start: int) -> tuple[Any, Any]:
    """What row 0 of a block wrote and rewrote, by places of the canvas."""
    written, edited = (
        [int(at) for at in row[0].nonzero()] for row in (step.transfer_index, step.editing_transfer_index)
    )
    new = step.prev_sample[0].tolist()
    before = before_BL[0].tolist()
    return (
        [[start + at, new[at]] for at in written],
        [[start + at, before[start + at], new[at]] for at in edited],
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_recorded_traces(path: Path, golden_model: tabes.Denoiser) -> None:
    case = json.loads(path.read_text())
    params, first = case["params"], case["prompt_length"]
    length = params["block_length"]
    ids_BL = torch.tensor([case["prompt_ids"] + [MASK] * case["gen_length"]])
    scheduler = BlockScheduler("quota")
    scheduler.set_timesteps(params["num_inference_steps"], block_length=length)
    blocks = [slice(at, at + length) for at in range(first, ids_BL.shape[1], length)]
    asked = {name: params[name] for name in ("threshold", "editing_threshold", "max_post_steps", "temperature")}
    final_BL, steps = driven(golden_model, scheduler, ids_BL, blocks, **asked)
    assert final_BL[0].tolist() == case["final_ids"]
    expected = [(one["committed"], one.get("rewritten", []), first + length * one["block"]) for one in case["steps"]]
    assert len(steps) == case["counts"]["forward_calls"] == len(expected)
    for (before_BL, step), (written, rewritten, start) in zip(steps, expected, strict=True):
        assert happened(before_BL, step, start) == (written, rewritten)


@pytest.mark.parametrize("name", LOCAL)
def test_rankings_as_in_generate(name: str, golden_model: tabes.Denoiser) -> None:
    """Rules that draw nothing write the same as in our own loop."""
    ids_BL = torch.randint(1, 60, (2, 5), generator=torch.Generator().manual_seed(3))
    holes_BL = torch.full((2, 16), MASK)
    scheduler = BlockScheduler(name, block_length=8, num_inference_steps=3)
    final_BL, _ = driven(golden_model, scheduler, torch.cat([ids_BL, holes_BL], 1), [slice(5, 13), slice(13, 21)])
    assert not bool((final_BL == MASK).any()) and torch.equal(final_BL[:, :5], ids_BL)
    if name not in ("random", "maskgit"):
        output = tabes.generate(
            golden_model, input_ids=ids_BL, max_new_tokens=16, sampler=name, num_steps=6, block_length=8
        )
        assert torch.equal(output.sequences, final_BL)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_budgets_fill_every_mask(budget: str, temperature: float, golden_model: tabes.Denoiser) -> None:
    ids_BL = torch.cat([torch.tensor([[4, 9, 7], [3, 8, 5]]), torch.full((2, 13), MASK)], 1)
    given = torch.arange(16) < 3
    scheduler = BlockScheduler("margin", budget=budget, block_length=16, num_inference_steps=4)
    drawn = []
    for seed in (5, 5, 6):
        generator = torch.Generator().manual_seed(seed)
        asked: dict[str, Any] = {"temperature": temperature, "prompt_mask": given, "generator": generator}
        final_BL, _ = driven(golden_model, scheduler, ids_BL, [slice(0, 16)], **asked)
        assert not bool((final_BL == MASK).any()) and torch.equal(final_BL[:, :3], ids_BL[:, :3])
        drawn.append(final_BL)
    assert torch.equal(drawn[0], drawn[1])
    if budget != "coins":
        assert torch.equal(drawn[0], drawn[2]) == (temperature == 0.0)


def test_what_the_scheduler_was_made_with_wins(golden_model: tabes.Denoiser) -> None:
    ids_BL = torch.full((1, 8), MASK)
    counts = []
    for scheduler in (BlockScheduler("threshold"), BlockScheduler("threshold", threshold=0.0)):
        _, steps = driven(golden_model, scheduler, ids_BL, [slice(0, 8)], threshold=1.5)
        counts.append(len(steps))
    assert counts == [8, 1]


def test_a_row_of_a_batch_is_written_as_alone(golden_model: tabes.Denoiser) -> None:
    ids_BL = torch.cat([torch.tensor([[4, 9], [3, 8]]), torch.full((2, 14), MASK)], 1)
    asked: dict[str, Any] = {"threshold": 0.5, "editing_threshold": 0.6, "max_post_steps": 3}
    scheduler = BlockScheduler("quota", num_inference_steps=4)
    together, _ = driven(golden_model, scheduler, ids_BL, [slice(2, 16)], **asked)
    for row in range(2):
        alone, _ = driven(golden_model, scheduler, ids_BL[row : row + 1], [slice(2, 16)], **asked)
        assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("name", ["boe", "boe-verify", "lookahead", "lookum", "info-gain", "mdlm", "p2", "beam"])
def test_rules_that_need_the_network_are_refused(name: str) -> None:
    with pytest.raises(CombinationError, match=f"'{name}' does not work as a pipeline's scheduler"):
        BlockScheduler(name)


def test_bad_input() -> None:
    with pytest.raises(UnknownNameError, match="unknown sampler 'margins'; did you mean margin"):
        BlockScheduler("margins")
    with pytest.raises(CombinationError, match="asks the network more than once a step"):
        BlockScheduler("confidence", budget="compatible")
    with pytest.raises(CombinationError, match="the reviser Loop, which masks again"):
        BlockScheduler("confidence", reviser="loop")
    with pytest.raises(UsageError, match="num_inference_steps is 0; it must be 1 or more"):
        BlockScheduler().set_timesteps(0)
    with pytest.raises(UsageError, match="mask_token_id is None"):
        BlockScheduler().step(torch.zeros(1, 4, 9), 0, torch.zeros(1, 4, dtype=torch.int64))


def test_from_another_config_and_tuples() -> None:
    scheduler = BlockScheduler.from_config({"block_length": 4, "threshold": 0.9}, "margin")
    assert scheduler.config.block_length == 4 and scheduler.config.sampler == "margin"
    sample = torch.full((1, 4), 8)
    found = scheduler.step(torch.rand(1, 4, 9), torch.tensor(0), sample, mask_token_id=8, return_dict=False)
    assert isinstance(found, tuple) and len(found) == 6 and found[0].shape == (1, 4)


def test_an_end_token_ends_a_row() -> None:
    told = {"eos_token_id": 7, "mask_token_id": 8, "prompt_length": 2}
    cur = torch.tensor([[7, 1, 3, 7], [7, 1, 8, 7], [7, 1, 3, 3], [1, 1, 7, 8]])
    sampled, wrote = cur[:, 2:], torch.ones(4, 2, dtype=torch.bool)
    wrote[3, 0] = False  # stood there before
    finished = BlockScheduler.check_eos_finished(cur, sampled, wrote, torch.zeros(4, dtype=torch.bool), **told)
    assert finished.tolist() == [True, False, False, False]


class Windowed(torch.nn.Module):
    """The golden network as LLaDA2Pipeline calls its model; its own blocks see nothing of later ones either."""

    dtype, device = torch.float32, torch.device("cpu")

    def __init__(self, model: tabes.Denoiser) -> None:
        super().__init__()
        self.inside = [model]
        self.calls = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor) -> Any:
        self.calls += 1
        return SimpleNamespace(logits=logits_of(self.inside[0], input_ids))


@pytest.mark.large
@pytest.mark.parametrize(("threshold", "editing"), [(0.5, None), (1.1, None), (0.5, 0.6)])
@pytest.mark.filterwarnings("ignore")
def test_the_real_pipeline_cannot_tell_quota_from_its_own(
    threshold: float, editing: float | None, golden_model: tabes.Denoiser
) -> None:
    diffusers = pytest.importorskip("diffusers", minversion="0.42")
    ids_BL = torch.randint(1, 60, (1, 16), generator=torch.Generator().manual_seed(1))
    options = {"gen_length": 24, "block_length": 8, "num_inference_steps": 4, "threshold": threshold}
    options |= {"editing_threshold": editing, "max_post_steps": 2, "mask_token_id": MASK, "output_type": "seq"}
    found, calls = [], []
    for scheduler in (diffusers.BlockRefinementScheduler(), BlockScheduler("quota")):
        model = Windowed(golden_model)
        pipe = diffusers.LLaDA2Pipeline(model=model, scheduler=scheduler)
        pipe.set_progress_bar_config(disable=True)
        # Theirs makes one forward more than `max_post_steps` says, and none in a block that took all its steps.
        mine = options | ({"max_post_steps": 3} if isinstance(scheduler, BlockScheduler) else {})
        found.append(pipe(input_ids=ids_BL, **mine).sequences)
        calls.append(model.calls)
    assert torch.equal(*found)
    assert calls[1] <= calls[0]


@pytest.mark.large
@pytest.mark.parametrize("name", [*LOCAL, "klass", "entropy-bound", "dream-entropy"])
@pytest.mark.filterwarnings("ignore")
def test_rules_in_the_real_pipeline(name: str, golden_model: tabes.Denoiser) -> None:
    diffusers = pytest.importorskip("diffusers", minversion="0.42")
    ids_BL = torch.randint(1, 60, (2, 11), generator=torch.Generator().manual_seed(1))
    pipe = diffusers.LLaDA2Pipeline(model=Windowed(golden_model), scheduler=BlockScheduler(name, block_length=8))
    pipe.set_progress_bar_config(disable=True)
    for end in (None, 40):  # with an end token some rows stop early
        found = pipe(input_ids=ids_BL, gen_length=20, num_inference_steps=4, mask_token_id=MASK, eos_token_id=end)
        if end is None:
            assert found.sequences.shape == (2, 20) and not bool((found.sequences == MASK).any())
