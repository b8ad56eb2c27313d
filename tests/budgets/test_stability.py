"""KLASS's readiness: the divergence itself, the history, who is written, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache, Suppress
from tabes.budgets import Stability
from tabes.budgets.stability import Past, Settling, divergence
from tabes.denoiser import AnyDenoiser
from tabes.sampling import PartSampler, PartState
from tests.budgets.fixed import MASK as FIXED_MASK
from tests.budgets.fixed import canvas_of, order_of, prediction_of, view_of
from tests.conftest import MASK

SURE = [0.9, 0.1, 1e-8, 1e-8, 1e-8]
OTHER = [0.6, 0.1, 0.1, 0.1, 0.1]


def rows_of(write_BL: Tensor) -> list[int]:
    return [at - 2 for at in write_BL[0].nonzero().flatten().tolist()]


def steps_of(budget: Stability, seen: list[list[list[float]]]) -> list[list[int]]:
    """What would be written at each step if nothing ever was and these were the predictions."""
    canvas = canvas_of(len(seen[0]))
    state, found = budget.init(canvas), []
    for step, p_NV in enumerate(seen):
        view = view_of(canvas, step)
        order = order_of(view, prediction_of(canvas, p_NV))
        write_BL, state = budget.cut(view, order, torch.zeros(1, dtype=torch.int64), state)
        found.append(rows_of(write_BL))
    return found


def test_the_divergence_is_kullback_and_leiblers() -> None:
    torch.manual_seed(0)
    canvas = canvas_of(200)
    p_NV, q_NV = (3 * torch.randn(2, 200, 5)).softmax(-1)
    assert FIXED_MASK == 5
    p, q = prediction_of(canvas, p_NV), prediction_of(canvas, q_NV)
    exact_N = (p_NV.double() * (p_NV.double().log() - q_NV.double().log())).sum(-1)
    found_BL = divergence(p, q, canvas.open_BL)
    torch.testing.assert_close(found_BL[0, 2:].double(), exact_N, atol=2e-6, rtol=1e-4)
    assert bool(found_BL[0, :2].isinf().all())
    assert bool((divergence(p, p, canvas.open_BL)[0, 2:] == 0).all())


def test_rows_are_ready_after_n_steps_without_a_move() -> None:
    """Nothing before the third prediction: two divergences need three."""
    still = [[SURE, OTHER, OTHER]] * 4
    assert steps_of(Stability(threshold=0.8, history=2), still) == [[0], [0], [0], [0]]
    both = [[OTHER, SURE, SURE]] * 4
    assert steps_of(Stability(threshold=0.8, history=2), both) == [[1], [1], [1, 2], [1, 2]]
    assert steps_of(Stability(threshold=0.8, history=1), both) == [[1], [1, 2], [1, 2], [1, 2]]
    assert steps_of(Stability(threshold=0.8, history=3), both) == [[1], [1], [1], [1, 2]]
    assert steps_of(Stability(threshold=0.95, history=1), both) == [[1]] * 4


def test_a_move_starts_the_history_anew() -> None:
    moved = [0.9, 1e-8, 0.1, 1e-8, 1e-8]
    seen = [[SURE, SURE], [SURE, SURE], [SURE, moved], [SURE, moved], [SURE, moved], [SURE, moved]]
    assert steps_of(Stability(threshold=0.8), seen) == [[0], [0], [0], [0], [0, 1], [0, 1]]


def test_fewer_ready_rows_than_due_are_all_that_is_written() -> None:
    seen = [[OTHER, SURE, OTHER]] * 3
    assert steps_of(Stability(num_steps=1, threshold=0.8), seen) == [[0, 1, 2], [0, 1, 2], [1]]


def test_one_of_the_ready() -> None:
    first, second = [0.91, 0.09, 1e-8, 1e-8, 1e-8], [0.901, 0.099, 1e-8, 1e-8, 1e-8]
    seen = [[first, SURE], [first, SURE], [second, SURE]]
    assert steps_of(Stability(threshold=0.8), seen)[2] == [0, 1]
    assert steps_of(Stability(threshold=0.8, ready="confidence"), seen)[2] == [0]
    assert steps_of(Stability(threshold=0.8, ready="divergence"), seen)[2] == [1]


WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "guided": lambda model: Guidance(model, 0.5),
    "cached": lambda model: RowCache(model, 2),
    "suppressed": lambda model: Suppress(model, 55),
}
PARAMETERS: dict[str, Any] = {"threshold": 0.2, "divergence": 1.5}


def decoded(model: AnyDenoiser, canvas: Canvas, **parameters: Any) -> list[tabes.Step]:
    return list(tabes.decode(model, canvas, tabes.sampler("klass", **PARAMETERS | parameters)))


def ragged(block_length: int | None) -> Canvas:
    """A short prompt, padded on the left, with ten masks and given text behind; and one with 21."""
    tokens_BL = torch.full((2, 23), MASK)
    tokens_BL[0, :5], tokens_BL[0, 15:] = torch.tensor([65, 65, 65, 7, 21]), 9
    tokens_BL[1, ::11] = 3
    attention_BL = torch.ones_like(tokens_BL)
    attention_BL[0, :3] = 0
    return Canvas.create(tokens_BL, mask_id=MASK, attention_mask=attention_BL, block_length=block_length)


@pytest.mark.parametrize("block_length", [None, 8])
@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_batch_row_decodes_as_alone(
    golden_model: tabes.Denoiser, block_length: int | None, carry: bool, wrapper: str
) -> None:
    """The rows are done at different steps, so the history leaves the batch with them."""
    model = WRAPPERS[wrapper](golden_model)
    canvas = ragged(block_length)
    steps = decoded(model, canvas, carry=carry)
    lengths = [next(at for at, step in enumerate(steps) if step.done_B[row]) for row in range(2)]
    assert lengths[0] != lengths[1]
    assert max(len(row) for step in steps for row in step.positions) > 1, "nothing was ever ready"
    for row in range(2):
        content_L = ~canvas.padding_BL[row]
        alone = canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])  # noqa: B023
        mine = decoded(model, alone, carry=carry)
        assert mine[-1].canvas.tokens_BL[0].equal(steps[-1].canvas.tokens_BL[row][content_L])


def test_the_history_before_a_block_counts_unless_told_otherwise(golden_model: tabes.Denoiser) -> None:
    """In later blocks several rows can be written at the second step; without the carry not before the third."""

    def early(carry: bool) -> int:
        found = 0
        for seed in range(8):
            prompt_1P = torch.randint(0, 64, (1, 5), generator=torch.Generator().manual_seed(seed))
            canvas = Canvas.create(prompt_1P, mask_id=MASK, max_new_tokens=18, block_length=6)
            taken: dict[int, int] = {}
            for step in decoded(golden_model, canvas, carry=carry):
                block = int(step.before.block_B[0])
                found += len(step.positions[0]) > 1 and taken.get(block, 0) == 1
                taken[block] = taken.get(block, 0) + 1
        return found

    assert early(carry=True) > 0
    assert early(carry=False) == 0


def test_reading_only_the_next_block_is_enough(golden_model: tabes.Denoiser) -> None:
    """A row's history cannot be asked for further back than the last step before its block began."""

    class All(Stability):
        def rows(self, view: Any) -> Tensor:
            masked_BL: Tensor = view.canvas.masked_BL
            return masked_BL

    made = tabes.sampler("klass")
    assert isinstance(made, PartSampler)
    for seed in range(4):
        prompt_1P = torch.randint(0, 64, (1, 5), generator=torch.Generator().manual_seed(seed))
        canvas = Canvas.create(prompt_1P, mask_id=MASK, max_new_tokens=24, block_length=5)
        whole = list(tabes.decode(golden_model, canvas, PartSampler(made.ranking, All(**PARAMETERS), made.writer)))
        mine = decoded(golden_model, canvas)
        assert [step.positions for step in mine] == [step.positions for step in whole]


