"""Tokens that must not come: impossible for every rule, through every wrapper, replay and gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import tabes
from tabes import Canvas, Guidance, RowCache, Suppress, TabesError
from tabes.denoiser import AnyDenoiser
from tests.conftest import MASK
from tests.steering.scenes import MASK as FAMILY_MASK
from tests.steering.scenes import filled, opened, ragged, steered
from tests.test_shifted import shifted
from tests.tiny import FAMILIES

# What the golden denoiser likes best.
LIKED = (55, 46, 52, 63)
WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: Suppress(model, LIKED),
    "outside guidance": lambda model: Suppress(Guidance(model, 0.7), LIKED),
    "inside guidance": lambda model: Guidance(Suppress(model, LIKED), 0.7),
    "outside a cache": lambda model: Suppress(RowCache(model, 3), LIKED),
    "inside a cache": lambda model: RowCache(Suppress(model, LIKED), 3),
    "inside both": lambda model: RowCache(Guidance(Suppress(model, LIKED), 0.7), "block"),
    "twice": lambda model: Suppress(Suppress(model, LIKED[:2]), LIKED[2:]),
}


def canvas_of(**arguments: Any) -> Canvas:
    prompt_BP = torch.tensor([[55, 65, 65, 7, 21], [3, MASK, 46, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    return Canvas.create(prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, **arguments)


def written(model: AnyDenoiser, canvas: Canvas, rule: Any) -> set[int]:
    steps = list(tabes.decode(model, canvas, rule, seed=2))
    return set(steps[-1].canvas.tokens_BL[canvas.writable_BL].tolist())


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", ["confidence", "random", "dream-entropy", "maskgit", "boe", "boe-verify", "lookahead"])
def test_what_is_suppressed_never_comes(name: str, wrapper: str, golden_model: tabes.Denoiser) -> None:
    rule = steered(name) if name in ("boe", "boe-verify", "lookahead") else tabes.sampler(name)
    canvas = canvas_of(block_length=5)
    found = written(WRAPPERS[wrapper](golden_model), canvas, rule)
    assert not found & {*LIKED, MASK}
    unwrapped = {"plain": golden_model, "twice": golden_model}.get(wrapper)
    if unwrapped is not None:
        assert written(unwrapped, canvas, rule) & set(LIKED), "nothing to suppress"


def test_it_is_a_softmax_without_these_words(golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of()
    plain, without = (
        model.predict(canvas, canvas.masked_BL) for model in (golden_model, Suppress(golden_model, LIKED))
    )
    logits_NV = plain.logits_NV().index_fill(1, torch.tensor(LIKED), -torch.inf)
    p_NV = logits_NV.double().softmax(1)
    found_NV = without.logits_NV().softmax(1)
    assert not bool(found_NV[:, list(LIKED)].any())
    torch.testing.assert_close(found_NV.double(), p_NV, rtol=1e-5, atol=1e-7)
    entropy_N = -torch.special.xlogy(p_NV, p_NV).sum(1)
    torch.testing.assert_close(without.entropy_BL[canvas.masked_BL].double(), entropy_N, rtol=1e-5, atol=1e-5)
    top_two_N2 = p_NV.topk(2).values
    margin_N = top_two_N2[:, 0] - top_two_N2[:, 1]
    torch.testing.assert_close(without.margin_BL[canvas.masked_BL].double(), margin_N, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("outside", [True, False])
def test_guided_it_is_the_guided_softmax_without_these_words(outside: bool, golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of()
    model = Suppress(Guidance(golden_model, 0.7), LIKED) if outside else Guidance(Suppress(golden_model, LIKED), 0.7)
    plain_NV = Guidance(golden_model, 0.7).predict(canvas, canvas.masked_BL).logits_NV()
    expected_NV = plain_NV.index_fill(1, torch.tensor(LIKED), -torch.inf).softmax(1)
    found_NV = model.predict(canvas, canvas.masked_BL).logits_NV().softmax(1)
    torch.testing.assert_close(found_NV, expected_NV, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["llama", "bert", "qwen2-grouped"])
def test_replays_have_no_such_words_either(name: str) -> None:
    model, canvas = opened(FAMILIES[name]), ragged(6)
    suppressed = Suppress(model, (1, 2, 5))
    memory = suppressed.predict(canvas, canvas.masked_BL, remember=True).memory
    tokens_BL = torch.where(canvas.masked_BL & (canvas.positions_BL % 2 == 0), 9, canvas.tokens_BL)
    found_NV = suppressed.replay(memory, canvas.masked_BL, tokens_BL=tokens_BL).logits_NV().softmax(1)
    plain_NV = model.replay(memory, canvas.masked_BL, tokens_BL=tokens_BL).logits_NV()
    expected_NV = plain_NV.index_fill(1, torch.tensor([1, 2, 5]), -torch.inf).softmax(1)
    torch.testing.assert_close(found_NV, expected_NV, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("preset", ["boe", "boe-verify", "lookahead"])
def test_steering_of_a_shifted_model(preset: str) -> None:
    model = shifted(FAMILIES["qwen2-grouped"])
    canvas = ragged(6)
    plain_BL, _ = filled(model, canvas, steered(preset))
    liked = [int(token) for token in plain_BL[canvas.writable_BL].unique()][:3]
    tokens_BL, _ = filled(Suppress(model, liked), canvas, steered(preset))
    assert not set(tokens_BL[canvas.writable_BL].tolist()) & {*liked, FAMILY_MASK}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_batch_row_is_the_row_alone(wrapper: str, golden_model: tabes.Denoiser) -> None:
    model, canvas, rule = WRAPPERS[wrapper](golden_model), canvas_of(block_length=4), tabes.sampler("margin")
    together_BL = list(tabes.decode(model, canvas, rule))[-1].canvas.tokens_BL
    for row in range(2):
        content_L = ~canvas.padding_BL[row]
        alone = canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])  # noqa: B023
        assert list(tabes.decode(model, alone, rule))[-1].canvas.tokens_BL[0].equal(together_BL[row][content_L])


def test_nothing_suppressed_is_the_model_itself(golden_model: tabes.Denoiser) -> None:
    canvas, rule = canvas_of(), tabes.sampler("boe")
    found = [list(tabes.decode(m, canvas, rule))[-1].canvas for m in (golden_model, Suppress(golden_model, ()))]
    assert found[0].tokens_BL.equal(found[1].tokens_BL)


def test_by_name_in_generate(golden_model: tabes.Denoiser) -> None:
    """The golden trace of LLaDA's logits_eos_inf is in tests/test_golden.py."""
    given = {"input_ids": [[3, 4, 5]], "max_new_tokens": 12, "sampler": "confidence"}
    plain = tabes.generate(golden_model, **given)  # type: ignore[arg-type]
    common = int(plain.sequences[0, 3:].mode().values)
    model = replace(golden_model, eos_ids=(common, 64))
    by_name = tabes.generate(model, suppress="end", **given)  # type: ignore[arg-type]
    by_id = tabes.generate(model, suppress=[common, 64], **given)  # type: ignore[arg-type]
    assert common in plain.sequences[0, 3:]
    assert common not in by_name.sequences[0, 3:]
    assert by_name.sequences.equal(by_id.sequences)
    guided = tabes.generate(model, suppress=common, cfg_scale=0.5, **given)  # type: ignore[arg-type]
    assert common not in guided.sequences[0, 3:]


def test_given_tokens_stay_what_they_are(golden_model: tabes.Denoiser) -> None:
    canvas = canvas_of()
    last = list(tabes.decode(Suppress(golden_model, 46), canvas, tabes.sampler("confidence")))[-1].canvas
    assert int(last.tokens_BL[1, 2]) == 46


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ("eos", "suppress is 'eos'; give token ids, or 'end'"),
        (67, "suppress has 67; give token ids from 0 to 66, or 'end'"),
        (-1, "suppress has -1; give token ids from 0 to 66"),
        ([3, 4.0], "suppress has 4.0; give token ids"),
        (True, "suppress has True; give token ids"),
    ],
)
def test_bad_ids(ids: Any, message: str, golden_model: tabes.Denoiser) -> None:
    with pytest.raises(TabesError, match=message):
        Suppress(golden_model, ids)


def test_a_model_without_end_tokens_says_so(golden_model: tabes.Denoiser) -> None:
    with pytest.raises(TabesError, match="names no end-of-text token; give the ids to suppress"):
        Suppress(replace(golden_model, eos_ids=()), "end")
