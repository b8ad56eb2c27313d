"""States, truths and scores against loops that share no code with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from torch import Tensor

import tabes
from tabes.bench import write_rows
from tabes.bench.fidelity import SCORES, Question, Settings, StateRow, measure, parse_scores, read_states
from tabes.bench.fidelity.states import scene_of, start, stopped, stops
from tabes.bench.fidelity.truths import exact_drops, relaxed_paths
from tabes.errors import NumericsError, UnknownNameError, UsageError
from tabes.steering import Scene, TotalEntropy
from tabes.tasks import Item, SudokuTask

if TYPE_CHECKING:
    from transformers import BertForMaskedLM

MASK = 10

TASK = SudokuTask(clues=66)
SMALL = Settings(states=4, candidates=3, seed=1, points=5)
CHEAP = "confidence,tis-half,lookahead"


def _states(model: tabes.Denoiser, settings: Settings = SMALL) -> tabes.Canvas:
    items = TASK.items(settings.states, settings.seed)
    canvas = start(model, TASK, items)
    seeds = [settings.seed + number for number in range(len(items))]
    return stopped(model, canvas, stops(canvas, seeds, settings.candidates + 1))


def _decided(rows: Sequence[StateRow]) -> list[StateRow]:
    return [replace(row, cost={}) for row in rows]


@pytest.fixture(scope="module")
def rows(knower: tabes.Denoiser) -> tuple[StateRow, ...]:
    return measure(knower, TASK, parse_scores(CHEAP), SMALL)


def _probabilities(plain: BertForMaskedLM, **inputs: Tensor) -> Tensor:
    """(L, V), by transformers itself; the mask id is no token."""
    logits_LV = plain(**{name: value[None] for name, value in inputs.items()}).logits[0].double()
    logits_LV[:, MASK] = -math.inf
    return logits_LV.softmax(-1)


def _entropies(plain: BertForMaskedLM, **inputs: Tensor) -> Tensor:
    return -torch.special.xlogy(p_LV := _probabilities(plain, **inputs), p_LV).sum(-1)


def test_states_lie_on_the_trajectory_of_confidence(knower: tabes.Denoiser) -> None:
    settings = replace(SMALL, states=12)
    canvas = _states(knower, settings)
    left = canvas.masked_BL.sum(1)
    assert int(left.min()) >= 4 and int(left.max()) <= 15 and len(left.unique()) > 3
    for number, item in enumerate(TASK.items(12, 1)):
        steps = tabes.generate(knower, item.prompt, sampler="confidence").steps
        on_the_way = [steps[0].before, *(step.canvas for step in steps)]
        state = next(one for one in on_the_way if int(one.masked_BL.sum()) == int(left[number]))
        assert torch.equal(state.tokens_BL[0], canvas.tokens_BL[number])


@torch.no_grad()
def test_the_truth_is_what_a_loop_of_full_forwards_finds(
    knower: tabes.Denoiser, plain: BertForMaskedLM, rows: tuple[StateRow, ...]
) -> None:
    canvas = _states(knower)
    assert all(max(map(abs, row.truth)) > 1e-4 for row in rows)
    for b, row in enumerate(rows):
        tokens_L, masked = canvas.tokens_BL[b], canvas.masked_BL[b].nonzero().flatten().tolist()
        before_L, p_LV = _entropies(plain, input_ids=tokens_L), _probabilities(plain, input_ids=tokens_L)
        surest = sorted(masked, key=p_LV.amax(-1).tolist().__getitem__)[-3:]
        assert row.candidates == sorted(surest) and row.masked == len(masked)
        for i, truth in zip(row.candidates, row.truth, strict=True):
            written_L = tokens_L.clone()
            written_L[i] = p_LV[i].argmax()
            others = [j for j in masked if j != i]
            after_L = _entropies(plain, input_ids=written_L)
            assert truth == pytest.approx(float((before_L[others] - after_L[others]).sum()), abs=1e-9)


@torch.no_grad()
def test_the_relaxed_path_moves_one_embedding(knower: tabes.Denoiser, plain: BertForMaskedLM) -> None:
    canvas = _states(knower)
    scene = scene_of(knower, canvas)
    i = canvas.masked_BL[0].nonzero()[1].item()
    candidates_BL = torch.zeros_like(canvas.masked_BL)
    candidates_BL[0, i] = True
    path_G = relaxed_paths(scene, candidates_BL, TotalEntropy(), 3)[0, i]
    table_VE = plain.get_input_embeddings().weight.detach()
    soft_E = _probabilities(plain, input_ids=canvas.tokens_BL[0])[i] @ table_VE
    others_L = canvas.masked_BL[0].clone()
    others_L[i] = False
    for value, alpha in zip(path_G.tolist(), (0.0, 0.5, 1.0), strict=True):
        embeddings_LE = table_VE[canvas.tokens_BL[0]].clone()
        embeddings_LE[i] += alpha * (soft_E - embeddings_LE[i])
        expected = float(_entropies(plain, inputs_embeds=embeddings_LE)[others_L].sum())
        assert value == pytest.approx(expected, abs=1e-9)


@torch.no_grad()
def test_the_theorems_score_is_the_slope_of_the_path(knower: tabes.Denoiser) -> None:
    question = _question(scene_of(knower, _states(knower)))
    slope_N = SCORES["tis-0-exact"](question)[question.candidates_BL]
    path_BLG = relaxed_paths(question.scene, question.candidates_BL, TotalEntropy(), 501)
    path_NG = path_BLG[question.candidates_BL]
    # The one-sided difference that is exact for parabolas.
    found_N = (1.5 * path_NG[:, 0] - 2 * path_NG[:, 1] + 0.5 * path_NG[:, 2]) * 500
    assert float(slope_N.abs().min()) > 1e-4
    assert torch.allclose(found_N, slope_N, rtol=1e-3, atol=0)


def _question(scene: Scene) -> Question:
    first_BL = scene.canvas.masked_BL & (scene.canvas.masked_BL.cumsum(1) <= 2)
    return Question(scene, first_BL, first_BL, TotalEntropy())


def test_every_score_answers_and_is_charged(knower: tabes.Denoiser) -> None:
    found = measure(knower, TASK, SCORES, replace(SMALL, states=2, theory=False))
    for row in found:
        assert tuple(row.scores) == tuple(row.cost) == tuple(SCORES)
        assert all(len(values) == 3 and all(map(math.isfinite, values)) for values in row.scores.values())
        assert row.curve is None and len(row.truth) == 3
        assert row.cost["confidence"] == row.cost["neg-entropy"] == 0
        assert 0 < row.cost["tis-literal"] < row.cost["tis-half"] < row.cost["tis-half-dense"]
        assert row.cost["tis-third-probes"] < row.cost["tis-half"] < row.cost["tis-half-alone"]
        assert row.cost["tis-half-alone"] < row.cost["tis-0-exact"]
        assert row.cost["tis-half-alone"] < row.cost["gauss-alone"] < 2.01 * row.cost["tis-half-alone"]
    assert len({tuple(found[0].scores[name]) for name in SCORES if name.startswith("tis")}) >= 8


def test_cost_is_what_the_ledger_counts_per_state(knower: tabes.Denoiser) -> None:
    def two_forwards(question: Question) -> Tensor:
        canvas = question.scene.canvas
        for _ in range(2):
            everything_BL = torch.ones_like(canvas.masked_BL)
            _ = knower.predict(canvas, everything_BL).confidence_BL
        return question.scene.prediction.confidence_BL

    found = measure(knower, TASK, {"twice": two_forwards}, replace(SMALL, theory=False, batch_size=3))
    assert [row.cost["twice"] for row in found] == pytest.approx([2.0] * 4)


def test_equal_seeds_give_equal_rows_at_any_batch_size(knower: tabes.Denoiser, rows: tuple[StateRow, ...]) -> None:
    assert _decided(measure(knower, TASK, parse_scores(CHEAP), SMALL)) == _decided(rows)
    apart = measure(knower, TASK, parse_scores(CHEAP), replace(SMALL, batch_size=1))
    for one, other in zip(rows, apart, strict=True):
        assert (one.item, one.seed, one.masked, one.candidates) == (
            other.item,
            other.seed,
            other.masked,
            other.candidates,
        )
        assert one.truth == pytest.approx(other.truth, abs=1e-9)
        assert one.scores["tis-half"] == pytest.approx(other.scores["tis-half"], abs=1e-9)
    fewer = measure(knower, TASK, parse_scores(CHEAP), replace(SMALL, states=2))
    assert [row.masked for row in fewer] == [row.masked for row in rows[:2]]
    other_seed = measure(knower, TASK, parse_scores("confidence"), replace(SMALL, seed=2, theory=False))
    assert [row.truth for row in other_seed] != [row.truth for row in rows]


def test_injecting_all_changes_joint_scores_only(knower: tabes.Denoiser, rows: tuple[StateRow, ...]) -> None:
    found = measure(knower, TASK, parse_scores(CHEAP), replace(SMALL, inject="all", theory=False))
    for one, other in zip(rows, found, strict=True):
        assert (one.truth, one.scores["lookahead"]) == (other.truth, other.scores["lookahead"])
        assert one.scores["tis-half"] != other.scores["tis-half"]


def test_what_an_objective_charges_is_in_truth_and_scores(knower: tabes.Denoiser, rows: tuple[StateRow, ...]) -> None:
    settings = replace(SMALL, objective="information_gain")
    for one, other in zip(rows, measure(knower, TASK, SCORES, settings), strict=True):
        own = other.scores["neg-entropy"]
        for plain, net in ((one.truth, other.truth), *((one.scores[n], other.scores[n]) for n in ("tis-half",))):
            assert net == pytest.approx([value + charge for value, charge in zip(plain, own, strict=True)], abs=1e-9)
        assert one.curve is not None and other.curve is not None
        assert one.curve.curvature == pytest.approx(other.curve.curvature, abs=1e-6)


def test_progress_is_told_in_states(knower: tabes.Denoiser) -> None:
    told: list[float] = []
    measure(knower, TASK, parse_scores(CHEAP), replace(SMALL, batch_size=3), on_states=told.append)
    assert sum(told) == pytest.approx(4) and min(told) >= 0 and len(told) > 16


@dataclass(frozen=True)
class Ragged:
    """Items with none to five holes, of lengths that differ."""

    holes: tuple[int, ...] = (0, 1, 2, 5)
    name: ClassVar[str] = "ragged"
    metrics: ClassVar[tuple[str, ...]] = ()
    max_new_tokens: ClassVar[int] = 0
    stop: ClassVar[tuple[str, ...]] = ()

    def items(self, count: int, seed: int) -> tuple[Item, ...]:
        return tuple(Item("1234" * holes + "." * holes + "5", None) for holes in self.holes[:count])

    def score(self, item: Item, text: str) -> dict[str, float]:
        return {}


def test_items_with_fewer_than_two_holes_have_no_state(knower: tabes.Denoiser) -> None:
    told: list[float] = []
    found = measure(knower, Ragged(), parse_scores("confidence,tis-half"), SMALL, on_states=told.append)
    assert (found[0].item, found[0].masked, len(found[0].candidates)) == (2, 2, 2)
    assert [row.item for row in found] == [2, 3] and found[1].masked >= 4 and len(found[1].truth) == 3
    assert sum(told) == pytest.approx(4)
    with pytest.raises(UsageError, match="two rows"):
        measure(knower, Ragged((1, 0)), parse_scores("confidence"), replace(SMALL, states=2))


def test_padding_changes_no_truth(knower: tabes.Denoiser) -> None:
    together = measure(knower, Ragged((3, 5)), parse_scores("lookahead"), SMALL)
    for number, row in enumerate(together):
        canvas = start(knower, TASK, [Ragged((3, 5)).items(2, 0)[number]])
        left = stops(canvas, [row.seed], SMALL.candidates + 1)
        with torch.no_grad():
            scene = scene_of(knower, stopped(knower, canvas, left))
            chosen_BL = torch.zeros_like(canvas.masked_BL)
            chosen_BL[0, row.candidates] = True
            truth = exact_drops(scene, chosen_BL, TotalEntropy())[0][chosen_BL[0]].tolist()
        assert row.truth == pytest.approx(truth, abs=1e-9)


def test_a_score_that_is_not_finite_is_named(knower: tabes.Denoiser) -> None:
    def broken(question: Question) -> Tensor:
        return torch.where(question.candidates_BL, math.nan, 0.0)

    with pytest.raises(NumericsError, match="score 'broken' is not finite"):
        measure(knower, TASK, {"broken": broken}, SMALL)


def test_rows_survive_the_file(rows: tuple[StateRow, ...], tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rows.jsonl"
    write_rows(path, rows)
    assert read_states(path) == rows
    path.write_text(path.read_text() + '{"task": "sudoku"}\n')
    with pytest.raises(UsageError, match="line 5"):
        read_states(path)


def test_scores_by_name() -> None:
    assert tuple(parse_scores(None)) == tuple(SCORES)
    assert tuple(parse_scores(" tis-0, confidence,")) == ("tis-0", "confidence")
    with pytest.raises(UnknownNameError, match="tis-half"):
        parse_scores("tis-hal")
    for text, words in ((",", "no score"), ("tis-0,tis-0", "listed twice")):
        with pytest.raises(UsageError, match=words):
            parse_scores(text)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Settings(states=0), "states is 0"),
        (lambda: Settings(candidates=1), "candidates is 1"),
        (lambda: Settings(points=2), "points is 2"),
        (lambda: Settings(batch_size=0), "batch_size is 0"),
        (lambda: Settings(inject="some"), "inject is 'some'"),
        (lambda: Settings(objective="entropi"), "entropy"),
    ],
)
def test_settings_are_checked_at_once(make: Callable[[], Settings], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
