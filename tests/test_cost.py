"""The ledger: what is counted, and how well the work estimate agrees with torch's own FLOP counter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AlbertConfig, AlbertForMaskedLM, BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

import tabes
from tabes import Canvas, Cost, Guidance
from tests.conftest import MASK

SMALL: dict[str, Any] = {
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}


def bert() -> BertForMaskedLM:
    return BertForMaskedLM(BertConfig(**SMALL))


def albert() -> AlbertForMaskedLM:
    return AlbertForMaskedLM(AlbertConfig(**SMALL, embedding_size=24))


def llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2, is_causal=False, pad_token_id=0))


@pytest.fixture(params=[bert, albert, llama], ids=["bert", "albert", "llama"])
def model(request: pytest.FixtureRequest) -> tabes.Denoiser:
    torch.manual_seed(0)
    return tabes.load(request.param(), mask_token_id=210)


def canvas(length: int = 96) -> Canvas:
    return Canvas.create(torch.arange(1, 41).expand(2, -1), mask_id=210, max_new_tokens=length - 40)


def counted(counter: FlopCounterMode) -> float:
    return float(counter.get_total_flops())


def test_a_full_forward_agrees_with_torch(model: tabes.Denoiser) -> None:
    everything_BL = torch.ones_like(canvas().padding_BL)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.no_grad():
        model.predict(canvas(), everything_BL).logits_NV()
    assert model.ledger.flops == pytest.approx(counted(counter), rel=0.05)
    assert model.ledger.flops == pytest.approx(model.full_forward_flops(canvas()))
    assert model.ledger.head_rows == 2 * 96


def test_a_replay_and_its_gradient_agree_with_torch(model: tabes.Denoiser) -> None:
    rows_BL = canvas().positions_BL >= 72
    with torch.no_grad():
        memory = model.predict(canvas(), rows_BL, remember=True).memory
    before = model.ledger.flops, model.ledger.forward_tokens
    # autograd.grad on a leaf inside the counter raises in torch 2.13.
    leaf_BLE = model.network.embed(canvas().tokens_BL).requires_grad_()
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, torch.enable_grad():
        embeddings_BLE = leaf_BLE * 1
        prediction = model.replay(memory, rows_BL, embeddings_BLE=embeddings_BLE)
        torch.autograd.grad(prediction.entropy_BL.sum(), embeddings_BLE)
    assert model.ledger.flops - before[0] == pytest.approx(counted(counter), rel=0.05)
    assert model.ledger.forward_tokens - before[1] == 2 * 24
    assert (model.ledger.backward_calls, model.ledger.backward_tokens) == (1, 2 * 24)


def test_only_rows_that_may_be_written_pass_the_head(golden_model: tabes.Denoiser) -> None:
    output = tabes.generate(
        golden_model, sampler="confidence", input_ids=[[1, 2, 3]], max_new_tokens=8, num_steps=4, block_length=4
    )
    assert [step.cost.head_rows for step in output.steps] == [4, 2, 4, 2]
    assert [step.cost.forward_tokens for step in output.steps] == [11] * 4
    assert output.cost.backward_calls == 0
    assert 3.0 < output.cost.forward_equivalents < 4.0


def test_guidance_is_counted_as_the_double_work_it_is(golden_model: tabes.Denoiser) -> None:
    plain = tabes.generate(golden_model, sampler="confidence", input_ids=[[1, 2, 3]], max_new_tokens=8).cost
    guided = tabes.generate(
        golden_model, sampler="confidence", input_ids=[[1, 2, 3]], max_new_tokens=8, cfg_scale=1.0
    ).cost
    assert guided.forward_calls == plain.forward_calls
    assert guided.forward_tokens == 2 * plain.forward_tokens
    assert guided.head_rows == 2 * plain.head_rows
    assert guided.forward_equivalents == pytest.approx(2 * plain.forward_equivalents)
    assert Guidance(golden_model, 1.0).base is golden_model


def test_done_rows_cost_nothing_more(golden_model: tabes.Denoiser) -> None:
    canvas = Canvas.create(torch.tensor([[3, MASK, 4, 5], [MASK] * 4]), mask_id=MASK)
    steps = list(tabes.decode(golden_model, canvas, tabes.sampler("confidence")))
    assert [step.cost.forward_tokens for step in steps] == [8, 4, 4, 4]
    assert steps[0].done_B.tolist() == [True, False]


def test_costs_add_up() -> None:
    first = Cost(forward_calls=1, head_rows=3, seconds=0.5, flops=10.0, full_forward_flops=20.0)
    second = Cost(forward_calls=2, peak_bytes=7, flops=30.0, full_forward_flops=20.0)
    total = first + second
    assert (total.forward_calls, total.head_rows, total.peak_bytes) == (3, 3, 7)
    assert total.forward_equivalents == 2.0
    assert total.as_dict()["forward_equivalents"] == 2.0
    assert Cost().forward_equivalents == 0.0


def test_a_statistic_not_declared_costs_another_run_of_the_head_and_is_right() -> None:
    torch.manual_seed(0)
    wide = tabes.load(BertForMaskedLM(BertConfig(**(SMALL | {"vocab_size": 300_000}))), mask_token_id=210)
    rows_BL = torch.ones_like(canvas().padding_BL)
    with torch.no_grad():
        declared = wide.predict(canvas(), rows_BL, statistics=("confidence", "entropy"))
        values = declared.confidence_BL, declared.entropy_BL
        assert wide.ledger.head_rows == 192
        late = wide.predict(canvas(), rows_BL, statistics=("confidence",))
        assert late.confidence_BL.equal(values[0])
        assert late.entropy_BL.equal(values[1])
    assert wide.ledger.head_rows == 3 * 192
