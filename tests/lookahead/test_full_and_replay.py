"""A path tried by a replay against a path tried by a forward, and both against plain arithmetic."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch

import tabes
from tabes.budgets import Even
from tabes.denoiser import Denoiser
from tabes.presets import sampler
from tabes.rankings import InfoGain, Lookum
from tabes.sampling import PartSampler
from tabes.steering import Scene
from tabes.steering.foresight import Scope, Trial, Walk
from tabes.steering.paths import Paths, nearest
from tabes.writers import Argmax
from tests.steering.analytic import denoiser, mixer
from tests.steering.scenes import alone, canvas_of, filled, holes, opened, precise, ragged, rows, scene_of, tiny

MASK = 5
ENTROPY = frozenset({"entropy"})
CLOSE = 1e-10


@cache
def one_layer(name: str) -> Denoiser:
    return opened(precise(name, num_hidden_layers=1))


def some_paths(scene: Scene, *sets: tuple[int, ...]) -> Paths:
    return Paths.of(torch.stack([rows(scene.canvas, one) for one in sets], 1))


@pytest.mark.parametrize("scope", ["masks", "block", "all"])
def test_a_path_is_what_the_definition_says(scope: Scope) -> None:
    """Written out for one canvas: the tokens in, one forward, the mean over what is watched."""
    model, canvas = tiny("bert"), canvas_of([[7, MASK, 9, MASK, MASK, 30, MASK, MASK]], block_length=4)
    scene = scene_of(model, canvas)
    paths = some_paths(scene, (1,), (1, 3), (4,))
    walk = Trial(scope, "entropy", ENTROPY).full(scene, paths, paths.valid_BK)
    for n, one in enumerate([(1,), (1, 3), (4,)]):
        tokens_BL = canvas.tokens_BL.clone()
        for row in one:
            tokens_BL[0, row] = scene.tokens_BL[0, row]
        left = [row for row in (1, 3, 4, 6, 7) if row not in one]
        watched = {"masks": left, "block": [r for r in left if r < 5], "all": [1, 3, 4, 6, 7]}[scope]
        with torch.no_grad():
            after = model.predict(canvas.with_tokens(tokens_BL), rows(canvas, watched))
        assert float(walk.mean_N[n]) == pytest.approx(float(after.entropy_BL[0, watched].mean()), abs=CLOSE)
        assert walk.canvas.tokens_BL[n].equal(tokens_BL[0])


@pytest.mark.parametrize("scope", ["masks", "all"])
@pytest.mark.parametrize("statistic", ["entropy", "confidence"])
@pytest.mark.parametrize("name", ["llama", "bert"])
def test_replay_is_full_in_one_layer(name: str, statistic: str, scope: Scope) -> None:
    """There the keys and values of given rows depend on nothing but their own token."""
    scene = scene_of(one_layer(name), holes(9, (0, 2, 3, 6, 8)))
    paths = some_paths(scene, (0,), (2, 6), (3, 8, 0))
    trial = Trial(scope, statistic, frozenset({statistic}))  # type: ignore[arg-type]
    full = trial.full(scene, paths, paths.valid_BK).mean_N
    replayed = trial.replayed(scene, paths, paths.valid_BK, False).mean_N
    assert replayed.tolist() == pytest.approx(full.tolist(), abs=CLOSE)
    assert float(full.std()) > 1e-3


def test_replay_is_full_where_everything_is_masked() -> None:
    scene = scene_of(opened(precise("llama", num_hidden_layers=3)), holes(6, range(6)))
    paths = nearest(scene.canvas.open_BL, scene.prediction.confidence_BL, torch.tensor([2]), 3)
    trial = Trial("masks", "entropy", ENTROPY)
    full, replayed = (walk.mean_N.tolist() for walk in both(trial, scene, paths))
    assert replayed == pytest.approx(full, abs=CLOSE)


def test_replay_differs_with_depth_and_given_rows() -> None:
    """So the agreement above is no accident."""
    scene = scene_of(opened(precise("llama", num_hidden_layers=3)), holes(7, (0, 2, 3, 6)))
    paths = some_paths(scene, (0,), (2,))
    full, replayed = (walk.mean_N for walk in both(Trial("masks", "entropy", ENTROPY), scene, paths))
    assert float((full - replayed).abs().min()) > 1e-6


def both(trial: Trial, scene: Scene, paths: Paths) -> tuple[Walk, Walk]:
    return trial.full(scene, paths, paths.valid_BK), trial.replayed(scene, paths, paths.valid_BK, False)


@pytest.mark.parametrize("timed", [False, True])
def test_only_batch_rows_with_a_choice_are_replayed(timed: bool) -> None:
    """Each from its own memory, wherever it stands in the batch."""
    model = denoiser(replace(mixer(10, 8, 5, seed=3, coupling=0.4), timed=timed))
    tokens = [[1, 2, *[7] * 8], [3, *[7] * 9], [5, 4, *[7] * 8]]
    canvas = canvas_of(tokens, mask_id=7)
    scene = replace(scene_of(model, canvas), next_time_B=torch.tensor([0.5, 0.4, 0.9]) if timed else None)
    paths = nearest(canvas.open_BL, scene.prediction.confidence_BL, torch.tensor([2, 2, 2]), 3)
    trial, some_BK = Trial("masks", "entropy", ENTROPY), paths.valid_BK & torch.tensor([[False], [True], [True]])
    with torch.no_grad():
        every = trial.replayed(scene, paths, paths.valid_BK, False)
        some = trial.replayed(scene, paths, some_BK, False)
    assert some.batch_N.unique().tolist() == [1, 2]
    assert some.mean_N.tolist() == pytest.approx(every.mean_N[every.batch_N > 0].tolist(), abs=CLOSE)
    assert len(some.mean_N.round(decimals=6).unique()) == 6


@pytest.mark.parametrize("ranking", [Lookum(paths=3), Lookum(scope="all"), InfoGain(position_temperature=1.0)])
@pytest.mark.parametrize("block_length", [None, 4])
def test_decodings_agree_in_one_layer(ranking: Lookum | InfoGain, block_length: int | None) -> None:
    model, canvas = one_layer("llama"), ragged(9, block_length=block_length)
    full_BL, replayed_BL = (
        filled(model, canvas, PartSampler(replace(ranking, evaluate=how), Even(num_steps=5), Argmax()))[0]
        for how in ("full", "replay")
    )
    confident_BL = filled(model, canvas, sampler("confidence", num_steps=5))[0]
    assert full_BL.equal(replayed_BL)
    assert not full_BL.equal(confident_BL), "nothing was chosen"


def test_on_a_trained_model_replay_ranks_paths_almost_as_forwards_do() -> None:
    """The bundled Sudoku model: 0.9 on average; the best of eight is rarely far down."""
    model = tabes.load("sudoku")
    puzzle = "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"
    found = []
    for step in tabes.generate(model, puzzle, sampler="confidence").steps[:40:8]:
        scene = scene_of(model, step.before)
        with torch.no_grad():
            paths = nearest(step.before.open_BL, scene.prediction.confidence_BL, torch.tensor([1]), 8)
            means = [walk.mean_N for walk in both(Trial("masks", "entropy", ENTROPY), scene, paths)]
        ranks = torch.stack([mean_N.argsort().argsort().double() for mean_N in means])
        found.append(float(torch.corrcoef(ranks)[0, 1]))
    assert sum(found) / len(found) > 0.8


@pytest.mark.parametrize("evaluate", ["full", "replay"])
@pytest.mark.parametrize("name", ["lookum", "info-gain"])
def test_a_row_of_a_batch_is_decoded_as_alone(name: str, evaluate: str) -> None:
    model, canvas = tiny("llama"), ragged(9)
    rule = sampler(name, num_steps=4, evaluate=evaluate)
    tokens_BL = filled(model, canvas, rule, seed=3)[0]
    for row in range(2):
        own_BL = filled(model, alone(canvas, row), rule, seed=3 + row)[0]
        assert own_BL[0].equal(tokens_BL[row][~canvas.padding_BL[row]])
