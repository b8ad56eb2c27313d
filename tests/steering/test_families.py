"""Every preset on every model family: those that replay rows alone and those that do not."""

from __future__ import annotations

import pytest

from tests.dit import EVERY
from tests.steering.scenes import MASK, PRESETS, filled, ragged, steered, tiny
from tests.tiny import DENSE

pytestmark = pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", EVERY)
def test_the_canvas_is_filled_and_the_same_again(name: str, preset: str) -> None:
    canvas, rule = ragged(8), steered(preset, num_steps=5)
    tokens_BL, steps = filled(tiny(name), canvas, rule)
    assert not (tokens_BL == MASK).any()
    assert tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL])
    assert [[len(row) for row in step.positions] for step in steps] == [[2, 2], [2, 2], [2, 2], [1, 2], [1, 1]]
    assert sum(step.cost.fallbacks for step in steps) == 0
    again_BL, others = filled(tiny(name), canvas, rule)
    assert again_BL.equal(tokens_BL)
    assert [step.scores for step in others] == [step.scores for step in steps]
    backward = sum(step.cost.backward_calls for step in steps)
    assert (backward == 0) == (preset == "lookahead")


@pytest.mark.parametrize("preset", ["boe", "lookahead"])
def test_a_model_that_cannot_replay_pays_for_the_whole_canvas(preset: str) -> None:
    canvas = ragged(4)
    sparse, dense = (
        filled(tiny(name), canvas, steered(preset, num_steps=3))[1][0].cost for name in ("bert", next(iter(DENSE)))
    )
    assert dense.forward_calls == sparse.forward_calls
    assert dense.forward_tokens > sparse.forward_tokens
