"""Importance against central finite differences of functions that share no code with it, in float64."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from math import sqrt

import pytest
import torch
from torch import Tensor

from tabes.errors import UsageError
from tabes.steering import Importance, MeanOverBlocks, Probes
from tests.steering.exact import Exact
from tests.steering.scenes import MASK, alone, exactly, holes, precise, ragged, rows, scene_of, tiny
from tests.tiny import FAMILIES, REPLAYING, Reference

NAMES = ["llama", "qwen2-grouped", "bert"]
MASKED, CANDIDATES = (1, 2, 5, 6, 8), (1, 5, 6)
CANVAS = holes(9, MASKED)
POINTS = {0.0: (0.0,), 0.25: (0.25,), 0.5: (0.5,), 1.0: (1.0,), "gauss": (0.5 - sqrt(3) / 6, 0.5 + sqrt(3) / 6)}
STEP = 1e-3


@cache
def exact(name: str) -> Exact:
    return Exact(precise(name), CANVAS.tokens_BL[0])


def slope(name: str, row: int, point: float, injection: str, self_term: str, backward: str) -> float:
    """How fast the probes' entropy falls as `row` goes on towards its soft write; errors are of fourth order."""
    model = exact(name)
    delta_LE = model.deltas()
    probes = [j for j in MASKED if self_term == "include" or j not in (CANDIDATES if self_term == "avoid" else (row,))]
    injected = CANDIDATES if injection == "joint" else (row,)
    active = sorted({*injected, *probes}) if backward == "replay" else None

    def left(step: float) -> Tensor:
        embeddings_LE = model.embeddings_LE.clone()
        for i in injected:
            embeddings_LE[i] += point * delta_LE[i]
        embeddings_LE[row] += step * delta_LE[row]
        return model.entropies(embeddings_LE, active)[probes].sum()

    return float(8 * (left(-STEP) - left(STEP)) - (left(-2 * STEP) - left(2 * STEP))) / (12 * STEP)


@pytest.mark.parametrize("backward", ["replay", "dense"])
@pytest.mark.parametrize("injection", ["joint", "alone"])
@pytest.mark.parametrize("self_term", ["include", "avoid", "exclude"])
@pytest.mark.parametrize("name", NAMES)
def test_importance_is_a_finite_difference(name: str, self_term: str, injection: str, backward: str) -> None:
    scene, found = scene_of(exactly(name), CANVAS), []
    for expansion, points in POINTS.items():
        importance = Importance(expansion, injection, self_term, backward)  # type: ignore[arg-type]
        drops_L = importance.drops(scene, rows(CANVAS, CANDIDATES))[0]
        for i in CANDIDATES:
            expected = [slope(name, i, point, injection, self_term, backward) for point in points]
            assert float(drops_L[i]) == pytest.approx(sum(expected) / len(points), rel=1e-6, abs=1e-7)
        assert not drops_L[[i for i in range(9) if i not in CANDIDATES]].any()
        found.append(drops_L[list(CANDIDATES)])
    assert all((a - b).abs().max() > 1e-3 for a, b in pairwise(found)), "the point is not used"


