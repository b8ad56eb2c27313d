"""Dream's presets: the authors' settings, counts per batch row, the coins of `origin`. Traces: tests/test_golden.py."""

from __future__ import annotations

import pytest
import torch

import tabes
from tabes import Canvas, TabesError
from tabes.budgets import Coins, Dream
from tabes.budgets.dream import _shares
from tabes.rankings import Confidence, Entropy, Margin, Random
from tabes.sampling import PartSampler
from tabes.writers import Argmax, Categorical
from tests.conftest import MASK
from tests.rankings.test_local import filled


def test_presets_are_the_authors_settings() -> None:
    drawn = Categorical(0.2, 0.95)
    for name, ranking in (
        ("dream-confidence", Confidence(read="writer")),
        ("dream-margin", Margin(read="writer")),
        ("dream-entropy", Entropy(read="writer")),
    ):
        assert tabes.sampler(name, num_steps=8) == PartSampler(ranking, Dream(8, 1e-3), drawn)
    assert tabes.sampler("dream-origin") == PartSampler(Random(), Coins(None, 1e-3), Argmax())
    assert tabes.sampler("dream-entropy", temperature=0.0, noise=0.5, eps=0.01) == PartSampler(
        Entropy(0.5, "writer"), Dream(None, 0.01), Argmax(0.95)
    )


@pytest.mark.parametrize("name", ["dream-confidence", "dream-margin", "dream-entropy", "dream-origin"])
def test_a_batch_row_is_the_row_alone(name: str, golden_model: tabes.Denoiser) -> None:
    """With other prompts, numbers of masks and so counts and steps; the reference takes the batch's mean of masks."""
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    for block_length in (None, 4):
        for num_steps in (None, 5, 30):
            rule = tabes.sampler(name, num_steps=num_steps)
            arguments = {"mask_id": MASK, "max_new_tokens": 9, "block_length": block_length}
            together = Canvas.create(prompt_BP, attention_mask=attention_BP, **arguments)  # type: ignore[arg-type]
            last = list(tabes.decode(golden_model, together, rule, seed=4))[-1].canvas.tokens_BL
            assert MASK not in last[~together.padding_BL]
            for row in range(2):
                alone = Canvas.create(prompt_BP[row : row + 1, 3 * (1 - row) :], **arguments)  # type: ignore[arg-type]
                found = list(tabes.decode(golden_model, alone, rule, seed=4 + row))[-1].canvas.tokens_BL
                assert found[0].equal(last[row, 3 * (1 - row) :])


def test_coins_fall_as_often_as_the_times_say(golden_model: tabes.Denoiser) -> None:
    """1 - s / t at every step, for every row by itself: variance that of independent coins."""
    rows, steps = 60, 6
    prompt = torch.tensor([[3, 4, 5]]).expand(40, -1)
    canvas = Canvas.create(prompt, mask_id=MASK, max_new_tokens=rows)
    times = torch.linspace(1, 1e-3, steps + 1, dtype=torch.float64)
    for step in tabes.decode(golden_model, canvas, tabes.sampler("dream-origin", num_steps=steps), seed=0):
        open_B = step.before.masked_BL.sum(1).double()
        written_B = open_B - step.canvas.masked_BL.sum(1)
        chance = float(1 - times[step.index + 1] / times[step.index]) if step.index < steps - 1 else 1.0
        spread_B = (open_B * chance * (1 - chance)).sqrt()
        if chance == 1.0:
            assert written_B.equal(open_B)
            break
        z_B = (written_B - open_B * chance) / spread_B
        assert abs(float(z_B.mean())) < 4 / len(z_B) ** 0.5
        assert 0.6 < float(z_B.std()) < 1.5


def test_no_order_has_any_say_in_the_coins(golden_model: tabes.Denoiser) -> None:
    found = [
        [step.positions for step in filled(golden_model, tabes.sampler(name, budget="coins", num_steps=5))[1]]
        for name in ("random", "confidence", "left_to_right")
    ]
    assert found[0] == found[1] == found[2]


def test_coins_with_one_step_write_everything(golden_model: tabes.Denoiser) -> None:
    at_once = filled(golden_model, tabes.sampler("dream-origin", num_steps=1))
    assert len(at_once[1]) == 1
    assert at_once[0] == filled(golden_model, tabes.sampler("confidence", num_steps=1))[0]


def test_the_grid_is_the_reference_s_in_float32() -> None:
    shares = _shares(512, 1e-3)
    assert shares.dtype == torch.float32
    assert int(512 * shares[0]) == 0, "1 - t_1 / t_0 is a hair below 1/512"
    assert float(shares[-1]) == 1.0


def test_the_counts_are_dream_s_with_any_ranking(golden_model: tabes.Denoiser) -> None:
    for name in ("margin", "random"):
        _, steps = filled(golden_model, tabes.sampler(name, budget="dream", num_steps=7))
        assert [len(step.positions[0]) for step in steps] == [1, 2, 2, 2, 2, 2, 3]
    with pytest.raises(TabesError, match=r"eps is 1.0; it must be above 0 and below 1"):
        tabes.sampler("dream-entropy", eps=1.0)
