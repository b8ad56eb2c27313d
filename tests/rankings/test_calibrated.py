"""PC-Sampler's score: the recorded traces, its limits, and the shapes of canvas it must be right on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes import Canvas, Guidance, RowCache
from tabes.errors import UsageError
from tabes.frequencies import Frequencies
from tabes.parts import Proposal
from tabes.presets import sampler
from tabes.randomness import Randomness
from tabes.rankings import Calibrated
from tabes.sampling import PartSampler
from tabes.view import View
from tests.conftest import GOLDEN, MASK

TABLE = GOLDEN / "pc_frequency_table.json"
CASES = sorted((GOLDEN / "pc_sampler").glob("*.json"))
V = 67
PROMPT = torch.tensor([[21, 20, 29, 15, 12, 7]])


def canvas(new: int = 16, **arguments: Any) -> Canvas:
    return Canvas.create(PROMPT, mask_id=MASK, max_new_tokens=new, **arguments)


def decoded(model: Any, of: Canvas, rule: Any, seed: int = 3) -> list[tabes.Step]:
    return list(tabes.decode(model, of, rule, seed=seed))


def order(model: Any, of: Canvas, rule: Any) -> list[tuple[int, ...]]:
    return [step.positions[0] for step in decoded(model, of, rule)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_trace(path: Path, golden_model: tabes.Denoiser) -> None:
    case = json.loads(path.read_text())
    params = case["params"]
    output = tabes.generate(
        golden_model,
        input_ids=torch.tensor([case["prompt_ids"]]),
        max_new_tokens=case["gen_length"],
        sampler=sampler(
            "pc",
            table=str(GOLDEN / params["frequency_table"]),
            decay=params["lambd"],
            cap=params["alpha"],
            num_steps=params["steps"],
        ),
        block_length=params["block_length"],
    )
    mine = [[list(pair) for pair in zip(s.positions[0], s.tokens[0], strict=True)] for s in output.steps]
    assert mine == [step["committed"] for step in case["steps"]]
    assert output.sequences[0].tolist() == case["final_ids"]
    assert output.cost.forward_calls == case["counts"]["forward_calls"]


def test_the_defaults_are_the_published_ones() -> None:
    assert vars(Calibrated()) | {"frequencies": None} == {
        "table": None,
        "decay": 0.25,
        "cap": 10.0,
        "frequencies": None,
    }


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_score_is_the_formula(golden_model: tabes.Denoiser, temperature: float) -> None:
    """Every number by hand, from the whole distribution, in float64; with the drawn token's own probability."""
    decay, cap = 0.1, 3.0
    given = json.loads(TABLE.read_text())
    counts, total = given["p_baseline_dict"], given["num_token"]
    of = canvas(12, block_length=6)
    rule = sampler("pc", table=TABLE, decay=decay, cap=cap, temperature=temperature)
    for step in decoded(golden_model, of, rule):
        p_LV = golden_model.predict(step.before, step.before.open_BL).logits_NV().double().softmax(-1)
        open_rows = step.before.open_BL[0].nonzero().squeeze(1).tolist()
        ((position,), (token,), (score,)) = step.positions[0], step.tokens[0], step.scores[0]
        p = float(p_LV[open_rows.index(position), token])
        calibrated = min(-p * log(counts.get(str(token), 1) / total + 1e-9), cap)
        expected = exp(-decay * ((position - PROMPT.shape[1]) % 6)) * calibrated
        assert exp(score) == pytest.approx(expected, rel=1e-4)


def test_without_table_and_decay_it_is_confidence(golden_model: tabes.Denoiser) -> None:
    reference = decoded(golden_model, canvas(), sampler("confidence", num_steps=8))
    uniform = Frequencies(dict.fromkeys(range(V), 5))
    for table in (None, uniform):
        rule = sampler("pc", table=table, decay=0, num_steps=8)
        same = decoded(golden_model, canvas(), rule)
        assert [step.positions for step in same] == [step.positions for step in reference]
        assert same[-1].canvas.tokens_BL.equal(reference[-1].canvas.tokens_BL)
    skewed = sampler("pc", table=TABLE, decay=0, num_steps=8)
    assert order(golden_model, canvas(), skewed) != [step.positions[0] for step in reference]


@pytest.mark.parametrize("setting", [{"decay": 60.0}, {"decay": 0.25, "cap": 1e-12}, {"decay": 0.0, "cap": 1e-12}])
def test_left_to_right_limits(golden_model: tabes.Denoiser, setting: dict[str, Any]) -> None:
    """A large decay, or a cap that binds everywhere: then only places differ, and ties go to the lowest row."""
    for shape in ({}, {"block_length": 5}):
        expected = order(golden_model, canvas(**shape), sampler("left_to_right", num_steps=8))
        assert order(golden_model, canvas(**shape), sampler("pc", table=TABLE, num_steps=8, **setting)) == expected


def scene(of: Canvas, tokens_BL: Tensor, vocab_size: int) -> tuple[Any, Any, Proposal]:
    """What a ranking is asked with, where every row is certain of the token it proposes."""
    zero_BL = torch.zeros(of.tokens_BL.shape)
    prediction = SimpleNamespace(vocab_size=vocab_size, log_normaliser_BL=zero_BL)
    return SimpleNamespace(canvas=of), prediction, Proposal(tokens_BL, zero_BL)


