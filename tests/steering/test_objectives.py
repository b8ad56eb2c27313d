"""Objectives: what is left, which part of it is a row's own, and what writing costs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tabes.errors import UnknownNameError, UsageError
from tabes.presets import sampler
from tabes.steering import (
    OBJECTIVES,
    ClassWeighted,
    Importance,
    InformationGain,
    Lookahead,
    MeanOverBlocks,
    Objective,
    TotalEntropy,
    Verifier,
    as_objective,
)
from tests.steering.analytic import Mixer, coupled, denoiser, mixer
from tests.steering.scenes import canvas_of, filled, ragged, rows, scene_of, tiny
from tests.tiny import V

CLASSES = ClassWeighted(tuple(p % 3 for p in range(12)), (1.0, 0.0, 2.5))


def twos(p_BLV: Tensor) -> Tensor:
    """How far the expected number of tokens 2 is from three."""
    return (p_BLV[..., 2].sum(1) - 3) ** 2


def entropies(canvas: Any, *, b: int) -> list[tuple[int, float]]:
    """(row, entropy) of every mask."""
    entropy_L = scene_of(tiny("bert"), canvas).prediction.entropy_BL[b].tolist()
    return [(int(row), entropy_L[int(row)]) for row in canvas.masked_BL[b].nonzero()]


def test_total_entropy_and_information_gain() -> None:
    canvas = ragged()
    prediction = scene_of(tiny("bert"), canvas).prediction
    for objective in (TotalEntropy(), InformationGain()):
        expected = [sum(entropy for _, entropy in entropies(canvas, b=b)) for b in range(2)]
        assert objective.value(canvas, prediction).tolist() == pytest.approx(expected)
    assert not TotalEntropy().charge(prediction).any()
    assert InformationGain().charge(prediction).equal(prediction.entropy_BL)


def test_the_mean_over_blocks() -> None:
    canvas = ragged(block_length=3)
    found_B = MeanOverBlocks().value(canvas, scene_of(tiny("bert"), canvas).prediction)
    for b in range(2):
        blocks: dict[int, list[float]] = {}
        for row, entropy in entropies(canvas, b=b):
            blocks.setdefault(int(canvas.block_BL[b, row]), []).append(entropy)
        assert len(blocks) > 2
        assert float(found_B[b]) == pytest.approx(sum(sum(values) / len(values) for values in blocks.values()))


def test_weights_by_the_class_of_the_position() -> None:
    canvas = ragged()
    found_B = CLASSES.value(canvas, scene_of(tiny("bert"), canvas).prediction)
    for b in range(2):
        expected = [
            (1.0, 0.0, 2.5)[int(canvas.positions_BL[b, row]) % 3] * entropy for row, entropy in entropies(canvas, b=b)
        ]
        assert float(found_B[b]) == pytest.approx(sum(expected))


def test_a_verifier_sees_distributions_and_certain_tokens() -> None:
    seen: list[Tensor] = []

    def look(p_BLV: Tensor) -> Tensor:
        seen.append(p_BLV)
        return p_BLV.sum((1, 2))

    canvas = ragged()
    prediction = scene_of(tiny("bert"), canvas).prediction
    predicted_BL = canvas.masked_BL & (canvas.positions_BL > 3)
    Verifier(look).value(canvas, prediction.at(predicted_BL))
    (p_BLV,) = seen
    torch.testing.assert_close(p_BLV.sum(-1), torch.ones(2, 12, dtype=torch.float64))
    assert not p_BLV[predicted_BL][:, canvas.mask_id].any()
    torch.testing.assert_close(p_BLV[predicted_BL], prediction.at(predicted_BL).logits_NV().softmax(-1))
    unknown_NV = p_BLV[canvas.masked_BL & ~predicted_BL]
    torch.testing.assert_close(unknown_NV, torch.full_like(unknown_NV, 1 / V))
    given_BL = ~canvas.masked_BL
    assert p_BLV[given_BL].argmax(-1).equal(canvas.tokens_BL[given_BL])
    assert p_BLV[given_BL].amax() == 1


def test_entropy_may_be_added_to_a_verifier() -> None:
    canvas = ragged()
    prediction = scene_of(tiny("bert"), canvas).prediction
    both_B = Verifier(twos, entropy_weight=0.3).value(canvas, prediction)
    torch.testing.assert_close(
        both_B, Verifier(twos).value(canvas, prediction) + 0.3 * TotalEntropy().value(canvas, prediction)
    )


OBJECTIVES_TRIED: list[Objective] = [
    TotalEntropy(),
    InformationGain(),
    MeanOverBlocks(),
    CLASSES,
    Verifier(lambda p_BLV: 0 * p_BLV.sum((1, 2)), entropy_weight=0.7),
]


@pytest.mark.parametrize("objective", OBJECTIVES_TRIED, ids=lambda objective: type(objective).__name__)
def test_own_is_exactly_what_goes_away(objective: Objective) -> None:
    """Where rows do not move each other, writing one leaves the rest as it was: every drop is 0."""
    model = denoiser(coupled({}, 8))
    canvas = canvas_of([[5, 5, 0, 5, 5, 5, 1, 5], [2, 5, 5, 5, 5, 3, 5, 5]], 5, block_length=3)
    drops_BL = Lookahead(objective).drops(scene_of(model, canvas), canvas.masked_BL)
    assert drops_BL.abs().max() < 1e-7
    assert objective.value(canvas, scene_of(model, canvas).prediction).min() > 0.1


@pytest.mark.parametrize(
    "objective", [*OBJECTIVES_TRIED, Verifier(twos)], ids=lambda objective: type(objective).__name__
)
def test_a_drop_is_the_change_of_the_value_less_what_goes_away(objective: Objective) -> None:
    network = mixer(8, 6, 4, seed=2, coupling=0.3)
    model, canvas = denoiser(network), canvas_of([[5, 5, 0, 5, 5, 5, 1, 5]], 5, block_length=3)
    scene = scene_of(model, canvas)
    drops_BL = Lookahead(objective).drops(scene, canvas.masked_BL)
    before = objective.value(canvas, scene.prediction)
    own_BL = objective.own(canvas, scene.prediction)
    for row in canvas.masked_BL[0].nonzero().flatten().tolist():
        written = canvas.with_tokens(torch.where(rows(canvas, [row]), scene.tokens_BL, canvas.tokens_BL))
        after = objective.value(written, scene_of(model, written).prediction)
        assert float(drops_BL[0, row]) == pytest.approx(float(before - own_BL[0, row] - after), abs=1e-7)


def slope(objective: Objective, network: Mixer, canvas: Any, row: int, direction_E: Tensor) -> float:
    def value(step: float) -> float:
        embeddings_BLE = network.embed(canvas.tokens_BL)
        embeddings_BLE[0, row] += step * direction_E
        prediction = denoiser(network).replay(
            denoiser(network).predict(canvas, canvas.masked_BL, remember=True).memory,
            canvas.masked_BL,
            embeddings_BLE=embeddings_BLE,
        )
        return float(objective.value(canvas, prediction))

    return (value(1e-5) - value(-1e-5)) / 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("objective", [TotalEntropy(), MeanOverBlocks(), CLASSES], ids=repr)
def test_values_are_as_precise_as_entropies(objective: Any, dtype: torch.dtype) -> None:
    canvas = ragged(block_length=3)
    prediction = scene_of(tiny("bert", dtype), canvas).prediction
    assert prediction.entropy_BL.dtype == dtype
    assert objective.value(canvas, prediction).dtype == objective.own(canvas, prediction).dtype == dtype


def test_a_mean_in_float64_is_exact_to_float64() -> None:
    canvas = ragged(block_length=3)
    prediction = scene_of(tiny("bert"), canvas).prediction
    expected_B = [
        sum(
            float(prediction.entropy_BL[b, chosen_L].mean())
            for block in range(4)
            if bool((chosen_L := canvas.masked_BL[b] & (canvas.block_BL[b] == block)).any())
        )
        for b in range(2)
    ]
    assert MeanOverBlocks().value(canvas, prediction).tolist() == pytest.approx(expected_B, rel=1e-13)


@pytest.mark.parametrize(
    "objective",
    [MeanOverBlocks(), CLASSES, Verifier(twos), Verifier(twos, 0.5)],
    ids=("blocks", "classes", "verifier", "mixed"),
)
def test_gradients_pass_through_every_objective(objective: Objective) -> None:
    network = mixer(7, 6, 4, seed=4, coupling=0.3)
    canvas = canvas_of([[5, 5, 0, 5, 5, 1, 5]], 5, block_length=2)
    scene = scene_of(denoiser(network), canvas)
    drops_BL = Importance(0.0, objective=objective).drops(scene, canvas.masked_BL)
    for row in (0, 3, 6):
        p_V = scene.prediction.at(rows(canvas, [row])).logits_NV()[0].softmax(-1)
        delta_E = p_V @ network.table_VE - network.table_VE[5]
        assert float(drops_BL[0, row]) == pytest.approx(-slope(objective, network, canvas, row, delta_E), abs=1e-8)


def test_following_a_verifier_does_better_on_it() -> None:
    """Decoding by a constraint of one's own breaks it less than confidence does, over many canvases."""
    ends: dict[str, float] = {"confidence": 0.0, "lookahead": 0.0}
    for seed in range(8):
        model, canvas = denoiser(mixer(8, 6, 4, seed=seed, coupling=0.6)), canvas_of([[5] * 8], 5)
        for name in ends:
            choice = {"objective": Verifier(twos), "candidates": 8} if name == "lookahead" else {}
            tokens_BL, _ = filled(model, canvas, sampler(name, **choice))
            ends[name] += float(twos(torch.nn.functional.one_hot(tokens_BL, 6).double()))
    assert ends["lookahead"] < ends["confidence"]


def test_objectives_by_name() -> None:
    assert as_objective("entropy") == TotalEntropy()
    assert as_objective(CLASSES) is CLASSES
    assert OBJECTIVES.names() == ("block_mean", "entropy", "information_gain")
    with pytest.raises(UnknownNameError, match="information_gain"):
        as_objective("information_gains")


def test_classes_have_to_fit() -> None:
    for classes, by_class in (((), (1.0,)), ((0, 2), (1.0, 1.0)), ((-1,), (1.0,))):
        with pytest.raises(UsageError, match="one for each position"):
            ClassWeighted(classes, by_class)
    canvas = ragged()
    with pytest.raises(UsageError, match="3 positions have a class"):
        ClassWeighted((0, 0, 0), (1.0,)).value(canvas, scene_of(tiny("bert"), canvas).prediction)