def test_the_head_runs_again_on_sure_rows_only(golden_model: tabes.Denoiser, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not at all where all logits of the step before were kept."""
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=20)
    plain = list(tabes.decode(golden_model, canvas, tabes.sampler("confidence")))
    kept = decoded(golden_model, canvas, divergence=0.0)
    assert [step.cost.head_rows for step in kept] == [step.cost.head_rows for step in plain]
    monkeypatch.setattr("tabes.prediction._CHUNK_ELEMENTS", 4 * 67)
    again = decoded(golden_model, canvas, divergence=0.0)
    more = [mine.cost.head_rows - theirs.cost.head_rows for mine, theirs in zip(again, plain, strict=True)]
    assert more[:2] == [0, 0]
    assert 0 < max(more) < 40
    assert [step.positions for step in again] == [step.positions for step in plain]


def test_the_history_holds_no_keys_and_values_and_no_more_than_it_needs(golden_model: tabes.Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=12)
    states: list[Settling] = []

    class Spy(Stability):
        def cut(self, *arguments: Any) -> Any:
            write_BL, state = super().cut(*arguments)
            states.append(state)
            return write_BL, state

    made = tabes.sampler("boe")
    assert isinstance(made, PartSampler)
    list(tabes.decode(golden_model, canvas, PartSampler(made.ranking, Spy(**PARAMETERS), made.writer)))
    assert [len(state.past.predictions) for state in states[:4]] == [1, 2, 2, 2]
    assert not any(one.remembered for state in states for one in state.past.predictions)
    assert isinstance(PartState(None, states[0], None).select(torch.tensor([True])).budget.past, Past)
