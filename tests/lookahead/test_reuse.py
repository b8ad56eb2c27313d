"""What looking ahead costs, and when the winner's forward may stand for the next step's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache, Suppress
from tabes.budgets import Even, Threshold, TokensPerStep
from tabes.denoiser import AnyDenoiser
from tabes.errors import NumericsError
from tabes.presets import sampler
from tabes.rankings import InfoGain, Lookum
from tabes.sampling import PartSampler, Sampler
from tabes.steering import scene
from tabes.steering.foresight import keeps_nothing
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK
from tests.steering.analytic import Mixer, denoiser, mixer
from tests.steering.scenes import filled
from tests.toys import TakeBackLeastCertain

LENGTH = 12


def canvas_of(batch: int = 1, **arguments: Any) -> Canvas:
    prompt_BP = torch.tensor([[3, 4, 5, 6], [7, 8, 9, 1], [10, 2, 30, 14]])[:batch]
    return Canvas.create(prompt_BP, mask_id=MASK, max_new_tokens=LENGTH, **arguments)


def forwards(steps: list[tabes.Step]) -> tuple[list[int], list[int]]:
    """Calls of every step, and token rows as batch rows of the canvas."""
    rows = [step.cost.forward_tokens // step.canvas.tokens_BL.shape[1] for step in steps]
    return [step.cost.forward_calls for step in steps], rows


@pytest.mark.parametrize("paths", [2, 3])
def test_one_forward_and_one_for_every_path(golden_model: tabes.Denoiser, paths: int) -> None:
    """1 + k for every step in which there is a choice; the last has none."""
    steps = filled(golden_model, canvas_of(), sampler("lookum", num_steps=6, paths=paths))[1]
    assert forwards(steps) == ([2, 1, 1, 1, 1, 0], [1 + paths, *[paths] * 4, 0])


def test_the_head_runs_once_on_a_row(golden_model: tabes.Denoiser) -> None:
    steps = filled(golden_model, canvas_of(), sampler("lookum", num_steps=6, paths=2))[1]
    assert [step.cost.head_rows for step in steps] == [12 + 2 * 10, 2 * 8, 2 * 6, 2 * 4, 2 * 2, 0]


def test_replays_cost_the_rows_watched(golden_model: tabes.Denoiser) -> None:
    steps = filled(golden_model, canvas_of(), sampler("lookum", num_steps=6, paths=2, evaluate="replay"))[1]
    assert [step.cost.forward_tokens for step in steps] == [16 + 2 * left for left in (12, 10, 8, 6, 4)] + [16]
    assert [step.cost.forward_calls for step in steps] == [2] * 5 + [1]
    in_blocks = filled(
        golden_model,
        canvas_of(block_length=6),
        sampler("lookum", num_steps=6, paths=2, evaluate="replay", scope="block"),
    )[1]
    assert [step.cost.forward_tokens for step in in_blocks] == [16 + 2 * 6, 16 + 2 * 4, 16] * 2


class Forgetful:
    """A denoiser that is never the one it was, so nothing is carried over."""

    def __init__(self, inner: AnyDenoiser) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def begin(self) -> Forgetful:
        return Forgetful(self.inner.begin())

    def select(self, keep_B: Tensor) -> Forgetful:
        return Forgetful(self.inner.select(keep_B))


WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "guided": lambda model: Guidance(model, 0.7),
    "suppressed": lambda model: Suppress(model, (46, 55)),
    "suppressed guided": lambda model: Suppress(Guidance(model, 0.4), 46),
}
RULES: dict[str, Sampler] = {
    "lookum": sampler("lookum", num_steps=5, paths=3),
    "information gain": sampler("info-gain", num_steps=5, position_temperature=0.8),
    "all rows": sampler("lookum", num_steps=5, scope="all", verifier="confidence", resampling=0.3),
    "drawn": PartSampler(Lookum(), Even(num_steps=5), Categorical(0.9)),
    "adaptive": PartSampler(InfoGain(), Threshold(0.6), Argmax()),
    "revised": PartSampler(Lookum(), TokensPerStep(2), Argmax(), TakeBackLeastCertain()),
}


@pytest.mark.parametrize("block_length", [None, 5])
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("wrapper", list(WRAPPERS))
def test_nothing_changes_but_the_cost(
    golden_model: tabes.Denoiser, wrapper: str, rule: str, block_length: int | None
) -> None:
    """Batch rows of different length; every step written the same as where each forward is made anew."""
    model, canvas = WRAPPERS[wrapper](golden_model), canvas_of(3, block_length=block_length)
    shorter_BL = (canvas.positions_BL == 9) & (canvas.tokens_BL[:, :1] == 7)
    canvas = canvas.with_tokens(torch.where(shorter_BL, 1, canvas.tokens_BL))
    kept_BL, kept = filled(model, canvas, RULES[rule])
    made_BL, made = filled(Forgetful(model), canvas, RULES[rule])
    assert keeps_nothing(model)
    assert [step.positions for step in kept] == [step.positions for step in made]
    assert kept_BL.equal(made_BL)
    work = [sum(step.cost.forward_tokens for step in steps) for steps in (kept, made)]
    assert work[0] < work[1] if rule != "revised" else work[0] <= work[1]


@pytest.mark.parametrize("evaluate", ["full", "replay"])
def test_a_row_cache_is_right(golden_model: tabes.Denoiser, evaluate: str) -> None:
    """With a refresh at every step it is exact; paths are forwards from scratch whatever it remembers."""
    canvas, rule = canvas_of(2), sampler("lookum", num_steps=5, evaluate=evaluate)
    plain_BL, plain = filled(golden_model, canvas, rule)
    cached_BL, cached = filled(RowCache(golden_model, 1), canvas, rule)
    assert cached_BL.equal(plain_BL)
    if evaluate == "full":
        assert not keeps_nothing(RowCache(golden_model, 4))
        assert not keeps_nothing(Guidance(RowCache(golden_model, 4), 0.5))
        assert forwards(cached)[1] == [2 * 3] * 4 + [2], "a forward of its own for every step"
    else:
        assert [step.positions for step in plain] == [step.positions for step in cached]


def test_a_row_cache_takes_the_winners_replay(golden_model: tabes.Denoiser) -> None:
    """What it would have replayed itself, so the decoding is the same and its own calls are saved."""
    canvas, rule = canvas_of(), sampler("lookum", num_steps=6, evaluate="replay")
    taken_BL, taken = filled(RowCache(golden_model, 99), canvas, rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowCache, "takes_offers", False)
        made_BL, made = filled(RowCache(golden_model, 99), canvas, rule)
    assert taken_BL.equal(made_BL)
    assert [step.cost.forward_calls for step in made] == [2] * 5 + [1]
    assert [step.cost.forward_calls for step in taken] == [2] + [1] * 4 + [0]


def test_batch_rows_that_have_no_choice_come_along(golden_model: tabes.Denoiser) -> None:
    """A row at its last step needs no forward; one that goes on without a choice gets the one it will need."""
    canvas = canvas_of(2)
    left_BL = (canvas.positions_BL < 14) & (canvas.positions_BL >= 4) & (canvas.tokens_BL[:, :1] == 7)
    canvas = canvas.with_tokens(torch.where(left_BL, 1, canvas.tokens_BL))
    steps = filled(golden_model, canvas, sampler("lookum", tokens_per_step=1, paths=2))[1]
    assert forwards(steps)[1] == [2 + 4, *[2] * 10, 0]
    assert forwards(steps)[0] == [2, *[1] * 10, 0]
    assert [len(step.positions[1]) for step in steps[:3]] == [1, 1, 0]


def test_a_row_at_the_end_of_its_block_comes_along(golden_model: tabes.Denoiser) -> None:
    """It has no choice, but a forward to come: made with the paths of the others, it is that of all."""
    canvas = canvas_of(2, block_length=4)
    filled_BL = (canvas.positions_BL == 5) & (canvas.tokens_BL[:, :1] == 7)
    canvas = canvas.with_tokens(torch.where(filled_BL, 1, canvas.tokens_BL))
    steps = filled(golden_model, canvas, sampler("lookum", tokens_per_step=1, paths=2))[1]
    # Row 1 has three rows left in its first block, so that it is one step ahead of row 0 until it is done.
    assert forwards(steps)[0] == [2, *[1] * 10, 0]
    assert forwards(steps)[1] == [2 + 4, 4, 3, 3, 4, 4, 3, 3, 4, 4, 2, 0]


def test_parts_of_a_batch_of_paths_are_put_together(golden_model: tabes.Denoiser) -> None:
    canvas, rules = canvas_of(3), (sampler("info-gain", num_steps=5), sampler("lookum", num_steps=5, evaluate="replay"))
    for rule in rules:
        whole_BL, whole = filled(golden_model, canvas, rule)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scene, "_ROWS_AT_ONCE", {"cpu": 2 * canvas.tokens_BL.shape[1]})
            parts_BL, parts = filled(golden_model, canvas, rule)
        assert parts_BL.equal(whole_BL)
        assert forwards(parts)[1] == forwards(whole)[1]
        assert sum(forwards(parts)[0]) > sum(forwards(whole)[0])


def test_another_part_that_replays_gets_what_it_needs(golden_model: tabes.Denoiser) -> None:
    """A foreseen forward remembers nothing, so where something replays the next step makes its own."""
    rule = sampler("lookum", budget="compatible", num_steps=4, paths=2, sure=None)
    tokens_BL, steps = filled(golden_model, canvas_of(2), rule)
    assert MASK not in tokens_BL
    assert len(steps) == 4


def timed(**changes: Any) -> Mixer:
    return replace(mixer(10, 8, 5, seed=3, coupling=0.4), timed=True, **changes)


@pytest.mark.parametrize("evaluate", ["full", "replay"])
def test_a_timed_network_hears_the_time_of_each_canvas(evaluate: str) -> None:
    network = timed()
    canvas = Canvas.create(torch.tensor([[1, 2, *[7] * 8]]), mask_id=7)
    rule = sampler("lookum", tokens_per_step=2, paths=2, evaluate=evaluate)
    kept_BL, _ = filled(denoiser(network), canvas, rule)
    assert 7 not in kept_BL
    if evaluate == "full":
        assert network.told == [[1.0], [0.75] * 2, [0.5] * 2, [0.25] * 2]
        assert filled(Forgetful(denoiser(timed())), canvas, rule)[0].equal(kept_BL)
    else:
        # The next time is asked for before the replays, and then again by the step that has come to it.
        assert network.told == [[1.0], [0.75], [0.75], [0.5], [0.5], [0.25], [0.25]]


def test_a_row_cache_of_a_timed_network_is_offered_nothing() -> None:
    """It would replay at the time it last refreshed, and the paths were tried at the next."""
    canvas, rule = (
        Canvas.create(torch.tensor([[1, 2, *[7] * 8]]), mask_id=7),
        sampler("lookum-replay", tokens_per_step=2),
    )
    steps = filled(RowCache(denoiser(timed()), 99), canvas, rule)[1]
    assert [step.cost.forward_calls for step in steps] == [3, 3, 3, 1], "its own, that at the next time, the paths'"


@pytest.mark.parametrize("evaluate", ["full", "replay"])
def test_broken_numbers_name_the_batch_row(evaluate: str) -> None:
    """Not the path: there are more of those."""
    network = mixer(8, 9, 5, seed=1, coupling=0.3)
    ill = torch.where(torch.arange(9)[:, None] == 3, torch.nan, network.table_VE)

    canvas = Canvas.create(torch.tensor([[1, 2, *[8] * 6], [0, 4, *[8] * 6]]), mask_id=8)
    model = denoiser(replace(network, table_VE=ill))
    rule = PartSampler(Lookum(evaluate=evaluate, greedy=False, paths=4), Even(), WritesThree())  # type: ignore[arg-type]
    with pytest.raises(NumericsError, match=r"step 0: \w+ is not finite after a path tried at batch row 1"):
        list(tabes.decode(model, canvas, rule, seed=0))


class WritesThree(Argmax):
    """Token 3 in the second batch row, token 2 elsewhere."""

    def propose(self, view: Any, prediction: Any, reads: frozenset[str] = frozenset()) -> Any:
        proposal = super().propose(view, prediction, reads)
        second_BL = (view.canvas.tokens_BL[:, :1] == 0).expand_as(proposal.tokens_BL)
        return replace(proposal, tokens_BL=torch.where(second_BL, 3, 2))
