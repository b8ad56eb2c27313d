"""Models whose output at row j predicts row j + 1: every rule reads one row earlier and knows nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.models.opening import network_of
from tabes.steering import Importance, Lookahead
from tests.steering.scenes import MASK, alone, canvas_of, filled, holes, precise, ragged, rows, scene_of, steered
from tests.tiny import FAMILIES, Family, V

NAMES = ("llama", "qwen2-grouped", "bert", "deberta-v2")
WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "cache": lambda model: RowCache(model, 3),
    "guidance": lambda model: Guidance(model, 0.7),
}
pytestmark = pytest.mark.filterwarnings("ignore::tabes.models.dense.DenseReplayWarning")


def shifted(family: Family) -> Denoiser:
    network = network_of(family.build(), family.model)
    network.shifted = True
    return Denoiser(network, None, mask_id=MASK)


def by_transformers(family: Family, tokens_L: Tensor) -> Tensor:
    """(L, V) predictions of the rows of one unpadded canvas, without the mask id."""
    with torch.no_grad():
        logits_LV = family.build().eval()(tokens_L[None]).logits[0]
    logits_LV = torch.cat([logits_LV[:1], logits_LV[:-1]])
    logits_LV[:, MASK] = -torch.inf
    return logits_LV


@pytest.mark.parametrize("name", NAMES)
def test_a_prediction_is_read_off_the_row_before(name: str) -> None:
    canvas = Canvas.create(
        torch.tensor([[1, 1, MASK, 9, MASK, MASK], [MASK, 8, MASK, 9, 10, MASK]]),
        mask_id=MASK,
        attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]),
    )
    found_NV = shifted(FAMILIES[name]).predict(canvas, canvas.masked_BL).logits_NV()
    # Padding is nothing: the first row of the padded canvas has none before it.
    short_LV = by_transformers(FAMILIES[name], torch.tensor([MASK, 9, MASK, MASK]))[[0, 2, 3]]
    long_LV = by_transformers(FAMILIES[name], torch.tensor([MASK, 8, MASK, 9, 10, MASK]))[[0, 2, 5]]
    expected_NV = torch.cat([short_LV, long_LV]).softmax(-1)
    torch.testing.assert_close(found_NV.softmax(-1), expected_NV, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_of_what_changed_and_what_is_read_computes_the_rows_before_too(name: str) -> None:
    """Everything is masked and read, so a replay that leaves nothing out is a forward."""
    model, canvas = shifted(FAMILIES[name]), holes(7, range(7))
    memory = model.predict(canvas, canvas.masked_BL, remember=True).memory
    tokens_BL = canvas.tokens_BL.clone()
    tokens_BL[0, 2] = 11
    read_BL = rows(canvas, [0, 1, 3, 4, 5, 6])
    replayed_NV = model.replay(memory, canvas.masked_BL, tokens_BL=tokens_BL, read_BL=read_BL).logits_NV()
    full_NV = model.predict(canvas.with_tokens(tokens_BL), read_BL).logits_NV()
    torch.testing.assert_close(replayed_NV, full_NV, rtol=1e-9, atol=1e-11)
    if model.network.replays:
        before = model.ledger.forward_tokens
        model.replay(memory, rows(canvas, [4]), tokens_BL=tokens_BL)
        assert model.ledger.forward_tokens - before == 2, "row 4 is read off row 3"


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_importance_is_the_gradient_of_what_is_read(name: str) -> None:
    family = precise(name)
    model, canvas = shifted(family), holes(7, [2, 3, 5])
    found_L = Importance(backward="dense").drops(scene_of(model, canvas), canvas.masked_BL)[0]
    reference = family.build().eval()
    table_VE = reference.get_input_embeddings().weight.detach()
    leaf_LE = table_VE[canvas.tokens_BL[0]].requires_grad_()
    logits_LV = reference(inputs_embeds=leaf_LE[None], position_ids=torch.arange(7)[None]).logits[0]
    words = torch.arange(V) != MASK
    p_LV = torch.cat([logits_LV[:1], logits_LV[:-1]])[:, words].softmax(-1)
    left = -torch.special.xlogy(p_LV, p_LV).sum(-1)[[2, 3, 5]].sum()
    (gradient_LE,) = torch.autograd.grad(left, leaf_LE)
    delta_LE = p_LV.detach() @ table_VE[words] - table_VE[MASK]
    expected_L = -(gradient_LE * delta_LE).sum(-1)
    torch.testing.assert_close(found_L[[2, 3, 5]], expected_L[[2, 3, 5]], rtol=1e-7, atol=1e-9)


def test_a_drop_is_what_is_left_in_full_forwards() -> None:
    model, canvas = shifted(FAMILIES["llama"]), canvas_of([[MASK] * 6])
    scene = scene_of(model, canvas)
    drops_L = Lookahead().drops(scene, canvas.masked_BL)[0]
    for row in range(6):
        others = rows(canvas, [other for other in range(6) if other != row])
        tokens_BL = torch.where(others, canvas.tokens_BL, scene.tokens_BL)
        after = model.predict(canvas.with_tokens(tokens_BL), others).entropy_BL.sum()
        before = model.predict(canvas, others).entropy_BL.sum()
        assert float(drops_L[row]) == pytest.approx(float(before - after), abs=1e-6)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("preset", ["confidence", "boe", "boe-verify", "lookahead"])
def test_a_batch_row_is_the_row_alone(preset: str, wrapper: str) -> None:
    rule = tabes.sampler(preset) if preset == "confidence" else steered(preset)
    for canvas in (ragged(6), ragged(6, block_length=3)):
        model = WRAPPERS[wrapper](shifted(FAMILIES["qwen2-grouped"]))
        together_BL, _ = filled(model, canvas, rule)
        assert not (together_BL == MASK).any()
        for b in range(2):
            assert together_BL[b][~canvas.padding_BL[b]].equal(filled(model, alone(canvas, b), rule)[0][0])
