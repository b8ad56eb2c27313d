from __future__ import annotations

import pytest

import tabes
from tabes.bench import SamplerSpec, parse_sampler, parse_samplers, parse_task
from tabes.bench.specs import parse_parameters
from tabes.budgets import TokensPerStep
from tabes.errors import UnknownNameError, UsageError
from tabes.rowcache import RowCache
from tabes.sampling import PartSampler
from tabes.suppression import Suppress
from tabes.tasks import SudokuTask
from tabes.writers import Categorical


def test_a_name_alone_is_that_sampler() -> None:
    spec = parse_sampler(" margin ")
    assert (spec.name, dict(spec.parameters), spec.cache) == ("margin", {}, None)
    assert spec.build() == tabes.sampler("margin")


def test_parameters_reach_the_parts() -> None:
    rule = parse_sampler("confidence:tokens_per_step=2:temperature=0.5:top_k=3").build()
    assert isinstance(rule, PartSampler) and isinstance(rule.writer, Categorical)
    assert rule.budget == TokensPerStep(2)
    assert (rule.writer.temperature, rule.writer.top_k) == (0.5, 3)


@pytest.mark.parametrize(("text", "every"), [("confidence@cache=4", 4), ("confidence@cache=block", "block")])
def test_the_cache_wraps_the_model(text: str, every: int | str, guesser: tabes.Denoiser) -> None:
    wrapped = parse_sampler(text).wrap(guesser)
    assert isinstance(wrapped, RowCache) and wrapped.every == every
    assert parse_sampler("confidence").wrap(guesser) is guesser


def test_tokens_that_must_not_come_wrap_the_model(guesser: tabes.Denoiser) -> None:
    spec = parse_sampler("confidence@suppress=3@cache=2@suppress=5")
    wrapped = spec.wrap(guesser)
    assert (spec.cache, spec.suppress) == (2, (3, 5))
    assert isinstance(wrapped, Suppress) and wrapped.ids == (3, 5)
    assert isinstance(wrapped.denoiser, RowCache)
    assert parse_sampler("confidence@suppress=end", cache=8) == SamplerSpec(
        "confidence@suppress=end", "confidence", {}, 8, ("end",)
    )


def test_shared_settings_hold_unless_the_sampler_says_otherwise() -> None:
    shared = {"temperature": 0.7, "num_steps": 10, "top_p": None}
    plain, own = parse_samplers("confidence,margin:temperature=0@cache=2", shared, cache=8)
    assert (dict(plain.parameters), plain.cache) == ({"temperature": 0.7, "num_steps": 10}, 8)
    assert (dict(own.parameters), own.cache) == ({"temperature": 0, "num_steps": 10}, 2)


def test_a_samplers_own_pace_replaces_the_shared_one() -> None:
    spec = parse_sampler("confidence:tokens_per_step=2", {"num_steps": 10})
    assert dict(spec.parameters) == {"tokens_per_step": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("cosine", "cosine"),
    ],
)
def test_values_are_numbers_words_or_text(text: str, value: object) -> None:
    found = parse_parameters([f"name={text}"], "a test")["name"]
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no sampler was named"),
        (",", "no sampler was named"),
        ("margin,margin", "listed twice"),
        ("margin:tokens_per_step", "is not name=value"),
        ("margin:=2", "is not name=value"),
        ("margin:top_k=", "is not name=value"),
        ("margin:top_k=1:top_k=2", "given twice"),
        ("margin@cash=4", "did you mean cache"),
        ("margin@4", "is not name=value"),
        ("margin@suppress", "is not name=value"),
        ("margin@suppress=eos", "suppress is 'eos'; give a token id"),
        ("margin@suppress=-1", "suppress is -1"),
        ("margin@cache=1@cache=2", "given twice"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_samplers(text)


@pytest.mark.parametrize(
    ("text", "near"),
    [("confidense", "confidence"), ("margin:token_per_step=2", "tokens_per_step"), ("margim@cache=2", "margin")],
)
def test_unknown_names_list_the_near_ones(text: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=near):
        parse_sampler(text).build()


def test_a_cache_that_means_nothing_is_refused(guesser: tabes.Denoiser) -> None:
    with pytest.raises(UsageError, match="every is"):
        parse_sampler("margin@cache=0").wrap(guesser)


def test_tasks_are_written_the_same_way() -> None:
    assert parse_task("sudoku") == SudokuTask(32)
    assert parse_task("sudoku:clues=28", {"clues": 40}) == SudokuTask(28)
    assert parse_task("sudoku", {"clues": 40}) == SudokuTask(40)
    with pytest.raises(UnknownNameError, match="sudoku"):
        parse_task("sodoku")
    with pytest.raises(UnknownNameError, match="clues"):
        parse_task("sudoku:clue=3")
