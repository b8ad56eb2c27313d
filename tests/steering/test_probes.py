"""Probes: whose entropy is watched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tabes.errors import UsageError
from tabes.presets import sampler
from tabes.rankings.boe import Boe
from tabes.steering import Importance, NoSignalWarning, Probes
from tests.steering.scenes import canvas_of, holes, proposal_of, ragged, rows, scene_of, tiny, view_of


def test_all_masks_or_those_of_the_block() -> None:
    canvas = ragged(block_length=4)
    scene, candidates_BL = scene_of(tiny("bert"), canvas), rows(canvas, [5], [5])
    assert Probes().chosen(canvas, scene.prediction, candidates_BL).equal(canvas.masked_BL)
    assert Probes("block").chosen(canvas, scene.prediction, candidates_BL).equal(canvas.open_BL)
    assert not canvas.masked_BL.equal(canvas.open_BL)


@pytest.mark.parametrize("count", [1, 3, 99])
def test_the_most_uncertain_of_every_batch_row(count: int) -> None:
    canvas = ragged()
    scene = scene_of(tiny("bert"), canvas)
    chosen_BL = Probes("uncertain", count).chosen(canvas, scene.prediction, rows(canvas, [5], [5]))
    assert not (chosen_BL & ~canvas.masked_BL).any()
    for b in range(2):
        entropy_L, chosen_L = scene.prediction.entropy_BL[b], chosen_BL[b]
        assert int(chosen_L.sum()) == min(count, int(canvas.masked_BL[b].sum()))
        rest_L = canvas.masked_BL[b] & ~chosen_L
        assert not rest_L.any() or entropy_L[chosen_L].min() >= entropy_L[rest_L].max()


@pytest.mark.parametrize(("share", "counts"), [(1e-6, [1, 1]), (1 / 3, [3, 3]), (0.5, [4, 4]), (1.0, [7, 8])])
def test_a_share_is_of_every_batch_rows_own_masks(share: float, counts: list[int]) -> None:
    canvas = ragged()
    scene, nobody_BL = scene_of(tiny("bert"), canvas), torch.zeros_like(canvas.padding_BL)
    assert canvas.masked_BL.sum(1).tolist() == [7, 8]
    shared = Probes("uncertain", share=share)
    assert shared.most_B(canvas).tolist() == counts
    for b, count in enumerate(counts):
        counted_BL = Probes("uncertain", count).chosen(canvas, scene.prediction, nobody_BL)
        assert shared.chosen(canvas, scene.prediction, nobody_BL)[b].equal(counted_BL[b])


def test_a_share_reaches_the_ranking() -> None:
    canvas = ragged()
    scene = scene_of(tiny("bert"), canvas)
    found_BL = Boe(probes="uncertain", probe_share=0.5).drops(scene, canvas.masked_BL, view_of(tiny("bert"), canvas))
    expected_BL = Importance(probes=Probes("uncertain", 4)).drops(scene, canvas.masked_BL)
    torch.testing.assert_close(found_BL, expected_BL)


def test_uncertain_probes_of_later_blocks_are_seen() -> None:
    """For which the step has to read rows it may not write yet."""
    canvas = holes(9, range(1, 9))
    canvas = canvas_of(canvas.tokens_BL.tolist(), block_length=2)
    entropy_L = scene_of(tiny("llama"), canvas).prediction.entropy_BL[0]
    watched = entropy_L.argsort(descending=True)[:3]
    assert bool((watched > 2).any()), "not the case this test is about"
    with torch.no_grad():
        ranking, view = Boe(probes="uncertain", probe_count=3), view_of(tiny("llama"), canvas)
        prediction = view.predict(ranking.rows(view) | canvas.open_BL, remember=True)
        found_BL, _ = ranking.rank(view, prediction, proposal_of(prediction), None)
    scene = scene_of(tiny("llama"), canvas)
    drops_BL = Importance(probes=Probes("uncertain", 3)).drops(scene, canvas.open_BL)
    assert found_BL[canvas.open_BL].tolist() == pytest.approx(drops_BL[canvas.open_BL].tolist(), abs=1e-5)


def test_the_paper_to_the_letter_warns() -> None:
    with pytest.warns(NoSignalWarning, match="nothing about any other row"):
        sampler("boe-literal")
    with pytest.warns(NoSignalWarning):
        Boe(probes="candidates")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rule": "all"}, "rule is 'all'"),
        ({"rule": "uncertain"}, "'uncertain' takes one of them"),
        ({"rule": "uncertain", "count": 0}, "count is 0"),
        ({"rule": "uncertain", "share": 0.0}, "share is 0.0"),
        ({"rule": "uncertain", "share": 1.1}, "share is 1.1"),
        ({"rule": "uncertain", "count": 3, "share": 0.5}, "probe_count=3 and probe_share=0.5"),
        ({"rule": "masked", "count": 3}, "no other takes any"),
        ({"rule": "masked", "share": 0.5}, "no other takes any"),
    ],
)
def test_wrong_choices_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Probes(**wrong)
