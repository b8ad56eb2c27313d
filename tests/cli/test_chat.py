"""Conversations, long prompts and ends of texts on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tabes
from tests.cli.conftest import Outcome, _bert
from tests.test_prompts import TEMPLATE, tokenizer_of

Command = Callable[..., Outcome]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory, words: object) -> Path:
    """A model of 67 words that takes 16 tokens and has a chat template; w64 ends a text."""
    folder = tmp_path_factory.mktemp("chatty")
    _bert(67, 16).save_pretrained(folder)
    tokenizer_of(words, begins=False, chat_template=TEMPLATE).save_pretrained(folder)  # type: ignore[arg-type]
    return folder


def test_a_prompt_is_what_a_user_says(command: Command, chatty: Path) -> None:
    arguments = ("generate", "-m", chatty, "-p", "w1", "-p", "w2 w3", "-n", 3, "-s", "confidence", "--json")
    model = tabes.load(chatty)
    for flags, system in ((("--chat",), None), (("--chat", "--system", "w4"), "w4"), (("--system", "w4"), "w4")):
        prompts = [tabes.chat("w1", system), tabes.chat("w2 w3", system)]
        expected = tabes.generate(model, prompts, max_new_tokens=3, sampler="confidence")
        assert command(*arguments, *flags).json["sequences"] == expected.sequences.tolist()
    assert command(*arguments).json["sequences"] != expected.sequences.tolist()


def test_a_base_model_cannot_chat(command: Command, texts: Path) -> None:
    refused = command("generate", "-m", texts, "-p", "w1", "-n", 3, "--chat")
    assert refused.is_refusal("has no chat template", "give a text for it to continue")


@pytest.mark.filterwarnings("default::tabes.encoding.CutWarning")
def test_a_long_prompt_is_cut_and_remarked(command: Command, texts: Path) -> None:
    outcome = command("generate", "-m", texts, "-p", " ".join(["w1"] * 20), "-n", 3, "-s", "confidence", "--json")
    assert outcome.code == 0 and len(outcome.json["sequences"][0]) == 16
    (line,) = outcome.err.splitlines()
    assert line.startswith("tabes: the prompt is too long") and line.endswith("7 tokens were left out at the beginning")


def test_stopping_at_the_end(command: Command, chatty: Path, sudoku: Path) -> None:
    arguments = ("generate", "-m", chatty, "-p", "w1", "-n", 8, "-s", "left_to_right", "--json", "--temperature", 3)
    for seed in range(40):
        found = command(*arguments, "--seed", seed).json
        if 64 in found["sequences"][0][1:8]:
            break
    stopped = command(*arguments, "--seed", seed, "--stop-at-end").json
    assert stopped["texts"] == found["texts"]
    assert stopped["steps"] == found["sequences"][0].index(64) < found["steps"] == 8
    refused = command("generate", "-m", sudoku, "-p", "." * 81, "--stop-at-end")
    assert refused.is_refusal("names no end-of-text token", "leave --stop-at-end out")


def test_nothing_to_fill_names_the_hole(command: Command, texts: Path) -> None:
    assert "the prompt has no [MASK] and" in command("generate", "-m", texts, "-p", "w1").err
