"""What must hold for every ranking with every budget, writer, reviser, wrapper and shape of canvas."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.budgets import Even
from tabes.denoiser import AnyDenoiser
from tabes.parts import BUDGETS, RANKINGS, Reviser
from tabes.presets import sampler
from tabes.sampling import PartSampler, Sampler
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK
from tests.toys import Coins, Rising, TakeBackLeastCertain

WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "guidance": lambda model: Guidance(model, 0.7),
    "cache": lambda model: RowCache(model, 3),
    "cache-blocks": lambda model: RowCache(model, "block"),
    "guided-cache": lambda model: Guidance(RowCache(model, 2), 0.5),
    "cached-guidance": lambda model: RowCache(Guidance(model, 0.5), 2),
}
REVISERS: dict[str, Reviser | None] = {"locked-in": None, "revising": TakeBackLeastCertain()}
BUDGET_ARGUMENTS: dict[str, dict[str, Any]] = {
    "even": {"num_steps": 4},
    "cosine": {"num_steps": 4},
    "tokens_per_step": {"tokens_per_step": 2},
    "compatible": {"num_steps": 4, "bound": 0.05},
}
SHAPES: dict[str, dict[str, Any]] = {"whole": {}, "blocks": {"block_length": 4}}
SEED = 11


def rule(ranking: str, budget: str, reviser: Reviser | None, temperature: float) -> Sampler:
    chosen = Rising() if ranking == "rising" else RANKINGS.build(ranking)
    writer = Categorical(temperature) if temperature else Argmax()
    return PartSampler(chosen, BUDGETS.build(budget, **BUDGET_ARGUMENTS[budget]), writer, reviser)


def ragged_canvas(**arguments: Any) -> Canvas:
    """Two rows of different length with a hole inside the longer prompt; the shorter is padded on the left."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, **arguments)


def alone(canvas: Canvas, row: int) -> Canvas:
    """One row of a batch without its padding."""
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


def final(
    model: AnyDenoiser, canvas: Canvas, sampler: Sampler, seed: int = SEED
) -> tuple[torch.Tensor, list[tabes.Step]]:
    steps = list(tabes.decode(model, canvas, sampler, seed=seed))
    return steps[-1].canvas.tokens_BL, steps


def pairwise() -> list[tuple[str, str, str, str, str, float]]:
    """Every pair of values of any two of the six choices occurs somewhere (greedy, small)."""
    axes: list[list[Any]] = [
        [*RANKINGS.names(), "rising"],
        list(BUDGETS.names()),
        list(WRAPPERS),
        list(REVISERS),
        list(SHAPES),
        [0.0, 0.8],
    ]
    pairs = {(i, a, j, b) for i in range(6) for j in range(i) for a, b in product(axes[i], axes[j])}

    def covered(case: tuple[Any, ...]) -> set[tuple[int, Any, int, Any]]:
        return {(i, case[i], j, case[j]) for i in range(6) for j in range(i)}

    cases, candidates = [], list(product(*axes))
    while pairs:
        best = max(candidates, key=lambda case: len(covered(case) & pairs))
        cases.append(best)
        pairs -= covered(best)
    return cases


@pytest.mark.parametrize(("ranking", "budget", "wrapper", "reviser", "shape", "temperature"), pairwise())
def test_any_combination(
    golden_model: tabes.Denoiser, ranking: str, budget: str, wrapper: str, reviser: str, shape: str, temperature: float
) -> None:
    model = WRAPPERS[wrapper](golden_model)
    sampler_ = rule(ranking, budget, REVISERS[reviser], temperature)
    canvas = ragged_canvas(**SHAPES[shape])
    tokens_BL, steps = final(model, canvas, sampler_)

    assert not bool(steps[-1].canvas.masked_BL.any()), "a mask was left over"
    assert tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL]), "a given token changed"
    assert tokens_BL.equal(final(model, canvas, sampler_)[0]), "the second run differs"
    for row in range(2):
        single = alone(canvas, row)
        content_L = ~canvas.padding_BL[row]
        assert final(model, single, sampler_, SEED + row)[0][0].equal(tokens_BL[row][content_L]), "a row alone differs"
    for step in steps:
        for row, positions in enumerate(step.positions):
            assert list(positions) == sorted(positions)
            if reviser == "locked-in":
                assert not step.rewritten[row]
                assert not step.remasked[row]
            if budget == "tokens_per_step":
                assert len(positions) - len(step.remasked[row]) <= 2
    assert sum(step.cost.forward_calls for step in steps) >= len(steps)
    written = sum(len(row) for step in steps for row in step.positions)
    again = sum(len(row) for step in steps for row in step.remasked)
    assert written - again == int(canvas.masked_BL.sum())
    if reviser == "revising" and shape == "whole" and budget != "tokens_per_step":
        assert again > 0


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
    canvas = ragged_canvas()
    tokens_BL, steps = final(golden_model, canvas, Coins())
    assert len(steps) == 7
    assert MASK not in tokens_BL
    assert [step.cost.forward_calls for step in steps] == [1] * 7
    assert sum(map(len, steps[-1].positions)) == 0
    assert len({len(step.positions[0]) for step in steps}) > 1, "the coins always fell alike"
    for row in range(2):
        assert final(golden_model, alone(canvas, row), Coins(), SEED + row)[0][0].equal(
            tokens_BL[row][~canvas.padding_BL[row]]
        )


def test_limits(golden_model: tabes.Denoiser) -> None:
    canvas = ragged_canvas()
    reference_BL = final(golden_model, canvas, sampler("confidence"))[0]
    same: list[tuple[AnyDenoiser, Sampler, Canvas]] = [
        (golden_model, sampler("confidence", temperature=1e-4), canvas),
        (golden_model, sampler("confidence", temperature=5.0, top_k=1), canvas),
        (golden_model, sampler("confidence", temperature=5.0, top_p=1e-6), canvas),
        (golden_model, sampler("confidence", tokens_per_step=1), canvas),
        (golden_model, sampler("confidence", num_steps=99), canvas),
        (golden_model, sampler("confidence"), ragged_canvas(block_length=99)),
        (Guidance(golden_model, 0.0), sampler("confidence"), canvas),
        (RowCache(golden_model, 1), sampler("confidence"), canvas),
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
