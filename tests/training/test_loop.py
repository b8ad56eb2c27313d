"""The loop on a tiny model: it learns, it is reproducible, and a kill changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM

from tabes.errors import NumericsError, UsageError
from tabes.training.loop import LogRow, Recipe, held_out_loss, train

MASK, LENGTH = 4, 6
RECIPE = Recipe(steps=24, batch_size=8, validate_every=8, bfloat16=False, checkpoint_seconds=0.0)


class Killed(Exception):
    """Stands for a signal."""


def tiny(seed: int = 0) -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=5,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config)


def copies(first: Tensor) -> Tensor:
    """One of four tokens, over and over: one seen token decides all others."""
    return first[:, None].repeat(1, LENGTH)


def batch_at(step: int, size: int = 8) -> Tensor:
    return copies(torch.randint(0, 4, (size,), generator=torch.Generator().manual_seed(step)))


VALIDATION = copies(torch.arange(32) % 4)


def run(out: Path, recipe: Recipe = RECIPE, *, seed: int = 0, resume: bool = True) -> tuple[nn.Module, list[LogRow]]:
    model = tiny(seed)
    return model, train(model, recipe, batch_at, VALIDATION, MASK, out, resume=resume)


def equal(left: nn.Module, right: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left.parameters(), right.parameters(), strict=True))


def losses(log: list[LogRow]) -> list[tuple[int, float, float]]:
    return [(row.step, row.train, row.validation) for row in log]


def test_it_learns_what_can_be_learned(tmp_path: Path) -> None:
    """One token of four is free, the others follow: log(4) / 6 = 0.23 nats per token; without copying 1.39.

    Batches of twice the length hold every number of masks twice, so the loss is measured almost without noise.
    """
    floor = torch.tensor(4.0).log().item() / LENGTH
    recipe = replace(RECIPE, steps=320, batch_size=12, other_rate=1e-2, validate_every=20, checkpoint_seconds=60.0)
    held_out = copies(torch.arange(60) * 7 % 4)
    log = train(tiny(), recipe, lambda step: batch_at(step, 12), held_out, MASK, tmp_path)
    assert log[-1].validation < log[0].validation
    assert floor - 0.02 < log[-1].validation < floor + 0.1


def test_one_seed_gives_one_result(tmp_path: Path) -> None:
    (first, log_a), (second, log_b) = run(tmp_path / "a"), run(tmp_path / "b")
    (other, _) = run(tmp_path / "c", replace(RECIPE, seed=1))
    assert equal(first, second)
    assert losses(log_a) == losses(log_b)
    assert not equal(first, other), "the seed must decide the masks"


@pytest.mark.parametrize("killed_at", [1, 7, 8, 9, 23])
def test_a_kill_changes_nothing(tmp_path: Path, killed_at: int) -> None:
    def until_killed(step: int) -> Tensor:
        if step == killed_at:
            raise Killed
        return batch_at(step)

    whole, whole_log = run(tmp_path / "whole")
    with pytest.raises(Killed):
        train(tiny(), RECIPE, until_killed, VALIDATION, MASK, tmp_path / "cut")
    resumed, log = run(tmp_path / "cut", seed=99)  # the first weights no longer matter
    assert equal(whole, resumed)
    assert losses(log) == losses(whole_log)


def test_steps_lost_since_the_checkpoint_are_walked_again(tmp_path: Path) -> None:
    """Killed between two checkpoints, after a log line that the checkpoint does not know."""
    whole, whole_log = run(tmp_path / "whole")

    def until_killed(step: int) -> Tensor:
        if step == 12:
            raise Killed
        return batch_at(step)

    cut = tmp_path / "cut"
    with pytest.raises(Killed):
        train(tiny(), RECIPE, until_killed, VALIDATION, MASK, cut)
    with (cut / "training_log.jsonl").open("a") as log_file:
        log_file.write(json.dumps(vars(LogRow(16, 9.0, 9.0, 9.0, 9.0))) + "\n")
    (cut / "checkpoint.tmp").write_bytes(b"half a checkpoint")
    resumed, log = run(cut)
    assert equal(whole, resumed)
    assert losses(log) == losses(whole_log)


def test_starting_over_forgets_the_checkpoint(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    again, _ = run(tmp_path, resume=False)
    assert equal(first, again)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(UsageError, match="another recipe"):
        run(tmp_path, replace(RECIPE, steps=25))
    run(tmp_path, replace(RECIPE, checkpoint_seconds=5.0))  # how often it is saved does not matter


def test_a_loss_that_is_no_number_stops_the_run_before_the_weights(tmp_path: Path) -> None:
    model = tiny()
    before = [value.detach().clone() for value in model.parameters()]
    with torch.no_grad():
        model.cls.predictions.bias[2] = float("nan")
    with pytest.raises(NumericsError, match="step 0"):
        train(model, RECIPE, batch_at, VALIDATION, MASK, tmp_path)
    changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert sum(changed) == 1, "only the bias that was spoiled on purpose"
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_run_that_diverges_stops_before_it_is_kept(tmp_path: Path) -> None:
    """Finite but lost: the weights blow up in step 12, so the validation at step 16 is far above that of step 8."""
    model, kept = tiny(), list[LogRow]()

    def until_spoiled(step: int) -> Tensor:
        if step == 12:
            with torch.no_grad():
                model.cls.predictions.bias.copy_(torch.tensor([0.0, 0.0, 0.0, 0.0, 1e4]))
        return batch_at(step)

    recipe = replace(RECIPE, checkpoint_seconds=60.0)
    with pytest.raises(NumericsError, match="step 16; lower the rates"):
        train(model, recipe, until_spoiled, VALIDATION, MASK, tmp_path, report=kept.append)
    assert [row.step for row in kept] == [8]
    assert torch.load(tmp_path / "checkpoint.pt")["step"] == 8


def test_the_log_is_read_by_machines_and_the_caller_sees_averaged_weights(tmp_path: Path) -> None:
    model, seen, checked = tiny(), list[LogRow](), list[float]()

    def report(row: LogRow) -> None:
        seen.append(row)
        checked.append(held_out_loss(model, VALIDATION, MASK, batch=8)[0])

    log = train(model, RECIPE, batch_at, VALIDATION, MASK, tmp_path, report=report)
    lines = (tmp_path / "training_log.jsonl").read_text().splitlines()
    assert [LogRow(**json.loads(line)) for line in lines] == log == seen
    assert [row.step for row in log] == [8, 16, 24]
    assert checked == [row.validation for row in log]
    assert held_out_loss(model, VALIDATION, MASK, batch=8)[0] == log[-1].validation


def test_rates_rise_and_fall_to_zero() -> None:
    recipe = Recipe(steps=100, warmup=0.1)
    rates = [recipe.rate(step) for step in range(100)]
    assert max(rates) == 1.0
    assert rates[0] == pytest.approx(0.1)
    assert 0 < rates[-1] < 0.02
    assert rates[10:] == sorted(rates[10:], reverse=True)
