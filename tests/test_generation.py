"""Text in, text out: prompts, holes, batches, stops, streamers, and what bad input gets."""

from __future__ import annotations

import dataclasses
from itertools import chain
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast, TextIteratorStreamer, TextStreamer

import tabes
from tabes import Canvas
from tabes.decoding import Step
from tabes.errors import NumericsError
from tests.conftest import MASK


def test_new_text(golden_model: tabes.Denoiser, words: PreTrainedTokenizerFast) -> None:
    output = tabes.generate(golden_model, "w3 w4", max_new_tokens=5)
    assert output.sequences.shape == (1, 7)
    assert output.sequences[0, :2].tolist() == [3, 4]
    assert output.texts == (words.decode(output.sequences[0, 2:]),)
    assert len(output.steps) == 5


def test_infilling_gives_the_whole_text(golden_model: tabes.Denoiser, words: PreTrainedTokenizerFast) -> None:
    output = tabes.generate(golden_model, "w3 [MASK] w4 [MASK] [MASK]")
    assert output.texts == (words.decode(output.sequences[0]),)
    assert output.sequences[0, [0, 2]].tolist() == [3, 4]
    assert MASK not in output.sequences


def test_a_row_of_a_ragged_batch_decodes_as_alone(golden_model: tabes.Denoiser) -> None:
    prompts = ["w3 w4 w5", "w9", "[MASK] w8 w7 w1 w2"]
    batch = tabes.generate(golden_model, prompts, max_new_tokens=6, num_steps=3, temperature=0.9, seed=5)
    for row, prompt in enumerate(prompts):
        single = tabes.generate(golden_model, prompt, max_new_tokens=6, num_steps=3, temperature=0.9, seed=5 + row)
        assert batch.texts is not None
        assert single.texts == (batch.texts[row],)


def test_ids_with_padding_anywhere(golden_model: tabes.Denoiser) -> None:
    left = tabes.generate(
        golden_model, input_ids=[[0, 0, 3, 4]], attention_mask=torch.tensor([[0, 0, 1, 1]]), max_new_tokens=4
    )
    right = tabes.generate(
        golden_model, input_ids=[[3, 4, 0, 0]], attention_mask=torch.tensor([[1, 1, 0, 0]]), max_new_tokens=4
    )
    bare = tabes.generate(golden_model, input_ids=[[3, 4]], max_new_tokens=4)
    assert left.sequences[0, 4:].tolist() == right.sequences[0, 4:].tolist() == bare.sequences[0, 2:].tolist()


def test_a_closing_special_token_stays_at_the_end(golden_model: tabes.Denoiser) -> None:
    from tokenizers.processors import TemplateProcessing

    closing = PreTrainedTokenizerFast(tokenizer_object=golden_model.tokenizer.backend_tokenizer, mask_token="[MASK]")
    closing.backend_tokenizer.post_processor = TemplateProcessing(
        single="w60 $A w61", special_tokens=[("w60", 60), ("w61", 61)]
    )
    model = dataclasses.replace(golden_model, tokenizer=closing)
    try:
        for prompt, head in (("w3 w4", [60, 3, 4]), ("", [60])):
            sequence = tabes.generate(model, prompt, max_new_tokens=3).sequences[0].tolist()
            assert sequence[: len(head)] == head
            assert sequence[-1] == 61
            assert len(sequence) == len(head) + 4
    finally:
        closing.backend_tokenizer.post_processor = None


def first_written(output: tabes.Output) -> int:
    return int(output.steps[0].tokens[0][0])


def test_stop_id_ends_a_row_when_everything_before_it_stands(golden_model: tabes.Denoiser) -> None:
    free = tabes.generate(golden_model, "w3 w4", max_new_tokens=12, sampler="left_to_right")
    stop = int(free.sequences[0, 7])
    at = free.sequences[0, 2:].tolist().index(stop)
    stopped = tabes.generate(golden_model, "w3 w4", max_new_tokens=12, sampler="left_to_right", stop=stop)
    assert len(stopped.steps) == at + 1
    assert stopped.cost.forward_equivalents < free.cost.forward_equivalents
    assert stopped.sequences[0, 2 + at + 1 :].tolist() == [65] * (11 - at)
    assert stopped.texts is not None
    assert stopped.texts[0].split() == [f"w{token}" for token in free.sequences[0, 2 : 2 + at].tolist()]


