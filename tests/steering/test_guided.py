"""Steering behind guidance: the gradient and the drop are those of the combined distribution."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tabes import Guidance
from tabes.steering import Importance, Lookahead
from tests.steering.exact import Exact
from tests.steering.scenes import MASK, canvas_of, opened, precise, scene_of

TOKENS = [9, 17, MASK, MASK, 30, MASK, MASK]
HOLES = [row for row, token in enumerate(TOKENS) if token == MASK]
SCALE, STEP = 0.8, 1e-3


class Guided:
    """Entropies of the holes, by two whole forwards: one with the prompt, one with masks in its place."""

    def __init__(self, name: str) -> None:
        self.exact = Exact(precise(name), torch.tensor(TOKENS))
        self.mask_E = self.exact.table_VE[MASK]

    def p(self, embeddings_LE: Tensor) -> Tensor:
        without_LE = embeddings_LE.clone()
        without_LE[[row for row, token in enumerate(TOKENS) if token != MASK]] = self.mask_E
        with_LV, without_LV = (self.exact.p(one)[HOLES].log() for one in (embeddings_LE, without_LE))
        logits_LV = without_LV + (SCALE + 1) * (with_LV - without_LV)
        return logits_LV.nan_to_num(nan=-torch.inf).softmax(-1)

    def left(self, embeddings_LE: Tensor, but: int | None = None) -> Tensor:
        p_LV = self.p(embeddings_LE)
        entropy_L = -torch.special.xlogy(p_LV, p_LV).sum(-1)
        return entropy_L[[n for n, row in enumerate(HOLES) if row != but]].sum()


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("self_term", ["include", "exclude"])
def test_importance_is_a_finite_difference(name: str, self_term: str) -> None:
    guided, canvas = Guided(name), canvas_of([TOKENS])
    scene = scene_of(Guidance(opened(precise(name)), SCALE), canvas)
    rule = Importance(0.0, self_term=self_term, backward="dense")  # type: ignore[arg-type]
    drops_L = rule.drops(scene, canvas.masked_BL)[0]
    delta_LE = guided.p(guided.exact.embeddings_LE) @ guided.exact.table_VE - guided.mask_E
    for n, row in enumerate(HOLES):

        def left(step: float, row: int = row, n: int = n) -> Tensor:
            embeddings_LE = guided.exact.embeddings_LE.clone()
            embeddings_LE[row] += step * delta_LE[n]
            return guided.left(embeddings_LE, but=row if self_term == "exclude" else None)

        expected = float(8 * (left(-STEP) - left(STEP)) - (left(-2 * STEP) - left(2 * STEP))) / (12 * STEP)
        assert float(drops_L[row]) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_a_drop_is_that_of_two_full_forwards() -> None:
    """One layer, where replays are exact."""
    family = precise("llama", num_hidden_layers=1)
    guided, canvas = Guided("llama"), canvas_of([TOKENS])
    guided.exact = Exact(family, torch.tensor(TOKENS))
    guided.mask_E = guided.exact.table_VE[MASK]
    drops_L = Lookahead().drops(scene_of(Guidance(opened(family), SCALE), canvas), canvas.masked_BL)[0]
    p_LV = guided.p(guided.exact.embeddings_LE)
    for n, row in enumerate(HOLES):
        after_LE = guided.exact.written({row: int(p_LV[n].argmax())})
        expected = guided.left(guided.exact.embeddings_LE, but=row) - guided.left(after_LE, but=row)
        assert float(drops_L[row]) == pytest.approx(float(expected), abs=1e-10)
