"""Beam search against enumeration of all orders, one beam against confidence, and what it costs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache, Suppress
from tabes.denoiser import AnyDenoiser
from tabes.errors import NumericsError
from tabes.kernels.beam import Beams, _distinct
from tabes.presets import sampler
from tabes.randomness import Randomness
from tabes.steering import scene
from tabes.view import View
from tests.conftest import GOLDEN, MASK
from tests.steering.analytic import denoiser, mixer
from tests.steering.scenes import alone, filled

SAME = 1e-4


def canvas_of(new: int = 12, batch: int = 2, **arguments: Any) -> Canvas:
    prompt_BP = torch.tensor([[65, 65, 7, 21], [7, 8, MASK, 1]])[:batch]
    attention_BP = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])[:batch]
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=new, **arguments)


class Orders:
    """All orders of filling one canvas, one token at a time, by forwards and arithmetic alone."""

    def __init__(self, model: AnyDenoiser, canvas: Canvas) -> None:
        self.model, self.canvas = model, canvas
        self.known: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}

    def predicted(self, tokens_BL: Tensor) -> tuple[Tensor, Tensor]:
        key = tuple(tokens_BL[0].tolist())
        if key not in self.known:
            canvas = self.canvas.with_tokens(tokens_BL)
            logits_NV = self.model.predict(canvas, canvas.masked_BL).logits_NV().log_softmax(-1)
            best_N, token_N = logits_NV.max(-1)
            out_L, token_L = torch.zeros(tokens_BL.shape[1]), tokens_BL[0].clone()
            out_L[canvas.masked_BL[0]], token_L[canvas.masked_BL[0]] = best_N.float(), token_N
            self.known[key] = out_L, token_L
        return self.known[key]

    def score(self, order: tuple[int, ...]) -> tuple[float, list[int]]:
        tokens_BL, total = self.canvas.tokens_BL.clone(), 0.0
        for row in order:
            log_L, token_L = self.predicted(tokens_BL)
            total += float(log_L[row])
            tokens_BL = tokens_BL.clone()
            tokens_BL[0, row] = token_L[row]
        return total, tokens_BL[0].tolist()

    @torch.no_grad()
    def best(self) -> tuple[float, list[int]]:
        rows = [row for row, is_masked in enumerate(self.canvas.masked_BL[0].tolist()) if is_masked]
        blocks = self.canvas.block_BL[0].tolist()
        orders = [o for o in permutations(rows) if [blocks[r] for r in o] == sorted(blocks[r] for r in o)]
        return max((self.score(order) for order in orders), key=lambda found: found[0])


def decoded(model: AnyDenoiser, canvas: Canvas, **parameters: Any) -> tuple[list[int], float]:
    """The tokens of the first batch row, and the score the kernel gave them."""
    rule, score = sampler("beam", **parameters), 0.0
    state: Beams = rule.init(canvas)
    step = 0
    with torch.no_grad():
        while bool(canvas.masked_BL.any()):
            view = View(canvas, model, step, Randomness.create(0, len(canvas.tokens_BL), torch.device("cpu")))
            move, state = rule.step(view, state)
            canvas, step = canvas.apply(move), step + 1
            score = float(state.score_BW[0, 0])
            assert canvas.tokens_BL.equal(state.tokens_BWL[:, 0])
            live_WL = state.tokens_BWL[0][torch.isfinite(state.score_BW[0])]
            assert len(live_WL.unique(dim=0)) == len(live_WL), "two beams are the same"
            assert bool((state.score_BW.diff(dim=1).nan_to_num(-1.0) <= 0).all()), "the best is the first"
    return canvas.tokens_BL[0].tolist(), score


@pytest.mark.parametrize("block_length", [None, 3])
@pytest.mark.parametrize("seed", range(4))
def test_with_room_for_all_it_finds_the_best_order(
    golden_model: tabes.Denoiser, seed: int, block_length: int | None
) -> None:
    ids = torch.randint(0, 64, (1, 4), generator=torch.Generator().manual_seed(seed))
    canvas = Canvas.create(ids, mask_id=MASK, max_new_tokens=5, block_length=block_length)
    score, tokens = Orders(golden_model, canvas).best()
    mine, my_score = decoded(golden_model, canvas, beams=200, branch=5)
    assert my_score == pytest.approx(score, abs=SAME)
    assert mine == tokens


@cache
def chances() -> list[tuple[float, float, float]]:
    """The scores of one beam, of four and of all, on the same canvases."""
    model = tabes.load(GOLDEN / "denoiser", mask_token_id=MASK)
    found = []
    for seed in range(12):
        ids = torch.randint(0, 64, (1, 4), generator=torch.Generator().manual_seed(seed))
        canvas = Canvas.create(ids, mask_id=MASK, max_new_tokens=5)
        one, few, every = (
            decoded(model, canvas, beams=beams, branch=branch)[1] for beams, branch in ((1, 1), (4, 2), (99, 5))
        )
        found.append((one, few, every))
    return found


def test_more_beams_find_more() -> None:
    one, few, every = (torch.tensor(scores) for scores in zip(*chances(), strict=True))
    assert bool((every >= one - SAME).all())
    assert bool((every >= few - SAME).all())
    assert float(few.mean()) > float(one.mean())
    assert bool((every > one + SAME).any()), "confidence was always best"


def test_one_beam_is_confidence(golden_model: tabes.Denoiser) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]]
    cases = [({}, {}), ({"block_length": 5}, {"num_steps": 6}), ({}, {"tokens_per_step": 3})]
    for arguments, steps in cases:
        canvas = canvas_of(**arguments)
        for model in (golden_model, Guidance(golden_model, 0.7), Suppress(golden_model, 46)):
            plain_BL, plain = filled(model, canvas, sampler("confidence", **steps))
            mine_BL, mine = filled(model, canvas, sampler("beam", beams=1, branch=1, **steps))
            assert mine_BL.equal(plain_BL)
            assert [step.positions for step in mine] == [step.positions for step in plain]
            assert [step.cost.forward_tokens for step in mine] == [step.cost.forward_tokens for step in plain]


def test_one_beam_writes_once_and_several_do_not(golden_model: tabes.Denoiser) -> None:
    assert not sampler("beam", beams=1).revises
    assert sampler("beam").revises
    steps = filled(golden_model, canvas_of(), sampler("beam", beams=6, branch=3))[1]
    assert any(any(step.remasked) or any(step.rewritten) for step in steps)
    once = filled(golden_model, canvas_of(), sampler("beam", beams=1, branch=3))[1]
    assert not any(any(step.remasked) or any(step.rewritten) for step in once)


def test_every_beam_is_a_forward(golden_model: tabes.Denoiser) -> None:
    """One at the start, then as many as there are different canvases, up to `beams`."""
    canvas = Canvas.create(torch.tensor([[3, 4, 5, 6]]), mask_id=MASK, max_new_tokens=6)
    steps = filled(golden_model, canvas, sampler("beam", beams=4, branch=2))[1]
    rows = [step.cost.forward_tokens // 10 for step in steps]
    assert [step.cost.forward_calls for step in steps] == [1] * 6
    # Writing a then b, or b then a, is one canvas, if the tokens are the same: at most so many are different.
    assert rows[0] == 1
    assert rows[1] == 2
    assert rows[2] in (3, 4)
    assert max(rows) == 4
    assert [step.cost.head_rows for step in steps] == [
        beams * left for beams, left in zip(rows, range(6, 0, -1), strict=True)
    ]


def test_equal_canvases_are_one_beam() -> None:
    tokens_BCL = torch.tensor([[[1, 2], [1, 3], [1, 2], [1, 3], [1, 2]], [[1, 2], [1, 2], [4, 4], [4, 5], [4, 5]]])
    score_BC = torch.tensor([[-2.0, -1.0, -1.5, -1.0, -torch.inf], [-torch.inf, -3.0, -1.0, -1.0, -0.5]])
    found = _distinct(tokens_BCL, score_BC).tolist()
    gone = -torch.inf
    assert found == [[gone, -1.0, -1.5, gone, gone], [gone, -3.0, -1.0, gone, -0.5]]


@pytest.mark.parametrize("block_length", [None, 5])
@pytest.mark.parametrize("parameters", [{}, {"num_steps": 5, "branch": 3}, {"tokens_per_step": 2, "beams": 7}])
def test_a_row_of_a_batch_is_decoded_as_alone(
    golden_model: tabes.Denoiser, parameters: dict[str, Any], block_length: int | None
) -> None:
    canvas, rule = canvas_of(block_length=block_length), sampler("beam", **parameters)
    tokens_BL, steps = filled(golden_model, canvas, rule)
    assert MASK not in tokens_BL
    for row in range(2):
        own_BL, _ = filled(golden_model, alone(canvas, row), rule)
        assert own_BL[0].equal(tokens_BL[row][~canvas.padding_BL[row]])
    assert all(
        step.canvas.tokens_BL[~canvas.writable_BL].equal(canvas.tokens_BL[~canvas.writable_BL]) for step in steps
    )


def test_a_row_cache_changes_nothing(golden_model: tabes.Denoiser) -> None:
    rule = sampler("beam", num_steps=4)
    plain_BL, plain = filled(golden_model, canvas_of(), rule)
    cached_BL, cached = filled(RowCache(golden_model, 4), canvas_of(), rule)
    assert cached_BL.equal(plain_BL)
    assert [step.cost.forward_tokens for step in cached] == [step.cost.forward_tokens for step in plain]


def test_beams_in_parts(golden_model: tabes.Denoiser) -> None:
    rule = sampler("beam", num_steps=4, beams=5)
    whole_BL, _ = filled(golden_model, canvas_of(), rule)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene, "_ROWS_AT_ONCE", {"cpu": 2 * canvas_of().tokens_BL.shape[1]})
        parts_BL, _ = filled(golden_model, canvas_of(), rule)
    assert parts_BL.equal(whole_BL)


def test_steps_are_those_of_the_schedule(golden_model: tabes.Denoiser) -> None:
    steps = filled(golden_model, canvas_of(), sampler("beam", num_steps=5))[1]
    net = [[len(step.positions[b]) - len(step.remasked[b]) for step in steps] for b in range(2)]
    assert net == [[3, 3, 2, 2, 2], [3, 3, 3, 2, 2]]


def test_broken_numbers_name_the_batch_row() -> None:
    network = mixer(8, 9, 5, seed=1, coupling=0.3)
    ill_VE = torch.where(torch.arange(9)[:, None] == 3, torch.nan, network.table_VE)
    canvas = Canvas.create(torch.tensor([[1, 2, *[8] * 6], [0, 3, *[8] * 6]]), mask_id=8)
    with pytest.raises(NumericsError, match=r"step 0: \w+ is not finite in a beam at batch row 1"):
        list(tabes.decode(denoiser(replace(network, table_VE=ill_VE)), canvas, sampler("beam"), seed=0))