def test_far_rows_do_not_underflow() -> None:
    """exp(-0.25 x 500) is 0 in float32: then all far rows would tie, and the order be left to right."""
    length = 700
    of = Canvas.create(torch.full((1, length), length), mask_id=length)
    tokens_BL = torch.arange(length)[None]
    table = Frequencies({token: 100 for token in range(length) if token != 601}, total=100 * length)
    (scores_L,) = Calibrated(table, cap=20).scores(*scene(of, tokens_BL, length + 1))
    assert bool(torch.isfinite(scores_L).all())
    assert scores_L[601] > scores_L[600] > scores_L[602], "the uncommon token is worth more than one place"
    uncommon = log(100 * length) / log(length) * exp(-0.25)
    assert exp(scores_L[601] - scores_L[600]) == pytest.approx(uncommon, rel=1e-3)


def places(of: Canvas) -> list[list[float]]:
    """What `pos` is, read off the scores: all else equal they are minus decay x pos."""
    scores_BL = Calibrated(decay=1.0, cap=1.0).scores(*scene(of, torch.zeros_like(of.tokens_BL), V))
    return [(-row[is_open]).tolist() for row, is_open in zip(scores_BL, of.open_BL, strict=True)]


def test_places_count_from_the_block_and_skip_given_text() -> None:
    assert places(canvas(4)) == [[0, 1, 2, 3]]
    holes = torch.tensor([[3, MASK, 4, 5, 6, MASK, MASK, 7]])
    assert places(Canvas.create(holes, mask_id=MASK, max_new_tokens=1)) == [[0, 1, 2, 3]]
    blocks = canvas(7, block_length=3)
    assert places(blocks) == [[0, 1, 2]]
    written = blocks.with_tokens(torch.where(blocks.positions_BL == 7, 1, blocks.tokens_BL))
    assert places(written) == [[0, 2]], "a written row keeps its place"
    later = blocks.with_tokens(torch.where(blocks.block_BL == 0, 1, blocks.tokens_BL))
    assert places(later) == [[0, 1, 2]], "the count starts again in the next block"


def test_places_ignore_padding() -> None:
    padded = Canvas.create(
        torch.tensor([[65, 65, 9], [7, 8, 9]]),
        mask_id=MASK,
        attention_mask=torch.tensor([[0, 0, 1], [1, 1, 1]]),
        max_new_tokens=3,
    )
    assert places(padded) == [[0, 1, 2], [0, 1, 2]]


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda model: model,
    "guided": lambda model: Guidance(model, 0.8),
    "cached": lambda model: RowCache(model, 3),
}


@pytest.mark.parametrize("wrapper", list(WRAPPERS))
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("block_length", [None, 4])
def test_a_batch_row_decodes_as_alone(
    golden_model: tabes.Denoiser, wrapper: str, temperature: float, block_length: int | None
) -> None:
    """Left padding, different lengths, a hole in the prompt, blocks, guidance, a cache, drawn tokens."""
    model = WRAPPERS[wrapper](golden_model)
    prompt_BP = torch.tensor([[65, 65, 65, 7, 21], [3, MASK, 14, 15, 30]])
    attention_BP = torch.tensor([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    both = Canvas.create(
        prompt_BP, mask_id=MASK, attention_mask=attention_BP, max_new_tokens=9, block_length=block_length
    )
    rule = sampler("pc", table=TABLE, temperature=temperature, num_steps=5)
    together = decoded(model, both, rule)[-1].canvas.tokens_BL
    assert MASK not in together[both.writable_BL]
    for row in range(2):
        content_L = ~both.padding_BL[row]
        alone = both.select(torch.tensor([row])).map(lambda value_BL, kept=content_L: value_BL[:, kept])  # type: ignore[misc]
        assert decoded(model, alone, rule, seed=3 + row)[-1].canvas.tokens_BL[0].equal(together[row][content_L])


def test_nothing_is_computed_per_vocabulary_entry(golden_model: tabes.Denoiser) -> None:
    """The head runs once over the open rows, as for confidence, and the table is turned into a vector once."""
    table = Frequencies.load(TABLE)
    costs = [
        sum(step.cost.head_rows for step in decoded(golden_model, canvas(), rule))
        for rule in (sampler("confidence"), sampler("pc", table=table))
    ]
    assert costs[0] == costs[1]
    device = torch.device("cpu")
    assert table.surprise(V, device) is table.surprise(V, device)


def test_a_table_of_another_vocabulary_is_refused_at_the_first_step(golden_model: tabes.Denoiser) -> None:
    rule = sampler("pc", table=Frequencies({1: 5, V: 2}))
    with pytest.raises(UsageError, match=r"counts token id 67, but the model's vocabulary ends at 66; make one"):
        decoded(golden_model, canvas(), rule)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"decay": -0.1}, "decay is -0.1; it must be 0 or more"),
        ({"decay": float("nan")}, "decay is nan"),
        ({"decay": float("inf")}, "decay is inf"),
        ({"cap": 0}, "cap is 0; it must be above 0"),
        ({"table": 3}, "table is 3; it must be a path, a Frequencies or None"),
        ({"table": "nowhere.json"}, "nowhere.json cannot be read"),
    ],
)
def test_bad_parameters(parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        sampler("pc", **parameters)
    assert words in str(caught.value)


def test_it_is_a_part_like_any_other(golden_model: tabes.Denoiser) -> None:
    rule = sampler("pc", table=TABLE)
    assert isinstance(rule, PartSampler) and isinstance(rule.ranking, Calibrated)
    assert replace(rule.ranking, decay=0.5).frequencies is not None
    view = View(canvas(), golden_model, 0, Randomness.create(0, 1, torch.device("cpu")))
    assert rule.step(view, rule.init(view.canvas))[0].write_BL.sum() == 1