def test_stop_string_and_rows_that_leave_the_batch(golden_model: tabes.Denoiser) -> None:
    prompts = ["w3 w4", "w9 w17"]
    free = tabes.generate(golden_model, prompts, max_new_tokens=12, sampler="left_to_right")
    phrase = " ".join(f"w{token}" for token in free.sequences[1, 5:7].tolist())
    stopped = tabes.generate(golden_model, prompts, max_new_tokens=12, sampler="left_to_right", stop=[phrase, "w99"])
    assert stopped.texts is not None
    assert free.texts is not None
    assert stopped.texts[1] == free.texts[1][: free.texts[1].index(phrase)]
    if phrase not in free.texts[0]:
        assert stopped.texts[0] == free.texts[0]
        assert [step.cost.forward_tokens for step in stopped.steps][4:] == [28] + [14] * 7


def test_a_stop_is_not_seen_across_masks(golden_model: tabes.Denoiser) -> None:
    """Confidence writes out of order; the row goes on until the text up to the stop has no hole."""
    free = tabes.generate(golden_model, "w3 w4", max_new_tokens=12)
    stop = first_written(free)
    stopped = tabes.generate(golden_model, "w3 w4", max_new_tokens=12, stop=stop)
    position = int(free.steps[0].positions[0][0])
    assert position > 2, "the first token written is the first of the text; choose another prompt"
    assert len(stopped.steps) > 1
    last = stopped.steps[-1].canvas
    assert not bool(last.masked_BL[0, : stopped.sequences[0].tolist().index(stop, 2)].any())


