"""Drawing tokens: exact inverse CDF, filters as transformers defines them, frequencies as the distribution says."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import TopKLogitsWarper, TopPLogitsWarper

import tabes
from tabes.errors import TabesError, UsageError
from tabes.writers import Argmax, Categorical
from tabes.writers.distribution import distribution, nucleus
from tabes.writers.inverse import draw
from tests.conftest import MASK
from tests.steering.scenes import view_of


@given(st.integers(1, 1500), st.floats(0, 1, exclude_max=True), st.integers(0, 10_000))
@settings(deadline=None, max_examples=60)
def test_draw_is_the_inverse_cdf(vocab: int, uniform: float, seed: int) -> None:
    weights_NV = torch.rand(1, vocab, generator=torch.Generator().manual_seed(seed)).clamp(min=0.3) - 0.3
    weights_NV[0, seed % vocab] = 1.0
    token = int(draw(weights_NV, torch.tensor([uniform], dtype=torch.float64)))
    cumulative_V = weights_NV[0].double().cumsum(0)
    target = uniform * float(cumulative_V[-1])
    below = float(cumulative_V[token - 1]) if token else 0.0
    assert weights_NV[0, token] > 0
    assert below - 1e-9 <= target <= float(cumulative_V[token]) + 1e-9


def test_the_largest_uniform_number_still_means_a_token() -> None:
    weights_NV = torch.zeros(1, 1300)
    weights_NV[0, [3, 700]] = 1.0
    assert draw(weights_NV, torch.tensor([1.0], dtype=torch.float64)).tolist() == [700]
    assert draw(weights_NV, torch.tensor([0.0], dtype=torch.float64)).tolist() == [3]


def test_frequencies() -> None:
    logits_V = torch.tensor([0.0, 1.0, 2.0, -1.0])
    N = 40_000
    uniform_N = (torch.arange(N, dtype=torch.float64) + 0.5) / N
    tokens_N = draw((logits_V / 0.7).softmax(-1).expand(N, -1), uniform_N)
    expected_V = (logits_V / 0.7).softmax(-1)
    torch.testing.assert_close(tokens_N.bincount(minlength=4) / N, expected_V, rtol=0, atol=1e-4)


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("top_k", [None, 1, 5])
@pytest.mark.parametrize(("vocab", "spread"), [(30, 2.0), (500, 0.5), (500, 2.0), (500, 5.0)])
def test_filters_are_those_of_transformers(top_p: float, top_k: int | None, vocab: int, spread: float) -> None:
    logits_NV = torch.randn(20, vocab, generator=torch.Generator().manual_seed(0)) * spread
    mine_NV = distribution(logits_NV, 0.8, top_p, top_k)
    mine_NV = mine_NV / mine_NV.sum(1, keepdim=True)
    scores_NV = TopPLogitsWarper(top_p)(None, logits_NV / 0.8)
    theirs_NV = scores_NV if top_k is None else TopKLogitsWarper(top_k)(None, scores_NV)
    torch.testing.assert_close(mine_NV, theirs_NV.softmax(-1))


@pytest.mark.parametrize("vocab", [8, 256])  # powers of two: no rounding at the border
def test_of_equal_tokens_at_the_border_the_lowest_ids_are_kept(vocab: int) -> None:
    p_NV = torch.full((2, vocab), 1 / vocab)
    p_NV[1] = 0.3 / vocab
    p_NV[1, -1] += 0.7
    kept_NV = nucleus(p_NV, 0.5) > 0
    assert kept_NV[0].nonzero().squeeze(1).tolist() == list(range(vocab // 2))
    assert kept_NV[1].nonzero().squeeze(1).tolist() == [vocab - 1]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_k": 0}, "top_k is 0"),
    ],
)
def test_bad_parameters(parameters: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Categorical(**parameters)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_draw_from_what_is_no_distribution_raises(broken: float, golden_model: tabes.Denoiser) -> None:
    """Also where no ranking reads anything of the prediction."""

    class Broken:
        """The golden model with one wrong logit."""

        def __init__(self, source: Any) -> None:
            self.source, self.vocab_size = source, source.vocab_size

        def __len__(self) -> int:
            return len(self.source)

        def logits(self, rows: slice) -> Tensor:
            logits_nV: Tensor = self.source.logits(rows).clone()
            logits_nV[2, 40] = broken
            return logits_nV

    canvas = tabes.Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK, max_new_tokens=6)
    for writer in (Categorical(0.7), Categorical(1.0, 0.9), Argmax()):
        prediction = golden_model.predict(canvas, canvas.masked_BL, statistics=writer.statistics)
        prediction.source = Broken(prediction.source)  # type: ignore[assignment]
        with pytest.raises(TabesError, match="top_logit is not finite at batch row 0, position 5"):
            writer.propose(view_of(golden_model, canvas), prediction)


def test_nothing_to_read_is_nothing_proposed(golden_model: tabes.Denoiser) -> None:
    canvas = tabes.Canvas.create(torch.tensor([[3, 4, 5]]), mask_id=MASK)
    for writer in (Categorical(0.7), Argmax(0.9)):
        prediction = golden_model.predict(canvas, canvas.masked_BL)
        reads = frozenset({"confidence", "margin", "entropy", "ends"})
        proposal = writer.propose(view_of(golden_model, canvas), prediction, reads)
        assert set(proposal.drawn_from) == reads
        assert not proposal.tokens_BL.any()


def test_argmax_takes_filters_for_what_is_read_only() -> None:
    for parameters, message in (
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0"),
        ({"top_k": 0.5}, "top_k is 0.5; it must be a whole number"),
    ):
        with pytest.raises(UsageError, match=message.split(";")[0]):
            Argmax(**parameters)  # type: ignore[arg-type]
