"""The matrix: every pair of {ranking or kernel, budget, writer, reviser, blocks, guidance, batch, infilling, stop, row
cache, suppression} works, or is refused with one clear sentence; nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache, Suppress
from tabes.budgets import Even, TokensPerStep
from tabes.denoiser import AnyDenoiser
from tabes.errors import UsageError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, Reviser
from tabes.presets import preset_of, sampler
from tabes.sampling import KERNELS, PartSampler, Sampler
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK
from tests.pairwise import pairwise
from tests.toys import Coins, Rising, TakeBackLeastCertain

SEED = 11
STEPS = 5
TOYS = {"a ranking with a state": Rising(), "a kernel of coins": Coins()}
WRITERS = {
    "argmax": Argmax(),
    "drawn": Categorical(0.8),
    "filtered": Categorical(0.9, top_p=0.9, top_k=20),
}
CACHES: dict[str, Callable[[AnyDenoiser, float], AnyDenoiser]] = {
    "none": Guidance,
    "outside": lambda model, scale: RowCache(Guidance(model, scale), 2),
    "inside": lambda model, scale: Guidance(RowCache(model, 3), scale),
    "block": lambda model, scale: RowCache(Guidance(model, scale), "block"),
}
AXES: dict[str, list[Hashable]] = {
    "rule": [*RANKINGS.names(), *KERNELS.names(), *TOYS],
    "budget": ["its own", *BUDGETS.names()],
    "reviser": ["none", "the least certain", *REVISERS.names()],
    "writer": list(WRITERS),
    "cache": list(CACHES),
    "guidance": [0.0, 0.7],
    "blocks": [None, 4],
    "batch": ["ragged", "equal", "one"],
    "hole": [False, True],
    "stop": [None, 46],
    "suppress": [None, 55],
}
CASES = pairwise(AXES)
# A kernel is a whole transition: what a budget, a writer or a reviser would say it says itself.
KERNEL_ONLY = {"budget": "its own", "reviser": "none"}


@dataclass
class Case:
    """One combination, made."""

    model: AnyDenoiser
    rule: Sampler
    canvas: Canvas
    stop: int | None

    def run(self, canvas: Canvas | None = None, seed: int = SEED) -> list[tabes.Step]:
        canvas = self.canvas if canvas is None else canvas
        return list(tabes.decode(self.model, canvas, self.rule, stop=self.stop, seed=seed))


def build(registry: Any, name: str) -> Any:
    """The part called `name` with few steps where it counts them."""
    known = registry.parameters(name)
    return registry.build(name, **({"num_steps": STEPS} if "num_steps" in known else {}))


def preset_of_kernel(kernel: str) -> str:
    """Some kernels have several presets and none of their own name."""
    return next(name for name in tabes.samplers() if name == kernel or preset_of(name).kernel == kernel)


def rule(case: dict[str, Any]) -> Sampler:
    name = case["rule"]
    if name in KERNELS:
        return build(KERNELS, name)
    chosen = TOYS[name] if name in TOYS else build(RANKINGS, name)
    if isinstance(chosen, Coins):
        return chosen
    budget = Even(STEPS) if case["budget"] == "its own" else build(BUDGETS, case["budget"])
    reviser: Reviser | None = None
    if case["reviser"] != "none":
        ours = case["reviser"] in REVISERS
        reviser = build(REVISERS, case["reviser"]) if ours else TakeBackLeastCertain()
    return PartSampler(chosen, budget, WRITERS[case["writer"]], reviser)


def canvas_of(batch: str, hole: bool, block_length: int | None) -> Canvas:
    """Two prompts (of different length: the shorter one is padded on the left) or one, and nine masks."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK if hole else 9, 14, 15, 30]])
    padding = 3 if batch == "ragged" else 0
    attention_BP = torch.ones_like(prompt_BP)
    attention_BP[0, :padding] = 0
    if batch == "one":
        prompt_BP, attention_BP = prompt_BP[1:], attention_BP[1:]
    arguments: dict[str, Any] = {"attention_mask": attention_BP, "max_new_tokens": 9, "block_length": block_length}
    return Canvas.create(prompt_BP, mask_id=MASK, **arguments)


def made(model: tabes.Denoiser, case: dict[str, Any]) -> Case:
    wrapped = CACHES[case["cache"]](model, case["guidance"])
    if case["suppress"] is not None:
        wrapped = Suppress(wrapped, case["suppress"])
    canvas = canvas_of(case["batch"], case["hole"], case["blocks"])
    return Case(wrapped, rule(case), canvas, case["stop"])


def alone(canvas: Canvas, row: int) -> Canvas:
    """One row of a batch without its padding."""
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


