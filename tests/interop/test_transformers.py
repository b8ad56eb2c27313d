"""`model.generate(custom_generate=...)` on a tiny bidirectional Llama."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import BertForMaskedLM, StoppingCriteria, set_seed

import tabes
from tabes.errors import ModelError, UnknownNameError, UsageError
from tabes.interop.transformers import Generated, generate
from tests.tiny import FAMILIES, Family

MASK, END, PAD = 5, 2, 1
pytestmark = [
    # transformers' advice on lengths and padding sides is about its own loops.
    pytest.mark.filterwarnings("ignore::UserWarning")
]


@pytest.fixture(scope="module")
def model() -> Any:
    return FAMILIES["llama-grouped"].build(torch.float32)


@pytest.fixture
def prompt() -> torch.Tensor:
    return torch.randint(6, 60, (2, 7), generator=torch.Generator().manual_seed(0))


def run(model: Any, ids: torch.Tensor, **options: Any) -> Any:
    return model.generate(ids, **{"max_new_tokens": 8, "mask_token_id": MASK} | options, custom_generate=generate)


def ours(ids: torch.Tensor, **options: Any) -> torch.Tensor:
    denoiser = tabes.load(FAMILIES["llama-grouped"].build(torch.float32), mask_token_id=MASK)
    return tabes.generate(denoiser, input_ids=ids, **{"max_new_tokens": 8} | options).sequences


@pytest.mark.parametrize("sampler", ["boe", "confidence", "lookahead", "klass"])
def test_as_in_tabes(sampler: str, model: Any, prompt: torch.Tensor) -> None:
    found = run(model, prompt, sampler=sampler, num_steps=4, block_length=4, eos_token_id=None)
    assert found.dtype == torch.int64 and torch.equal(found[:, :7], prompt)
    assert torch.equal(found, ours(prompt, sampler=sampler, num_steps=4, block_length=4))


def test_parameters_and_ready_made_samplers(model: Any, prompt: torch.Tensor) -> None:
    rule = tabes.sampler("threshold", threshold=0.03)
    found = run(model, prompt, sampler=rule, eos_token_id=None)
    assert torch.equal(
        found, run(model, prompt, sampler="threshold", parameters={"threshold": 0.03}, eos_token_id=None)
    )
    assert torch.equal(found, ours(prompt, sampler=rule))


def test_left_padding_changes_nothing(model: Any, prompt: torch.Tensor) -> None:
    padded = torch.cat([torch.full((1, 3), PAD), prompt[:1, 3:]], 1)
    both = torch.cat([padded, prompt[1:]])
    mask = torch.ones_like(both)
    mask[0, :3] = 0
    found = run(model, both, attention_mask=mask, sampler="confidence", eos_token_id=None)
    assert torch.equal(found[:, :7], both)
    alone = run(model, prompt[:1, 3:], sampler="confidence", eos_token_id=None)
    assert torch.equal(found[0, 3:], alone[0])


def test_behind_an_end_token_is_padding(model: Any, prompt: torch.Tensor) -> None:
    plain = run(model, prompt, sampler="confidence", eos_token_id=None)
    end = int(plain[0, 10])
    found = run(model, prompt, sampler="confidence", eos_token_id=end, pad_token_id=PAD)
    for row in range(2):
        new = found[row, 7:].tolist()
        if end in new:
            at = new.index(end)
            assert set(new[at + 1 :]) <= {PAD} and new[:at] == plain[row, 7 : 7 + at].tolist()
    assert end in found[0, 7:].tolist()


def test_drawing_follows_the_generation_config(model: Any, prompt: torch.Tensor) -> None:
    options: dict[str, Any] = {"sampler": "confidence", "do_sample": True, "temperature": 0.7, "eos_token_id": None}
    set_seed(3)
    first = run(model, prompt, num_return_sequences=3, top_k=None, **options)
    assert first.shape == (6, 15) and not torch.equal(first[0], first[1])
    set_seed(3)
    assert torch.equal(first, run(model, prompt, num_return_sequences=3, top_k=None, **options))
    likeliest = run(model, prompt, top_k=1, **options)
    assert torch.equal(likeliest, run(model, prompt, sampler="confidence", eos_token_id=None))
    seeded = run(model, prompt, top_p=0.9, top_k=20, seed=11, **options)
    expected = ours(prompt, sampler="confidence", temperature=0.7, top_p=0.9, top_k=20, seed=11)
    assert torch.equal(seeded, expected)


def test_a_dict_has_steps_and_cost(model: Any, prompt: torch.Tensor) -> None:
    found = run(model, prompt, sampler="confidence", return_dict_in_generate=True, eos_token_id=None)
    assert isinstance(found, Generated) and found["sequences"] is found[0]
    assert found.steps is not None and len(found.steps) == 8 == found.cost.forward_calls


def test_the_model_is_as_it_was(prompt: torch.Tensor) -> None:
    model = FAMILIES["llama-grouped"].build(torch.float32)
    model.train()
    model.lm_head.weight.requires_grad_(False)
    before = model.config._attn_implementation
    for _ in range(2):
        run(model, prompt, sampler="boe", eos_token_id=None)
        assert all(part.training for part in model.modules()) and model.config._attn_implementation == before
        assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["lm_head.weight"]


class Streamer:
    def __init__(self) -> None:
        self.got: list[int] = []
        self.ended = False

    def put(self, value: torch.Tensor) -> None:
        self.got += value.flatten().tolist()

    def end(self) -> None:
        self.ended = True


def test_a_streamer(model: Any, prompt: torch.Tensor) -> None:
    streamer = Streamer()
    found = run(model, prompt[:1], sampler="left_to_right", stream_to=streamer, eos_token_id=None)
    assert streamer.ended and streamer.got[-8:] == found[0, 7:].tolist()


class Never(StoppingCriteria):
    def __call__(self, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
        return torch.zeros(len(input_ids), dtype=torch.bool)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 2}, "the generation mode 'beam_search' means nothing"),
        ({"prompt_lookup_num_tokens": 3}, "the generation mode 'assisted_generation' means nothing"),
        ({"repetition_penalty": 1.3}, "logits processor RepetitionPenaltyLogitsProcessor means nothing"),
        ({"min_new_tokens": 3, "eos_token_id": END}, "logits processor MinLength"),
        ({"guidance_scale": 1.5}, "UnbatchedClassifierFreeGuidanceLogitsProcessor .*cfg_scale="),
        ({"max_time": 3.0}, "stopping criterion MaxTimeCriteria means nothing"),
        ({"stopping_criteria": [Never()]}, "stopping criterion Never means nothing"),
        ({"return_dict_in_generate": True, "output_scores": True}, "output_scores means nothing"),
        ({"position_ids": torch.arange(3, 10).expand(2, -1)}, "position_ids of your own"),
        ({"sampler": tabes.sampler("confidence"), "num_steps": 3}, "num_steps=3 was given besides a ready-made"),
        ({"stop": "END"}, "needs a tokenizer"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any], message: str, model: Any, prompt: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=message):
        run(model, prompt, **options)


def test_bad_input(model: Any, prompt: torch.Tensor) -> None:
    with pytest.raises(UnknownNameError, match="unknown sampler 'confidenc'"):
        run(model, prompt, sampler="confidenc")
    with pytest.raises(ModelError, match=r"has no mask token .* pass mask_token_id="):
        run(FAMILIES["llama"].build(torch.float32), prompt, mask_token_id=None)
    with pytest.raises(ModelError, match=r"reads left to right: set config.is_causal = False"):
        run(Family("LlamaForCausalLM", "LlamaConfig").build(torch.float32), prompt)
    with pytest.raises(UsageError, match=r"call model.generate"):
        generate(model, prompt)


def test_masked_language_models_have_no_generate() -> None:
    """docs/interop.md says so: there tabes.generate is the way."""
    assert not hasattr(BertForMaskedLM, "generate")
