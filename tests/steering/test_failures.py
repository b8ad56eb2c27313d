"""Where steering fails or has nothing to say: confidence decides, other batch rows go on, and it is counted."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tabes import Canvas
from tabes.presets import sampler
from tabes.rankings.boe import Boe
from tabes.steering import Verifier
from tabes.steering.ranking import SteeringWarning
from tests.steering.analytic import denoiser, mixer
from tests.steering.scenes import alone, canvas_of, filled, holes, order, scene_of, scores, steered, tiny, view_of

POISON = 3


def poisoned(how: str) -> tuple[Any, Canvas]:
    """The middle batch row has NaN: in the gradient of its replays, or in their logits."""
    network = replace(mixer(7, 8, 4, seed=5, coupling=0.5), poison=POISON, poisoned=how)
    return denoiser(network), canvas_of([[0, 7, 7, 7, 7, 1, 7], [POISON, 7, 7, 7, 7, 1, 7], [2, 7, 7, 1, 7, 7, 7]], 7)


@pytest.mark.parametrize("how", ["gradient", "logits"])
@pytest.mark.parametrize("choice", [{}, {"injection": "alone"}, {"backward": "dense"}, {"gate": True, "mix": 1.0}])
def test_a_broken_gradient_is_decoded_by_confidence_and_counted(how: str, choice: dict[str, Any]) -> None:
    model, canvas = poisoned(how)
    with pytest.warns(SteeringWarning, match="NaN or infinite scores in step"):
        tokens_BL, steps = filled(model, canvas, steered("boe", **choice))
    assert tokens_BL[1].equal(filled(model, canvas, sampler("confidence"))[0][1])
    for b in (0, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            one_L, one = filled(model, alone(canvas, b), steered("boe", **choice))
        assert tokens_BL[b].equal(one_L[0])
        assert sum(step.cost.fallbacks for step in one) == 0
        assert [step.positions[b] for step in steps if step.positions[b]] == [step.positions[0] for step in one]
    # Five masks each; the last has no rival and is not steered.
    assert [step.cost.fallbacks for step in steps] == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("how", ["gradient", "logits"])
@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("lookahead", {}),
        ("lookahead", {"horizon": 3}),
        ("lookahead", {"candidates": 2, "gate": True}),
        ("lookahead", {"probes": "block"}),
        ("boe-verify", {"verify": 2}),
    ],
)
def test_so_is_a_broken_replay(name: str, choice: dict[str, Any], how: str) -> None:
    model, canvas = poisoned(how)
    takes_gradients = name == "boe-verify"
    expected = [1, 1, 1, 1, 0] if how == "logits" or takes_gradients else [0, 0, 0, 0, 0]
    rule = steered(name, **choice)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokens_BL, steps = filled(model, canvas, rule)
    assert [one.category for one in caught] == [SteeringWarning] * sum(expected)
    assert [step.cost.fallbacks for step in steps] == expected
    if any(expected):
        assert tokens_BL[1].equal(filled(model, canvas, sampler("confidence"))[0][1])
    for b in (0, 2):
        one_L, one = filled(model, alone(canvas, b), rule)
        assert tokens_BL[b].equal(one_L[0])
        assert [step.positions[b] for step in steps if step.positions[b]] == [step.positions[0] for step in one]


@pytest.mark.parametrize("name", ["boe", "boe-dense", "boe-verify", "lookahead"])
def test_an_objective_that_gives_nan_is_decoded_by_confidence(name: str) -> None:
    def nothing(p_BLV: Tensor) -> Tensor:
        return p_BLV.sum((1, 2)) * torch.nan

    canvas = holes(7, range(2, 7))
    with pytest.warns(SteeringWarning):
        tokens_BL, steps = filled(tiny("llama"), canvas, steered(name, objective=Verifier(nothing)))
    assert tokens_BL.equal(filled(tiny("llama"), canvas, sampler("confidence"))[0])
    assert sum(step.cost.fallbacks for step in steps) == 4


def test_avoid_without_probes_left_says_nothing_of_any_row() -> None:
    canvas, ranking = holes(7, range(2, 7)), Boe(self_term="avoid")
    drops_BL = ranking.drops(scene_of(tiny("llama"), canvas), canvas.masked_BL, view_of(tiny("llama"), canvas))
    assert not drops_BL.any()
    tokens_BL, steps = filled(tiny("llama"), canvas, steered("boe", self_term="avoid"))
    assert 5 not in tokens_BL
    assert sum(step.cost.fallbacks for step in steps) == 0


def test_without_any_signal_confidence_decides() -> None:
    canvas = holes(9, range(2, 9))
    by_confidence = order(scene_of(tiny("llama"), canvas).prediction.confidence_BL, canvas)
    assert order(scores(Boe(self_term="avoid"), tiny("llama"), canvas), canvas) == by_confidence