@dataclass
class Calls:
    """What the network was really asked, whoever asked."""

    calls: int = 0
    tokens: int = 0
    head: int = 0
    names: tuple[str, ...] = field(default=("forward", "replay"))


@contextmanager
def watched(model: tabes.Denoiser) -> Iterator[Calls]:
    """Counts every call of the network in here, behind the ledger's back."""
    network, seen = model.network, Calls()

    def counted(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            answer = call(*args, **kwargs)
            if name == "head":
                seen.head += answer.shape[0]
            elif answer[0].shape[1]:
                seen.calls += 1
                seen.tokens += answer[0].shape[0] * answer[0].shape[1]
            return answer

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in ("forward", "replay", "head"):
            patch.setattr(network, name, counted(getattr(network, name), name))
        yield seen


def check_invariants(case: Case, steps: list[tabes.Step], revises: bool) -> None:
    """What holds for every decoding at every step."""
    canvas, last = case.canvas, steps[-1].canvas
    given_BL = ~canvas.writable_BL
    for step in steps:
        assert step.canvas.tokens_BL[given_BL].equal(canvas.tokens_BL[given_BL]), "a given token changed"
        if not revises:
            written_BL = canvas.writable_BL & ~step.before.masked_BL
            assert step.canvas.tokens_BL[written_BL].equal(step.before.tokens_BL[written_BL]), "a written token changed"
    left_B = last.masked_BL.any(1)
    if case.stop is None:
        assert not bool(left_B.any()), "a mask was left over"
    elif bool(left_B.any()):
        stopped_BL = (last.tokens_BL == case.stop) & last.writable_BL
        assert bool((stopped_BL.any(1) | ~left_B).all()), "a row ended early without its stop"
    for row in range(len(left_B)):
        written = sum(len(step.positions[row]) - len(step.remasked[row]) for step in steps)
        assert written == int(canvas.masked_BL[row].sum() - last.masked_BL[row].sum()), "writes and re-masks disagree"


def check_counts(case: Case, steps: list[tabes.Step]) -> None:
    """Counts respect the budget: a step writes what is due and what was taken back, never more."""
    assert isinstance(case.rule, PartSampler)
    budget, reviser = case.rule.budget, case.rule.reviser
    if isinstance(budget, Even) and reviser is None:
        assert len(steps) <= STEPS, "more steps than asked for"
    if isinstance(budget, TokensPerStep):
        for step in steps:
            for positions, remasked in zip(step.positions, step.remasked, strict=True):
                assert len(positions) <= budget.tokens_per_step + len(remasked), "more rows than the budget allows"


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(str(value) for value in case.values()))
def test_any_combination(golden_model: tabes.Denoiser, case: dict[str, Any]) -> None:
    own = made(golden_model, case)
    is_kernel = not isinstance(own.rule, PartSampler)
    if is_kernel and case["rule"] in KERNELS:
        for part, nothing in KERNEL_ONLY.items():
            if case[part] != nothing:
                with pytest.raises(UsageError, match=rf"one whole transition, which has no {part}; leave it out$"):
                    sampler(preset_of_kernel(case["rule"]), **{part: case[part]})
    with watched(golden_model) as seen:
        steps = own.run()
    assert seen.calls == sum(step.cost.forward_calls for step in steps), "a network call the ledger does not know"
    assert seen.tokens == sum(step.cost.forward_tokens for step in steps)
    assert seen.head == sum(step.cost.head_rows for step in steps)

    check_invariants(own, steps, own.rule.revises)
    if not is_kernel:
        check_counts(own, steps)
    tokens_BL = steps[-1].canvas.tokens_BL
    assert tokens_BL.equal(own.run()[-1].canvas.tokens_BL), "equal seeds gave different results"
    for row in range(tokens_BL.shape[0] if tokens_BL.shape[0] > 1 else 0):
        content_L = ~own.canvas.padding_BL[row]
        single_BL = own.run(alone(own.canvas, row), SEED + row)[-1].canvas.tokens_BL
        assert single_BL[0].equal(tokens_BL[row][content_L]), f"row {row} alone differs"


def test_the_matrix_has_every_pair() -> None:
    names = list(AXES)
    for at, one in enumerate(names):
        for other in names[:at]:
            seen = {(case[one], case[other]) for case in CASES}
            assert len(seen) == len(AXES[one]) * len(AXES[other])


def takes_steps(name: str) -> bool:
    """Adaptive budgets are not told how many steps to take."""
    preset = preset_of(name)
    home: Any = BUDGETS if preset.kernel is None else KERNELS
    return "num_steps" in home.parameters(preset.kernel or preset.budget)