class Collector:
    """A streamer that also takes drafts."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def put(self, value: torch.Tensor) -> None:
        self.calls.append(("put", value.flatten().tolist()))

    def put_draft(self, value: torch.Tensor) -> None:
        self.calls.append(("draft", value.flatten().tolist()))

    def end(self) -> None:
        self.calls.append(("end", None))


def test_streamer_gets_prompt_text_in_order_drafts_and_end(golden_model: tabes.Denoiser) -> None:
    collector = Collector()
    output = tabes.generate(golden_model, "w3 w4", max_new_tokens=6, streamer=collector)
    put = [value for kind, value in collector.calls if kind == "put"]
    assert put[0] == [3, 4]
    assert list(chain(*put)) == output.sequences[0].tolist()
    assert all(MASK in value for kind, value in collector.calls if kind == "draft")
    assert [kind for kind, _ in collector.calls].count("draft") == 5
    assert collector.calls[-1] == ("end", None)


def test_transformers_streamers(
    golden_model: tabes.Denoiser, words: PreTrainedTokenizerFast, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tabes.generate(golden_model, "w3 w4", max_new_tokens=6, streamer=TextStreamer(words, skip_prompt=True))
    assert output.texts is not None
    assert capsys.readouterr().out.split() == output.texts[0].split()
    iterator = TextIteratorStreamer(words, skip_prompt=True)
    tabes.generate(golden_model, "w3 w4", max_new_tokens=6, streamer=iterator)
    assert "".join(iterator).split() == output.texts[0].split()


def test_a_streamer_takes_one_prompt(golden_model: tabes.Denoiser) -> None:
    with pytest.raises(tabes.TabesError, match="one prompt at a time, not 2"):
        tabes.generate(golden_model, ["w1", "w2"], max_new_tokens=2, streamer=Collector())


def test_progress_bar(golden_model: tabes.Denoiser, capsys: pytest.CaptureFixture[str]) -> None:
    tabes.generate(golden_model, "w3", max_new_tokens=6, progress=True)
    assert "6/6" in capsys.readouterr().err


def test_nothing_to_fill_costs_nothing(golden_model: tabes.Denoiser) -> None:
    output = tabes.generate(golden_model, "w3 w4")
    assert output.steps == ()
    assert output.cost.forward_calls == 0
    assert output.cost.forward_equivalents == 0.0
    assert output.sequences.tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either a prompt or input_ids"),
        ({"prompt": "w1", "input_ids": [[1]]}, "give either a prompt or input_ids"),
        ({"prompt": ""}, "the prompt is empty and max_new_tokens is 0"),
        ({"input_ids": [[]]}, "the prompt is empty and max_new_tokens is 0"),
        ({"prompt": []}, "give a text or a list of texts"),
        ({"prompt": 7}, "prompt is 7; give a text"),
        ({"prompt": ["w1", 3]}, "give a text or a list of texts"),
        ({"prompt": b"w1"}, "give a text or a list of texts"),
        ({"prompt": "w1", "max_new_tokens": 96}, "the canvas is 97 tokens long but .* takes at most 96"),
        ({"prompt": "w1", "max_new_tokens": "3"}, "max_new_tokens is '3'"),
        ({"input_ids": [[1, 67]]}, r"token id 67 is outside the vocabulary of .* \(0 to 66\)"),
        ({"input_ids": [[1, -2]]}, "token id -2 is outside the vocabulary"),
        ({"input_ids": [[1], [2, 3]]}, "not a table of integer ids"),
        ({"input_ids": [[0.5]]}, "it must be integer ids"),
        ({"prompt": "w1", "attention_mask": torch.ones(1, 1)}, "attention_mask goes with input_ids"),
        ({"prompt": "w1 [MASK]", "sampler": "confidense"}, "unknown sampler 'confidense'; did you mean confidence"),
        ({"prompt": "w1 [MASK]", "sampler": 3}, "sampler is 3; make one with"),
        ({"prompt": "w1 [MASK]", "num_steps": 0}, "num_steps is 0"),
        ({"prompt": "w1 [MASK]", "block_length": 0}, "block_length is 0"),
        ({"prompt": "w1 [MASK]", "temperature": -0.5}, "temperature is -0.5"),
        ({"prompt": "w1 [MASK]", "top_p": 0.5}, "top_p=0.5 has no effect at temperature 0"),
        ({"prompt": "w1 [MASK]", "cfg_scale": -1.0}, "cfg_scale is -1.0"),
        ({"prompt": "w1 [MASK]", "stop": ""}, "an empty stop string"),
        ({"prompt": "w1 [MASK]", "stop": [3.5]}, "stop has 3.5; give strings or token ids"),
        ({"prompt": "w1 [MASK]", "seed": [1, 2]}, "one for each of the 1 batch rows"),
        ({"prompt": "w1 [MASK]", "sampler": tabes.sampler("margin"), "num_steps": 2}, "besides a ready-made sampler"),
    ],
)
def test_bad_input_gets_one_sentence(golden_model: tabes.Denoiser, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tabes.TabesError, match=message) as caught:
        tabes.generate(golden_model, **arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("model", ["sudoku", torch.nn.Linear(1, 1), None])
def test_something_that_is_no_denoiser(model: Any) -> None:
    with pytest.raises(tabes.TabesError, match=r"make a denoiser of it with tabes.load"):
        tabes.generate(model, "w1")
    with pytest.raises(tabes.TabesError, match=r"make a denoiser of it with tabes.load"):
        tabes.decode(model, Canvas.create(torch.tensor([[MASK]]), mask_id=MASK), tabes.sampler("confidence"))


def test_a_model_without_a_tokenizer(golden_model: tabes.Denoiser) -> None:
    bare = dataclasses.replace(golden_model, tokenizer=None)
    assert tabes.generate(bare, input_ids=[[1, MASK]]).texts is None
    with pytest.raises(tabes.TabesError, match="has no tokenizer; pass input_ids="):
        tabes.generate(bare, "w1")
    with pytest.raises(tabes.TabesError, match="needs a tokenizer and the model has none"):
        tabes.generate(bare, input_ids=[[1, MASK]], stop="w1")


def test_a_mask_id_outside_the_vocabulary(golden_model: tabes.Denoiser) -> None:
    with pytest.raises(tabes.TabesError, match="mask id 67 is outside the model's vocabulary of 67"):
        dataclasses.replace(golden_model, mask_id=67)


def test_nan_logits_name_the_step_and_the_row(golden_model: tabes.Denoiser) -> None:
    class Failing:
        """The golden network, whose head breaks down on its third call."""

        def __init__(self) -> None:
            self.calls = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(golden_model.network, name)

        def head(self, hidden_Nd: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            logits_NV = golden_model.network.head(hidden_Nd)
            if self.calls == 3:
                logits_NV[-1, 5] = torch.nan
            return logits_NV

    model = dataclasses.replace(golden_model, network=Failing())
    canvas = Canvas.create(torch.tensor([[MASK, 2, 3, 4], [MASK] * 4]), mask_id=MASK)
    steps: list[Step] = []
    with pytest.raises(NumericsError, match=r"step 2: .* is not finite at batch row 1, position \d"):
        steps.extend(tabes.decode(model, canvas, tabes.sampler("confidence")))


def test_a_sampler_that_never_moves_is_stopped(golden_model: tabes.Denoiser, monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle:
        revises = False

        def init(self, canvas: Canvas) -> None:
            return None

        def step(self, view: Any, state: None) -> tuple[tabes.Move, None]:
            return tabes.Move(torch.zeros_like(view.canvas.padding_BL), view.canvas.tokens_BL), None

    monkeypatch.setattr("tabes.decoding._PATIENCE", 5)
    with pytest.raises(tabes.TabesError, match="changed nothing in 6 steps"):
        tabes.generate(golden_model, "w1 [MASK]", sampler=Idle())