def test_every_choice_is_another_number() -> None:
    """Otherwise the finite differences above would not tell them apart."""
    scene = scene_of(tiny("llama"), CANVAS)
    choices = product(["joint", "alone"], ["include", "avoid", "exclude"], ["replay", "dense"])
    drops = [Importance(0.5, *choice).drops(scene, rows(CANVAS, CANDIDATES)) for choice in choices]  # type: ignore[arg-type]
    for n, one in enumerate(drops):
        assert all((one - other).abs().max() > 1e-4 for other in drops[:n])


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert", "modernbert", "deberta-v2"])
def test_at_the_mask_the_relaxed_state_is_the_step(name: str) -> None:
    """a = 0 takes no second forward: the replay of the masks gives the logits the step has already."""
    scene = scene_of(tiny(name), ragged())
    embeddings_BLE = tiny(name).network.embed(scene.canvas.tokens_BL)
    again = tiny(name).replay(scene.memory, scene.canvas.masked_BL, embeddings_BLE=embeddings_BLE)
    tolerance = FAMILIES[name].tolerance
    torch.testing.assert_close(again.logits_NV(), scene.prediction.logits_NV(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", ["llama", "qwen2-grouped", "bert", "mpnet"])
@pytest.mark.parametrize("self_term", ["include", "exclude"])
@pytest.mark.parametrize("injection", ["joint", "alone"])
def test_a_replay_of_every_row_is_the_dense_reference(name: str, self_term: str, injection: str) -> None:
    canvas = holes(8, range(8))
    scene, candidates_BL = scene_of(tiny(name), canvas), rows(canvas, (0, 3, 4, 7))
    sparse, dense = (
        Importance(0.5, injection, self_term, backward).drops(scene, candidates_BL)  # type: ignore[arg-type]
        for backward in ("replay", "dense")
    )
    torch.testing.assert_close(sparse, dense, rtol=0, atol=1e-11)
    assert sparse.abs().max() > 1e-2
    given = scene_of(tiny(name), CANVAS)
    gap = Importance(0.5).drops(given, rows(CANVAS, CANDIDATES))
    gap = gap - Importance(0.5, backward="dense").drops(given, rows(CANVAS, CANDIDATES))
    assert gap.abs().max() > 1e-4, "with given rows the replay is an approximation, so the above is no accident"


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_at_the_mask_nothing_is_injected(name: str) -> None:
    scene, candidates_BL = scene_of(tiny(name), CANVAS), rows(CANVAS, CANDIDATES)
    for self_term, backward in product(("include", "exclude"), ("replay", "dense")):
        joint, each = (
            Importance(0.0, injection, self_term, backward).drops(scene, candidates_BL)  # type: ignore[arg-type]
            for injection in ("joint", "alone")
        )
        torch.testing.assert_close(joint, each, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["llama", "bert", "modernbert"])
def test_the_papers_active_set_has_no_gradient(name: str) -> None:
    """Only candidates active: no other mask's entropy depends on a candidate, to the last bit."""
    family, tokens_L = REPLAYING[name], CANVAS.tokens_BL[0]
    reference = Reference(family, tokens_L)
    others = [j for j in MASKED if j not in CANDIDATES]
    embeddings_LE = reference.embeddings_LE.clone().requires_grad_()
    hidden_Ld = reference.detached(list(CANDIDATES), embeddings_LE)
    (literal_LE,) = torch.autograd.grad(hidden_Ld[others].square().sum(), embeddings_LE)
    assert not literal_LE[list(CANDIDATES)].any()
    hidden_Ld = reference.detached([*CANDIDATES, *others], embeddings_LE)
    (meant_LE,) = torch.autograd.grad(hidden_Ld[others].square().sum(), embeddings_LE)
    assert meant_LE[list(CANDIDATES)].abs().amax(-1).min() > 1e-3


@pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
@pytest.mark.parametrize("backward", ["replay", "dense"])
def test_a_candidate_that_is_the_only_probe_is_all_self_term(backward: str) -> None:
    scene, one_BL = scene_of(tiny("llama"), CANVAS), rows(CANVAS, (5,))
    probes = Probes("candidates")
    with_self = Importance(0.5, "joint", "include", backward, probes)  # type: ignore[arg-type]
    assert with_self.drops(scene, one_BL).abs().max() > 1e-3
    for self_term in ("avoid", "exclude"):
        without = Importance(0.5, "joint", self_term, backward, probes)  # type: ignore[arg-type]
        assert not without.drops(scene, one_BL).any()


@pytest.mark.parametrize("objective", [None, MeanOverBlocks()])
@pytest.mark.parametrize("self_term", ["include", "avoid", "exclude"])
def test_a_batch_row_is_the_row_alone(self_term: str, objective: MeanOverBlocks | None) -> None:
    chosen = {} if objective is None else {"objective": objective}
    importance = Importance("gauss", "alone", self_term, **chosen)  # type: ignore[arg-type]
    canvas = ragged(block_length=3)
    candidates_BL = canvas.masked_BL & (canvas.positions_BL % 2 == 1)
    drops_BL = importance.drops(scene_of(tiny("qwen2-grouped"), canvas), candidates_BL)
    for b in range(2):
        content_L = ~canvas.padding_BL[b]
        single = importance.drops(
            scene_of(tiny("qwen2-grouped"), alone(canvas, b)), candidates_BL[b : b + 1, content_L]
        )
        torch.testing.assert_close(drops_BL[b, content_L], single[0], rtol=0, atol=1e-11)
        assert single.abs().max() > 1e-3


def test_a_canvas_without_candidates_is_no_work_and_no_error() -> None:
    model = tiny("llama")
    full = CANVAS.with_tokens(torch.where(CANVAS.tokens_BL == MASK, 9, CANVAS.tokens_BL))
    for canvas in (CANVAS, full):
        nobody_BL = torch.zeros_like(canvas.padding_BL)
        assert not Importance(0.5).drops(scene_of(model, canvas), nobody_BL).any()
    before = model.ledger.backward_calls
    Importance(0.5).drops(scene_of(model, full), rows(full))
    assert model.ledger.backward_calls == before


@pytest.mark.parametrize("choice", [{"injection": "alone"}, {"self_term": "exclude"}])
def test_copies_without_candidates_are_no_error_either(choice: dict[str, str]) -> None:
    scene = scene_of(tiny("llama"), CANVAS)
    assert not Importance(0.5, **choice).drops(scene, rows(CANVAS)).any()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [
        {"expansion": 1.5},
        {"expansion": "midpoint"},
        {"expansion": -0.1},
        {"expansion": float("nan")},
        {"injection": "both"},
        {"self_term": "no"},
        {"backward": "sparse"},
    ],
)
def test_wrong_choices_are_refused_with_their_value(wrong: dict[str, object]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(UsageError, match=f"{name} is {value!r}"):
        Importance(**wrong)  # type: ignore[arg-type]
