"""Every bad input of the command line: exit code 2 and one sentence."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]


def test_unknown_sampler_lists_near_names(command: Command, texts: Path) -> None:
    outcome = command("generate", "--model", texts, "--prompt", "w1 [MASK]", "--sampler", "confidense")
    assert outcome.is_refusal("unknown sampler 'confidense'", "confidence")
    assert command("compare", "--model", texts, "--samplers", "margim").is_refusal("margin")


def test_unknown_parameter_lists_near_names(command: Command, texts: Path) -> None:
    outcome = command("generate", "--model", texts, "--prompt", "w1 [MASK]", "--set", "tokens_per_stap=2")
    assert outcome.is_refusal("tokens_per_stap", "tokens_per_step")


def test_a_misspelled_bundled_model_is_not_asked_of_the_hub(command: Command) -> None:
    outcome = command("generate", "--model", "sudokku", "--prompt", ".")
    assert outcome.is_refusal("unknown bundled model 'sudokku'", "did you mean sudoku?")


def test_unknown_model(command: Command, tmp_path: Path) -> None:
    assert command("generate", "--model", tmp_path / "nowhere", "--prompt", "w1").is_refusal("nowhere")
    assert command("generate", "--model", "sudokuu", "--prompt", "w1").is_refusal("sudokuu")


def test_folder_that_is_no_checkpoint(command: Command, tmp_path: Path) -> None:
    assert command("generate", "--model", tmp_path, "--prompt", "w1").is_refusal("config.json")


def test_no_mask_token(command: Command, damaged: Path) -> None:
    for path in damaged.glob("*token*"):
        path.unlink()
    assert command("generate", "--model", damaged, "--prompt", "w1").is_refusal("mask")


def test_no_tokenizer(command: Command, damaged: Path) -> None:
    for path in damaged.glob("*token*"):
        path.unlink()
    assert command("generate", "--model", damaged, "--prompt", "w1", "--mask-token-id", 66).is_refusal("tokenizer")


def test_mask_id_outside_the_vocabulary(command: Command, texts: Path) -> None:
    assert command("generate", "--model", texts, "--prompt", "w1", "--mask-token-id", 67).is_refusal("67")


def test_empty_prompt_with_no_new_tokens(command: Command, texts: Path) -> None:
    assert command("generate", "--model", texts, "--prompt", "").is_refusal("prompt is empty")


def test_length_over_the_limit(command: Command, texts: Path) -> None:
    outcome = command("generate", "--model", texts, "--prompt", "w1", "--max-new-tokens", 16)
    assert outcome.is_refusal("17 tokens", "16")


def test_truncated_weights(command: Command, damaged: Path) -> None:
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert command("generate", "--model", damaged, "--prompt", "w1 [MASK]").is_refusal("damaged")


def test_missing_weights(command: Command, damaged: Path) -> None:
    (damaged / "model.safetensors").unlink()
    assert command("generate", "--model", damaged, "--prompt", "w1 [MASK]").is_refusal("model.safetensors")


def test_nan_weights(command: Command, damaged: Path) -> None:
    weights = load_file(damaged / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    weights[name][3, 3] = torch.nan
    save_file(weights, damaged / "model.safetensors", metadata={"format": "pt"})
    assert command("generate", "--model", damaged, "--prompt", "w1 [MASK]").is_refusal("NaN")


def _stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_prompt_that_is_not_text(command: Command, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"w1 \xff\xfe")
    assert command("generate", "--model", texts, "--prompt", "-").is_refusal("byte 4", "0xff")
    undecodable = b"\x80 w1".decode("utf-8", "surrogateescape")
    assert command("generate", "--model", texts, "--prompt", undecodable).is_refusal("byte 1", "0x80")


def test_prompt_from_stdin(command: Command, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _stdin(monkeypatch, b"w1 [MASK] w2\n")
    from_stdin = command("generate", "--model", texts, "--prompt", "-")
    assert from_stdin == command("generate", "--model", texts, "--prompt", "w1 [MASK] w2")
    assert from_stdin.code == 0 and from_stdin.out.startswith("w1")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--num-steps", "0"), "num_steps"),
        (("--num-steps", "many"), "num-steps"),
        (("--block-length", "0"), "block_length"),
        (("--top-k", "3"), "temperature"),
        (("--temperature", "-1"), "temperature"),
        (("--cfg-scale", "-1"), "cfg_scale"),
        (("--cache-every", "0"), "every"),
        (("--cache-every", "often"), "--cache-every"),
        (("--dtype", "int8"), "int8"),
        (("--device", "nowhere"), "nowhere"),
        (("--set", "tokens_per_step"), "name=value"),
        (("--max-new-tokens", "-1"), "max_new_tokens"),
        (("--stop", ""), "stop"),
        (("--suppress", "eos"), "--suppress"),
        (("--suppress", "-1"), "--suppress"),
        (("--suppress", "67"), "0 to 66"),
        (("--set", "budget=thresold"), "did you mean threshold"),
        (("--set", "reviser=lop"), "did you mean loop"),
        (("--set", "rho=2"), "rho is 2; it must be above 0 and at most 1"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_bad_options_of_generate(command: Command, texts: Path, options: tuple[str, ...], word: str) -> None:
    assert command("generate", "--model", texts, "--prompt", "w1 [MASK]", *options).is_refusal(word)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--items", "0"), "items"),
        (("--batch-size", "0"), "batch_size"),
        (("--clues", "3"), "clues"),
        (("--task", "sodoku"), "sudoku"),
        (("--samplers", ""), "no sampler"),
        (("--samplers", "margin@cache=0"), "every"),
        (("--samplers", "margin@suppress=end"), "no end-of-text token"),
        (("--num-steps", "2", "--tokens-per-step", "2"), "exclude each other"),
    ],
)
def test_bad_options_of_compare(command: Command, sudoku: Path, options: tuple[str, ...], word: str) -> None:
    assert command("compare", "--model", sudoku, "--items", 1, *options).is_refusal(word)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--states", "0"), "states"),
        (("--candidates", "1"), "candidates"),
        (("--batch-size", "0"), "batch_size"),
        (("--points", "2"), "points"),
        (("--scores", "tis-hal"), "tis-half"),
        (("--scores", ""), "no score"),
        (("--scores", "tis-0,tis-0"), "listed twice"),
        (("--task", "sodoku"), "sudoku"),
        (("--task", "sudoku:clues=80"), "two rows"),
        (("--objective", "entropi"), "entropy"),
        (("--inject", "some"), "--inject"),
        (("--device", "nowhere"), "nowhere"),
        (("--seed", "-1"), "seed"),
    ],
)
def test_bad_options_of_fidelity(command: Command, sudoku: Path, options: tuple[str, ...], word: str) -> None:
    assert command("fidelity", "--model", sudoku, "--states", 1, *options).is_refusal(word)


def test_bad_options_elsewhere(command: Command, tmp_path: Path) -> None:
    assert command("train", "chess", "--out", tmp_path).is_refusal("sudoku")
    assert command("train", "sudoku", "--out", tmp_path, "--steps", 0).is_refusal("--steps")
    assert command("generate", "--prompt", "w1").is_refusal("--model")
    assert command("conpare").is_refusal("compare")