@pytest.mark.filterwarnings("ignore::tabes.steering.probes.NoSignalWarning")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_invariants(golden_model: tabes.Denoiser, data: st.DataObject) -> None:
    """Any preset on any canvas."""
    name = data.draw(st.sampled_from(tabes.samplers()))
    length = data.draw(st.integers(1, 12))
    ids = st.lists(st.one_of(st.just(MASK), st.integers(0, 63)), min_size=length, max_size=length)
    batch = data.draw(st.integers(1, 3))
    prompt_BP = torch.tensor([data.draw(ids) for _ in range(batch)])
    attention_BP = torch.ones_like(prompt_BP)
    for row in range(batch):
        attention_BP[row, : data.draw(st.integers(0, length - 1))] = 0
    block_length = data.draw(st.one_of(st.none(), st.integers(1, 6)))
    new = data.draw(st.integers(0, 4))
    arguments: dict[str, Any] = {"attention_mask": attention_BP, "block_length": block_length, "max_new_tokens": new}
    canvas = Canvas.create(prompt_BP, mask_id=MASK, **arguments)
    num_steps = data.draw(st.integers(16, 20))
    own = Case(golden_model, sampler(name, **({"num_steps": num_steps} if takes_steps(name) else {})), canvas, None)
    steps = own.run(seed=data.draw(st.integers(0, 99)))
    assert bool(steps) == bool(canvas.masked_BL.any())
    if steps:
        check_invariants(own, steps, own.rule.revises)


def final(model: AnyDenoiser, canvas: Canvas, rule: Sampler, seed: int = SEED) -> tuple[Tensor, list[tabes.Step]]:
    steps = list(tabes.decode(model, canvas, rule, seed=seed))
    return steps[-1].canvas.tokens_BL, steps


def test_a_ranking_with_state_sees_what_it_remembered(golden_model: tabes.Denoiser) -> None:
    """Without memory `Rising` would be confidence; rows that leave the batch take their state along."""
    canvas = Canvas.create(torch.tensor([[3, 4], [5, 6]]), mask_id=MASK, max_new_tokens=8)
    rising, confident = PartSampler(Rising(), Even(), Argmax()), sampler("confidence")
    assert not final(golden_model, canvas, rising)[0].equal(final(golden_model, canvas, confident)[0])
    short = canvas.with_tokens(torch.where(canvas.positions_BL < torch.tensor([[8], [0]]), 1, canvas.tokens_BL))
    tokens_BL, steps = final(golden_model, short, rising)
    assert [len(step.positions[0]) for step in steps[:3]] == [1, 1, 0]
    assert tokens_BL[1].equal(final(golden_model, alone(short, 1), rising, SEED + 1)[0][0])


def test_a_kernel_keeps_its_own_clock(golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of("ragged", True, None)
    tokens_BL, steps = final(golden_model, canvas, Coins())
    assert len(steps) == 7
    assert MASK not in tokens_BL
    assert [step.cost.forward_calls for step in steps] == [1] * 7
    assert sum(map(len, steps[-1].positions)) == 0
    assert len({len(step.positions[0]) for step in steps}) > 1, "the coins always fell alike"


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of("ragged", True, None)
    reference_BL = final(golden_model, canvas, sampler("confidence"))[0]
    whole = canvas_of("ragged", True, 99)
    same: list[tuple[AnyDenoiser, Sampler, Canvas]] = [
        (golden_model, sampler("confidence", temperature=1e-4), canvas),
        (golden_model, sampler("confidence", temperature=5.0, top_k=1), canvas),
        (golden_model, sampler("confidence", temperature=5.0, top_p=1e-6), canvas),
        (golden_model, sampler("confidence", tokens_per_step=1), canvas),
        (golden_model, sampler("confidence", num_steps=99), canvas),
        (golden_model, sampler("confidence"), whole),
        (Guidance(golden_model, 0.0), sampler("confidence"), canvas),
        (RowCache(golden_model, 1), sampler("confidence"), canvas),
        (Suppress(golden_model, ()), sampler("confidence"), canvas),
    ]
    for model, rule_, canvas_ in same:
        assert final(model, canvas_, rule_)[0].equal(reference_BL)


def test_the_row_cache_saves_work_and_is_not_exact(golden_model: tabes.Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5, 6] * 8]), mask_id=MASK, max_new_tokens=16)
    exact_BL, exact = final(golden_model, canvas, sampler("confidence"))
    cached_BL, cached = final(RowCache(golden_model, 4), canvas, sampler("confidence"))
    work = [sum(step.cost.forward_equivalents for step in steps) for steps in (exact, cached)]
    assert work[1] < 0.5 * work[0]
    assert [step.cost.forward_tokens for step in cached[:6]] == [48, 16, 15, 14, 48, 12]
    assert not cached_BL.equal(exact_BL)
