"""Sparse lookahead against writes and full forwards by transformers alone, where a replay is exact."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from tabes import RowCache
from tabes.errors import UsageError
from tabes.presets import sampler
from tabes.steering import Lookahead, Probes, scene
from tests.steering.analytic import denoiser, mixer
from tests.steering.exact import Exact
from tests.steering.scenes import canvas_of, filled, holes, opened, precise, ragged, rows, scene_of, tiny

MASKED = (0, 2, 3, 6)
GIVEN, OPEN = holes(7, MASKED), holes(6, range(6))


class OneStep:
    """Writes a row, runs the whole model, and looks at the entropies of the other masks."""

    def __init__(self, name: str, layers: int, masked: tuple[int, ...]) -> None:
        canvas = GIVEN if masked == MASKED else OPEN
        self.model, self.masked = Exact(precise(name, num_hidden_layers=layers), canvas.tokens_BL[0]), masked

    def drop(self, row: int, writes: dict[int, int]) -> tuple[float, dict[int, int]]:
        """After `writes`, and the writes with this one."""
        before = self.model.written(writes)
        more = writes | {row: int(self.model.p(before)[row].argmax())}
        others = [j for j in self.masked if j not in more]
        old, new = self.model.entropies(before), self.model.entropies(self.model.written(more))
        return float((old - new)[others].sum()), more


@cache
def model_of(name: str, layers: int) -> object:
    return opened(precise(name, num_hidden_layers=layers))


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert"])
@pytest.mark.parametrize(("layers", "masked"), [(3, tuple(range(6))), (1, MASKED)])
def test_the_drop_is_that_of_a_full_forward(name: str, layers: int, masked: tuple[int, ...]) -> None:
    """With every row masked there is nothing to hold constant; in one layer given rows have constant keys anyway."""
    canvas, exact = (GIVEN if masked == MASKED else OPEN), OneStep(name, layers, masked)
    drops_L = Lookahead().drops(scene_of(model_of(name, layers), canvas), canvas.masked_BL)[0]  # type: ignore[arg-type]
    expected = [exact.drop(i, {})[0] for i in masked]
    assert drops_L[list(masked)].tolist() == pytest.approx(expected, abs=1e-10)
    assert max(map(abs, expected)) > 1e-2


def test_with_given_rows_and_depth_it_is_an_approximation() -> None:
    """So the agreement above is no accident."""
    exact = OneStep("llama", 3, MASKED)
    drops_L = Lookahead().drops(scene_of(model_of("llama", 3), GIVEN), GIVEN.masked_BL)[0]  # type: ignore[arg-type]
    expected = torch.tensor([exact.drop(i, {})[0] for i in MASKED])
    assert (drops_L[list(MASKED)] - expected).abs().min() > 1e-6


def furthest(exact: OneStep, writes: dict[int, int], horizon: int) -> list[float]:
    """For every mask left, its drop and the best that may follow, by trying all."""
    found = []
    for row in exact.masked:
        if row not in writes:
            drop, more = exact.drop(row, writes)
            found.append(drop + (max(furthest(exact, more, horizon - 1), default=0.0) if horizon > 1 else 0.0))
    return found


@pytest.mark.parametrize("horizon", [2, 3])
def test_further_steps_are_the_best_sequence_of_writes(horizon: int) -> None:
    exact, ahead = OneStep("llama", 1, MASKED), Lookahead(horizon=horizon, beam=len(MASKED))
    drops_L = ahead.drops(scene_of(model_of("llama", 1), GIVEN), GIVEN.masked_BL)[0]  # type: ignore[arg-type]
    expected = furthest(exact, {}, horizon)
    assert drops_L[list(MASKED)].tolist() == pytest.approx(expected, abs=1e-10)
    assert expected != pytest.approx(furthest(exact, {}, horizon - 1), abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_three_steps_over_two_masks_are_two(dtype: torch.dtype) -> None:
    network, canvas = denoiser(mixer(5, 6, 4).to(dtype)), canvas_of([[0, 5, 1, 5, 2]], 5)
    two, three = (Lookahead(horizon=h, beam=2).drops(scene_of(network, canvas), canvas.masked_BL) for h in (2, 3))
    torch.testing.assert_close(two, three)


def test_only_the_beam_goes_on() -> None:
    network, canvas = denoiser(mixer(7, 6, 4, coupling=0.3)), canvas_of([[5] * 7], 5)
    one_L, narrow_L, wide_L = (
        Lookahead(horizon=h, beam=beam).drops(scene_of(network, canvas), canvas.masked_BL)[0]
        for h, beam in ((1, 1), (2, 1), (2, 3))
    )
    best = one_L.argsort(descending=True)
    assert (narrow_L != one_L).nonzero().flatten().tolist() == [int(best[0])]
    assert (wide_L != one_L).nonzero().flatten().tolist() == sorted(best[:3].tolist())


def test_copies_a_few_at_a_time_are_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = ragged()
    for horizon in (1, 2):
        ahead = Lookahead(horizon=horizon, beam=2)
        whole = ahead.drops(scene_of(tiny("bert"), canvas), canvas.masked_BL)
        with monkeypatch.context() as patch:
            patch.setattr(scene, "_ROWS_AT_ONCE", {"cpu": 2 * canvas.tokens_BL.shape[1]})
            torch.testing.assert_close(ahead.drops(scene_of(tiny("bert"), canvas), canvas.masked_BL), whole)


def test_nothing_to_try_is_nothing_to_do() -> None:
    before = tiny("bert").ledger.forward_calls
    assert not Lookahead(horizon=2).drops(scene_of(tiny("bert"), GIVEN), rows(GIVEN)).any()
    assert tiny("bert").ledger.forward_calls == before + 1, "the scene's own forward"


class Deaf(RowCache):
    """A cache that takes no offers."""

    takes_offers = False  # type: ignore[assignment]

    def begin(self) -> Deaf:
        return Deaf(self.denoiser.begin(), self.every)

    def select(self, keep_B: torch.Tensor) -> Deaf:
        kept, deaf = super().select(keep_B), Deaf(self.denoiser.select(keep_B), self.every)
        vars(deaf).update(vars(kept))
        return deaf


@pytest.mark.parametrize("every", [3, 100, "block"])
def test_the_winners_replay_is_the_next_prediction(every: int) -> None:
    rule, canvas = sampler("lookahead"), ragged(block_length=4)
    heard_BL, heard = filled(RowCache(tiny("llama"), every), canvas, rule)
    plain_BL, plain = filled(Deaf(tiny("llama"), every), canvas, rule)
    assert heard_BL.equal(plain_BL)
    for one, other in zip(heard, plain, strict=True):
        for scores, others in zip(one.scores, other.scores, strict=True):
            assert scores == pytest.approx(others, abs=1e-5)
    calls = [[step.cost.forward_calls for step in steps] for steps in (heard, plain)]
    assert set(map(int.__sub__, calls[1], calls[0])) == {0, 1}


def test_every_step_but_the_first_is_free_of_its_forward() -> None:
    _, steps = filled(RowCache(tiny("llama"), 100), holes(8, range(3, 8)), sampler("lookahead"))
    # One forward, then the copies of every step; the last mask has no rival and its prediction was offered.
    assert [step.cost.forward_calls for step in steps] == [2, 1, 1, 1, 0]


def test_what_is_offered_is_what_the_cache_would_have_computed() -> None:
    """Probes of the block: a cache would not touch the later blocks."""
    rule, canvas = sampler("lookahead", probes="block"), ragged(block_length=4)
    heard = filled(RowCache(tiny("llama"), 100), canvas, rule)[1]
    plain = filled(Deaf(tiny("llama"), 100), canvas, rule)[1]
    for one, other in zip(heard, plain, strict=True):
        for scores, others in zip(one.scores, other.scores, strict=True):
            assert scores == pytest.approx(others, abs=1e-5)


@pytest.mark.parametrize("wrong", [{"horizon": 0}, {"beam": 0}])
def test_wrong_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="it must be 1 or more"):
        Lookahead(**wrong)  # type: ignore[arg-type]


def test_probes_of_the_block_do_not_see_the_next_one() -> None:
    canvas = canvas_of([[0, 5, 5, 5, 5]], 5, block_length=2)
    network = denoiser(mixer(5, 6, 4))
    drops_L = Lookahead(probes=Probes("block")).drops(scene_of(network, canvas), canvas.open_BL)[0]
    whole_L = Lookahead().drops(scene_of(network, canvas), canvas.open_BL)[0]
    assert (drops_L != whole_L).tolist() == canvas.open_BL[0].tolist()
