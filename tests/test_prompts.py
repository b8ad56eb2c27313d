"""Prompts: conversations, what is too long, holes the tokenizer cannot write, and where a text ends."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import tabes
from tabes import Canvas
from tabes.encoding import CutWarning, encoded, hole
from tabes.messages import rendered
from tabes.models import card_named
from tabes.prompts import canvas_from_text
from tabes.stop import ended
from tests.conftest import MASK
from tests.models.published import GOLDEN

ROLES = {"system": "w57", "user": "w58", "assistant": "w59"}
# w60 begins a text, w64 ends it.
TEMPLATE = (
    "w60 {% for message in messages %}{{ " + str(ROLES) + "[message.role] }} {{ message.content }} w64 {% endfor %}"
    "{% if add_generation_prompt %}w59{% endif %}"
)


def ids(model: tabes.Denoiser, prompt: Any, new: int = 2) -> list[list[int]]:
    canvas = canvas_from_text(model, prompt, max_new_tokens=new, block_length=None)
    return [row[~padding].tolist() for row, padding in zip(canvas.tokens_BL, canvas.padding_BL, strict=True)]


def tokenizer_of(words: PreTrainedTokenizerFast, begins: bool = True, **more: Any) -> PreTrainedTokenizerFast:
    """That of the golden denoiser, which begins a text by w60 and closes it by w61."""
    backend = Tokenizer.from_str(words.backend_tokenizer.to_str())
    if begins:
        around = [("w60", 60), ("w61", 61)]
        backend.post_processor = processors.TemplateProcessing(single="w60 $A w61", special_tokens=around)
    known: dict[str, Any] = {"mask_token": "[MASK]", "pad_token": "w65", "eos_token": "w64", "bos_token": "w60"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **(known | more))


@pytest.fixture(scope="module")
def talker(golden_model: tabes.Denoiser, words: PreTrainedTokenizerFast) -> tabes.Denoiser:
    """The golden denoiser with a chat template."""
    return replace(golden_model, tokenizer=tokenizer_of(words, chat_template=TEMPLATE))


def test_a_conversation_is_written_by_the_template(talker: tabes.Denoiser) -> None:
    asked = tabes.chat("w1 w2")
    assert asked == [{"role": "user", "content": "w1 w2"}]
    assert ids(talker, asked) == [[60, 58, 1, 2, 64, 59, MASK, MASK]]
    told = tabes.chat("w1", system="w3 w4")
    assert ids(talker, told, new=1) == [[60, 57, 3, 4, 64, 58, 1, 64, 59, MASK]]
    turns = [*asked, {"role": "assistant", "content": "w5"}, *tabes.chat("w6")]
    assert ids(talker, turns, new=0) == [[60, 58, 1, 2, 64, 59, 5, 64, 58, 6, 64, 59]]


def test_special_tokens_are_not_written_twice(talker: tabes.Denoiser) -> None:
    """A text gets the tokenizer's, a conversation has the template's."""
    assert ids(talker, "w1", new=1) == [[60, 1, MASK, 61]]
    assert ids(talker, tabes.chat("w1"), new=1) == [[60, 58, 1, 64, 59, MASK]]


def test_conversations_in_a_batch(talker: tabes.Denoiser) -> None:
    prompts = [tabes.chat("w1"), tabes.chat("w2 w3", "w4"), "w5"]
    assert ids(talker, prompts) == [ids(talker, prompt)[0] for prompt in prompts]
    batch = tabes.generate(talker, prompts[:2], max_new_tokens=4, sampler="confidence")
    for row, prompt in enumerate(prompts[:2]):
        alone = tabes.generate(talker, prompt, max_new_tokens=4, sampler="confidence")
        assert batch.texts is not None
        assert alone.texts == (batch.texts[row],)


def test_an_answer_that_was_begun_goes_on(talker: tabes.Denoiser) -> None:
    begun = [*tabes.chat("w1"), {"role": "assistant", "content": "w7 w8"}]
    assert ids(talker, begun, new=1) == [[60, 58, 1, 64, 59, 7, 8, MASK]]
    opened = [*tabes.chat("w1"), {"role": "assistant", "content": ""}]
    assert ids(talker, opened) == ids(talker, tabes.chat("w1"))
    holes = [*tabes.chat("w1"), {"role": "assistant", "content": "w7 [MASK] w8"}]
    assert ids(talker, holes, new=0) == [[60, 58, 1, 64, 59, 7, MASK, 8]]


LLADA = (
    "<|startoftext|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nHi!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)
DREAM = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n Hi!<|im_end|>\n<|im_start|>assistant\n"


def test_templates_of_the_cards(golden_model: tabes.Denoiser) -> None:
    llada, dream = (replace(golden_model, card=card_named(name)) for name in ("llada", "dream"))
    assert rendered(llada, tabes.chat(" Hi!", "Be brief.")) == LLADA
    assert rendered(dream, tabes.chat(" Hi!", "Be brief.")) == DREAM.format("Be brief.")
    assert rendered(dream, tabes.chat(" Hi!")) == DREAM.format("You are a helpful assistant.")
    begun = [*tabes.chat("Hi!", "Be brief."), {"role": "assistant", "content": "<reasoning>"}]
    assert rendered(llada, begun) == LLADA + "<reasoning>"
    assert rendered(dream, begun).endswith("<|im_start|>assistant\n<reasoning>")


def test_the_tokenizers_own_template_goes_first(talker: tabes.Denoiser) -> None:
    assert rendered(replace(talker, card=card_named("llada")), tabes.chat("w1")) == "w60 w58 w1 w64 w59"


def test_begin_of_text_stands_once_in_a_chat_of_llada(tmp_path: Path) -> None:
    """A folder in the published format whose tokenizer begins a text by itself, and a template that does so too."""
    marks = ("<|startoftext|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
    vocabulary = {mark: 139 + i for i, mark in enumerate(marks)} | {"<|mdm_mask|>": 150}
    vocabulary |= {f"w{i}": i for i in range(136)} | {"user": 136, "assistant": 137}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single=f"{marks[0]} $A", special_tokens=[(marks[0], 139)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=marks[0], eos_token=marks[1])
    tokenizer.add_special_tokens({"additional_special_tokens": [*marks[2:], "<|mdm_mask|>"]})
    folder = Path(shutil.copytree(GOLDEN / "llada", tmp_path / "llada"))
    tokenizer.save_pretrained(folder)
    model = tabes.load(folder)
    assert (model.mask_id, model.eos_ids, hole(model)) == (150, (140, 141), "<|mdm_mask|>")
    expected = [139, 142, 136, 143, 1, 2, 141, 142, 137, 143, 150]
    assert ids(model, tabes.chat("w1 w2"), new=1) == [expected]
    assert ids(model, "w1 <|mdm_mask|> w2", new=0) == [[139, 1, 150, 2]]
    output = tabes.generate(model, tabes.chat("w1 w2"), max_new_tokens=4, sampler="confidence", stop=model.eos_ids)
    assert output.texts is not None
    base = shutil.copytree(folder, tmp_path / "LLaDA-8B-Base")
    with pytest.raises(tabes.TabesError, match=r"LLaDA-8B-Base is a base model.*load GSAI-ML/LLaDA-8B-Instruct"):
        tabes.generate(tabes.load(base), tabes.chat("w1"), max_new_tokens=1)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([{"role": "user"}], "message 0 is {'role': 'user'}; it must have a role and a content"),
        ([{"role": "user", "content": "w1"}, "w2"], "message 1 is 'w2'; it must have a role and a content"),
        ([{"role": "tool", "content": "w1"}], "message 0 has the role 'tool'; roles are system, user, assistant"),
        ([{"role": "user", "content": ["w1"]}], r"message 0 has the content \['w1'\]; it must be a text"),
        ([[]], "give a text or a list of texts, or messages"),
    ],
)
def test_messages_that_are_none(talker: tabes.Denoiser, prompt: Any, message: str) -> None:
    with pytest.raises(tabes.TabesError, match=message) as caught:
        tabes.generate(talker, prompt, max_new_tokens=1)
    assert "\n" not in str(caught.value)


def test_who_cannot_read_a_conversation(golden_model: tabes.Denoiser, words: PreTrainedTokenizerFast) -> None:
    with pytest.raises(tabes.TabesError, match="has no chat template, so it cannot read a conversation; give a text"):
        tabes.generate(golden_model, tabes.chat("w1"), max_new_tokens=1)
    with pytest.raises(tabes.TabesError, match="has no tokenizer"):
        tabes.generate(replace(golden_model, tokenizer=None), tabes.chat("w1"), max_new_tokens=1)
    raising = tokenizer_of(words, chat_template="{{ raise_exception('no system prompts') }}")
    with pytest.raises(tabes.TabesError, match=r"the chat template of .* refuses these messages: no system prompts"):
        tabes.generate(replace(golden_model, tokenizer=raising), tabes.chat("w1"), max_new_tokens=1)
    with pytest.raises(tabes.TabesError, match="message 0 has the content 7"):
        tabes.chat(7)  # type: ignore[arg-type]


# The golden denoiser takes 96 tokens.
LONG = " ".join(f"w{i % 50}" for i in range(100))


def test_a_text_too_long_loses_its_beginning(golden_model: tabes.Denoiser) -> None:
    with pytest.warns(CutWarning) as caught:
        found = ids(golden_model, LONG, new=10)
    assert found == [[*range(14, 50), *range(50), *[MASK] * 10]]
    (warning,) = caught
    assert str(warning.message).endswith(
        "which takes 96 tokens with the 10 new ones: 14 tokens were left out at the beginning"
    )
    assert str(warning.message).startswith("the prompt is too long for")


def test_the_warning_points_at_the_caller(golden_model: tabes.Denoiser) -> None:
    with pytest.warns(CutWarning) as caught:
        tabes.generate(golden_model, LONG, max_new_tokens=2, sampler="confidence", num_steps=1)
    assert [warning.filename for warning in caught] == [__file__]


def test_special_tokens_stay(talker: tabes.Denoiser) -> None:
    with pytest.warns(CutWarning, match=": 9 tokens were"):
        (row,) = ids(talker, LONG, new=3)
    assert (len(row), row[:2], row[-4:]) == (96, [60, 9], [MASK] * 3 + [61])
    with pytest.warns(CutWarning, match=": 11 tokens were"):
        (row,) = ids(talker, tabes.chat(LONG), new=3)
    assert (len(row), row[:2], row[-5:]) == (96, [60, 10], [64, 59, MASK, MASK, MASK])


def test_a_batch_gets_one_warning(golden_model: tabes.Denoiser) -> None:
    with pytest.warns(CutWarning) as caught:
        found = ids(golden_model, ["w1", LONG, LONG + " w1"], new=1)
    (warning,) = caught
    assert [len(row) for row in found] == [2, 96, 96]
    assert str(warning.message).startswith("2 of 3 prompts are too long") and "up to 6 tokens" in str(warning.message)


def test_no_hole_is_cut_and_never_everything(golden_model: tabes.Denoiser) -> None:
    for prompt, new in ((f"w1 [MASK] {LONG}", 0), ("w1 w2", 96), (LONG, 96), (LONG, 500)):
        with pytest.raises(tabes.TabesError, match=r"tokens long but .* takes at most 96"):
            tabes.generate(golden_model, prompt, max_new_tokens=new, sampler="confidence")
    with pytest.warns(CutWarning, match=": 5 tokens were"):
        (row,) = ids(golden_model, f"w1 w1 w1 w1 w1 [MASK] {LONG[:-24]}"[:1000] + " w3", new=0)
    assert (row[0], len(row)) == (MASK, 96)


def test_who_wants_an_error_gets_one(golden_model: tabes.Denoiser) -> None:
    with warnings.catch_warnings(), pytest.raises(CutWarning):
        warnings.simplefilter("error", CutWarning)
        tabes.generate(golden_model, LONG, max_new_tokens=2)
    with pytest.raises(tabes.TabesError, match=r"the canvas is 102 tokens long but .* takes at most 96"):
        tabes.generate(golden_model, input_ids=[[i % 50 for i in range(100)]], max_new_tokens=2)


def gap(size: int = 30) -> PreTrainedTokenizerFast:
    """A tokenizer of `size` words that can write neither the golden denoiser's mask nor what lies before it."""
    backend = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="w28 $A w29", special_tokens=[("w28", 28), ("w29", 29)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize(
    ("prompt", "body"),
    [
        ("w1 [MASK] w2", [1, MASK, 2]),
        ("[MASK]w1[MASK][MASK]", [MASK, 1, MASK, MASK]),
        ("[MASK]", [MASK]),
        ("w1 w2", [1, 2]),
        ("w1 [mask]", [1, 0]),
    ],
)
def test_holes_for_a_tokenizer_without_a_mask(golden_model: tabes.Denoiser, prompt: str, body: list[int]) -> None:
    model = replace(golden_model, tokenizer=gap())
    assert hole(model) == "[MASK]"
    assert ids(model, prompt, new=1) == [[28, *body, MASK, 29]]
    assert tabes.generate(model, "w1 [MASK]", sampler="confidence").sequences[0, 1] == 1


def test_a_card_says_how_a_hole_is_written(golden_model: tabes.Denoiser) -> None:
    model = replace(golden_model, tokenizer=gap(), card=card_named("dream"))
    assert hole(model) == "<|mask|>"
    assert ids(model, "w1<|mask|>w2", new=0) == [[28, 1, MASK, 2, 29]]


def test_a_tokenizer_that_knows_its_mask_is_left_alone(golden_model: tabes.Denoiser) -> None:
    assert hole(golden_model) == "[MASK]"
    assert hole(replace(golden_model, tokenizer=None)) is None
    known = gap(MASK)
    known.add_special_tokens({"additional_special_tokens": ["<hole>"]})
    assert hole(replace(golden_model, tokenizer=known)) == "<hole>"
    assert ids(replace(golden_model, tokenizer=known), "w1 <hole> [MASK]", new=0) == [[28, 1, MASK, 0, 29]]


def test_what_closes_an_empty_text(talker: tabes.Denoiser) -> None:
    one = encoded(talker, "", special=True)
    assert (one.head, one.body, one.tail) == ([60], [], [61])


def ending(model: tabes.Denoiser, free: tabes.Output, at: int) -> tabes.Denoiser:
    """The model for which the token written at position `at` ends a text."""
    return replace(model, eos_ids=(int(free.sequences[0, at]),))


@pytest.mark.parametrize("sampler", ["confidence", "left_to_right", "p2", "remdm-cap"])
def test_no_text_behind_the_first_end_token(golden_model: tabes.Denoiser, sampler: str) -> None:
    """Even where it is written before the rest, and where written tokens are revised."""
    arguments: dict[str, Any] = {"max_new_tokens": 16, "sampler": sampler, "num_steps": 16, "seed": 3}
    free = tabes.generate(golden_model, "w3 w4", **arguments)
    model = ending(golden_model, free, 9)
    found = tabes.generate(model, "w3 w4", **arguments)
    new = free.sequences[0, 2:].tolist()
    assert found.sequences.tolist() == free.sequences.tolist(), "sequences are whole"
    assert len(found.steps) == len(free.steps)
    first = new.index(model.eos_ids[0])
    assert found.texts is not None
    assert found.texts[0].split() == [f"w{token}" for token in new[:first] if token not in (64, 65)]


def test_an_end_token_may_be_given(golden_model: tabes.Denoiser) -> None:
    model = replace(golden_model, eos_ids=(3,))
    free = tabes.generate(golden_model, "w3 w4", max_new_tokens=4)
    assert 3 not in free.sequences[0, 2:]
    assert tabes.generate(model, "w3 w4", max_new_tokens=4).texts == free.texts


def test_stopping_at_the_end_gives_the_same_text_for_less(golden_model: tabes.Denoiser) -> None:
    arguments: dict[str, Any] = {"max_new_tokens": 16, "sampler": "confidence", "block_length": 4}
    free = tabes.generate(golden_model, "w3 w4", **arguments)
    model = ending(golden_model, free, 5)
    whole = tabes.generate(model, "w3 w4", **arguments)
    stopped = tabes.generate(model, "w3 w4", **arguments, stop=model.eos_ids)
    assert stopped.texts == whole.texts
    assert len(stopped.steps) <= 4 < len(whole.steps) == 16
    assert set(stopped.sequences[0, 6:].tolist()) == {65}, "the rest is filled with padding, at no cost"


def test_end_tokens_can_be_ruled_out(golden_model: tabes.Denoiser) -> None:
    free = tabes.generate(golden_model, "w3 w4", max_new_tokens=16, sampler="confidence")
    model = ending(golden_model, free, 9)
    found = tabes.generate(model, "w3 w4", max_new_tokens=16, sampler="confidence", suppress="end")
    assert model.eos_ids[0] not in found.sequences[0, 2:]


def test_a_streamer_hears_no_more_than_the_text(golden_model: tabes.Denoiser) -> None:
    from transformers import TextIteratorStreamer

    free = tabes.generate(golden_model, "w3 w4", max_new_tokens=12, sampler="confidence")
    model = ending(golden_model, free, 8)
    streamer = TextIteratorStreamer(golden_model.tokenizer, skip_prompt=True, skip_special_tokens=True)
    output = tabes.generate(model, "w3 w4", max_new_tokens=12, sampler="confidence", streamer=streamer)
    assert output.texts is not None
    assert "".join(streamer).split() == output.texts[0].split()


def test_what_is_given_behind_a_hole_is_shown(golden_model: tabes.Denoiser) -> None:
    """An end token ends the text of the holes it stands in, not what was given behind them."""
    canvas = Canvas.create(torch.tensor([[1, *[MASK] * 3, 2, 3, *[MASK] * 3]]), mask_id=MASK)
    filled = canvas.with_tokens(torch.tensor([[1, 10, 64, 11, 2, 3, 12, 64, 13]]))
    from tabes.outputs import texts_of

    model = replace(golden_model, eos_ids=(64,))
    assert texts_of(model, filled, new=3, stop=None) == ("w1 w10 w2 w3 w12",)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=12))
def test_where_texts_end(rows: list[tuple[bool, int]]) -> None:
    writable_BL = torch.tensor([[writable for writable, _ in rows]])
    tokens_BL = torch.tensor([[token for _, token in rows]])
    canvas = Canvas.create(torch.where(writable_BL, 9, tokens_BL), mask_id=9).with_tokens(tokens_BL)
    expected, over = [], False
    for writable, token in rows:
        over = writable and (over or token in (1, 2))
        expected.append(over)
    assert ended(canvas, (1, 2)).tolist() == [expected]
    assert not ended(canvas, ()).any()
