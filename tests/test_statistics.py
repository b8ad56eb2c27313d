"""Row statistics against torch's own distributions, in every size that takes another path."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical

from tabes.statistics import IMPOSSIBLE, STATISTICS, summarise


@pytest.mark.parametrize("vocab", [2, 9, 513, 8192, 512 * 20 + 7])
@pytest.mark.parametrize("scale", [0.1, 3.0, 40.0])
def test_against_torch(vocab: int, scale: float) -> None:
    logits_NV = torch.randn(13, vocab, generator=torch.Generator().manual_seed(vocab)) * scale
    reference = Categorical(logits=logits_NV.double())
    top_NK = reference.probs.topk(2).values
    found = summarise(logits_NV, STATISTICS)
    assert found["top_token"].equal(logits_NV.argmax(-1))
    torch.testing.assert_close(found["top_logit"], logits_NV.amax(-1))
    torch.testing.assert_close(found["log_normaliser"].double(), logits_NV.double().logsumexp(-1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found["confidence"].double(), top_NK[:, 0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found["margin"].double(), top_NK[:, 0] - top_NK[:, 1], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found["entropy"].double(), reference.entropy(), rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("vocab", [10, 512 * 20 + 7])
def test_ties_go_to_the_lowest_id(vocab: int) -> None:
    logits_NV = torch.zeros(4, vocab)
    logits_NV[1, [3, 7]] = 1.0
    logits_NV[2, [vocab - 2, vocab - 1]] = 1.0
    logits_NV[3, [1, vocab - 1]] = 1.0
    assert summarise(logits_NV, frozenset({"top_token"}))["top_token"].tolist() == [0, 3, vocab - 2, 1]


def test_impossible_tokens_have_no_weight() -> None:
    logits_NV = torch.tensor([[0.0, 0.0, IMPOSSIBLE], [5.0, IMPOSSIBLE, IMPOSSIBLE]])
    found = summarise(logits_NV, STATISTICS)
    torch.testing.assert_close(found["entropy"], torch.tensor([2.0, 1.0]).log(), rtol=0, atol=1e-6)
    torch.testing.assert_close(found["margin"], torch.tensor([0.0, 1.0]))


def test_gradient_flows_through_the_entropy() -> None:
    logits_NV = torch.randn(3, 11, dtype=torch.float64, requires_grad=True)
    entropy_N = summarise(logits_NV, frozenset({"entropy"}))["entropy"]
    (gradient_NV,) = torch.autograd.grad(entropy_N.sum(), logits_NV)
    p_NV = logits_NV.softmax(-1)
    expected_NV = -p_NV * (p_NV.log() + Categorical(logits=logits_NV).entropy()[:, None])
    torch.testing.assert_close(gradient_NV, expected_NV)
