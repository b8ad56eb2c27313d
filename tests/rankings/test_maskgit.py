"""MaskGIT's own rule: the log-probability of what was drawn, and noise that is gone by the last step."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch

import tabes
from tabes import Canvas, TabesError
from tabes.budgets import Curve
from tabes.parts import Proposal
from tabes.rankings import MaskGIT
from tabes.sampling import PartSampler
from tabes.writers import Categorical
from tests.conftest import MASK
from tests.rankings.test_local import asked, filled, some
from tests.steering.scenes import view_of


def test_the_preset_is_what_the_paper_has() -> None:
    rule = tabes.sampler("maskgit", num_steps=8)
    assert rule == PartSampler(MaskGIT(4.5), Curve(8, "cosine"), Categorical(1.0))
    with pytest.raises(TabesError, match="choice_temperature is -1; it must be 0 or more"):
        tabes.sampler("maskgit", choice_temperature=-1)


def test_a_score_is_the_log_probability_of_the_drawn_token() -> None:
    """Under the model's own distribution, whatever temperature it was drawn at."""
    logits_NV = some()
    scores_N, proposal = asked(MaskGIT(0.0), Categorical(1.9, 0.9), logits_NV)
    log_p_NV = logits_NV[:, :-1].log_softmax(1)
    torch.testing.assert_close(scores_N.float(), log_p_NV.gather(1, proposal.tokens_BL[0][:, None])[:, 0])


@pytest.mark.parametrize("progress", [0.25, 0.75, 1.0])
def test_the_noise_fades_with_the_steps(progress: float, golden_model: tabes.Denoiser) -> None:
    """Of two rows whose log-probabilities differ by d, the better is first with the chance of a logistic number."""
    seeds, choice, d = 20_000, 4.5, 1.3
    canvas = Canvas.create(torch.full((seeds, 2), MASK), mask_id=MASK)

    class Certain:
        log_normaliser_BL = torch.zeros(seeds, 2)

    proposal = Proposal(
        canvas.tokens_BL, torch.tensor([[-d, 0.0]]).expand(seeds, 2), progress_B=torch.full((seeds,), progress)
    )
    scores_BL = MaskGIT(choice).scores(view_of(golden_model, canvas), Certain(), proposal)  # type: ignore[arg-type]
    temperature = choice * (1 - progress)
    expected = 1 / (1 + math.exp(-d / temperature)) if temperature else 1.0
    share = float((scores_BL[:, 1] > scores_BL[:, 0]).float().mean())
    assert share == pytest.approx(expected, abs=4 * (0.25 / seeds) ** 0.5)


@pytest.mark.parametrize("block_length", [None, 5])
def test_limits(golden_model: tabes.Denoiser, block_length: int | None) -> None:
    shape = {"block_length": block_length}
    for seed in range(3):
        still = tabes.sampler("maskgit", num_steps=7, choice_temperature=0.0)
        confident = tabes.sampler("confidence", num_steps=7, budget="curve", temperature=1.0)
        assert filled(golden_model, still, seed, **shape)[0] == filled(golden_model, confident, seed, **shape)[0]
    at_once, plain = (tabes.sampler(name, num_steps=1, temperature=1.0) for name in ("maskgit", "confidence"))
    assert filled(golden_model, at_once)[0] == filled(golden_model, plain)[0]
    greedy = tabes.sampler("maskgit", num_steps=7, choice_temperature=0.0, temperature=0.0)
    argmax = tabes.sampler("confidence", num_steps=7, budget="curve")
    assert filled(golden_model, greedy, **shape)[0] == filled(golden_model, argmax, **shape)[0]


def test_much_noise_is_a_random_order(golden_model: tabes.Denoiser) -> None:
    first = Counter(
        filled(golden_model, tabes.sampler("maskgit", temperature=0.0, choice_temperature=1e6), seed)[1][0].positions[0]
        for seed in range(60)
    )
    assert len(first) > 8


def test_the_last_step_writes_what_is_left(golden_model: tabes.Denoiser) -> None:
    _, steps = filled(golden_model, tabes.sampler("maskgit", num_steps=12), max_new_tokens=60)
    assert len(steps) == 12
    kept = [60, *(math.floor(60 * math.cos(math.pi * step / 24)) for step in range(1, 12)), 0]
    assert [len(step.positions[0]) for step in steps] == [before - after for before, after in pairwise(kept)]
