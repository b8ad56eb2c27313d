"""Plans against what a model of 100 million parameters takes, and against sizes that are known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, LlamaConfig

from tabes.cli import main
from tabes.errors import ModelError, UsageError
from tabes.planning import Live, Plan, plan
from tabes.planning.ways import candidates_of, ways_of
from tests.planning.real import BATCH, LENGTH, MASKED, RESIDENT

WAYS = ("forward", "plain", "row_cache", "lookahead", "boe")


def folder(path: Path, **sizes: Any) -> Path:
    options = {"vocab_size": 20000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 10}
    options |= {"max_position_embeddings": 1024} | sizes
    heads = options["hidden_size"] // 64
    ids = {"bos_token_id": None, "eos_token_id": None}
    config = LlamaConfig(
        **options,
        **ids,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
    )
    config.is_causal = False
    config.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, Any]]:
    path = folder(tmp_path_factory.mktemp("llama"))
    # Without these glibc keeps what was freed, and the resident set is what was used and never given back.
    given_back = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.planning.real", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **given_back}, check=True)
    return plan(str(path), length=LENGTH, batch=BATCH, masked=MASKED, device="cpu"), json.loads(done.stdout)


def test_weights_are_exact(measured: tuple[Plan, dict[str, Any]]) -> None:
    planned, real = measured
    assert 100e6 < planned.parameters < 103e6
    assert planned.weights == real["weights"]


@pytest.mark.parametrize("way", WAYS)
def test_live_tensors_are_within_a_tenth(way: str, measured: tuple[Plan, dict[str, Any]]) -> None:
    planned, real = measured
    assert getattr(planned, way) == pytest.approx(real["tensors"][way], rel=0.1)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="resident sets are read from Linux's /proc")
@pytest.mark.parametrize("way", RESIDENT)
def test_the_resident_set_grows_by_what_was_planned(way: str, measured: tuple[Plan, dict[str, Any]]) -> None:
    planned, real = measured
    assert getattr(planned, way) == pytest.approx(real["resident"][way], rel=0.1)


def test_a_family_stands_for_its_first_model() -> None:
    assert plan("sedd", length=64).parameters == plan("louaaron/sedd-small", length=64).parameters


@pytest.mark.parametrize(
    ("name", "numbers", "per_row"),
    [
        ("GSAI-ML/LLaDA-8B-Base", 8_015_581_184, 2 * 32 * 4096),  # layers x keys and values x width
        ("Dream-org/Dream-v0-Instruct-7B", 7_615_616_512, 2 * 28 * 4 * 128),
    ],
)
def test_published_sizes(name: str, numbers: int, per_row: int) -> None:
    made = plan(name, length=64, batch=2, masked=16)
    frequencies = 2 * 64 * 4  # of the rotation, twice, in float32
    assert made.parameters == numbers and made.weights == 2 * numbers + frequencies
    ids = 2 * 64 * 8
    assert made.memory is not None and 0 <= made.memory - 2 * 64 * per_row * 2 <= 2 * ids
    assert made.dtype == "bfloat16"
    assert made.boe is not None and made.row_cache is not None and made.lookahead is not None
    assert made.row_cache > 2 * made.memory and made.boe > made.memory
    assert made.total("boe") == made.weights + made.boe


def test_other_families(tmp_path: Path) -> None:
    made = plan("kuleshov-group/mdlm-owt", length=64)
    assert made.weights > 160e6 * 4 and made.boe is not None and made.boe > made.plain
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertConfig(vocab_size=100, architectures=["BertForMaskedLM"], **sizes).save_pretrained(tmp_path)
    bert = plan(str(tmp_path), length=32, batch=2)
    assert bert.memory is not None and bert.memory >= 2 * 2 * 2 * 32 * 32 * 4


def test_it_grows_as_it_should(tmp_path: Path) -> None:
    path = str(folder(tmp_path, vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2))
    one, two = (plan(path, length=128, batch=batch) for batch in (1, 2))
    assert two.weights == one.weights and two.memory == 2 * (one.memory or 0)
    half = plan(path, length=128, masked=64, dtype=torch.bfloat16)
    assert 2 * half.weights == pytest.approx(one.weights, rel=0.01)
    assert half.boe is not None and one.boe is not None and half.boe < one.boe / 2


def test_bad_input(tmp_path: Path) -> None:
    path = str(folder(tmp_path, vocab_size=1000, hidden_size=64, num_hidden_layers=1))
    with pytest.raises(UsageError, match="length is 0; it must be 1 or more"):
        plan(path, length=0)
    with pytest.raises(UsageError, match="masked is 20; it must be 1 or more and at most the length, 10"):
        plan(path, length=10, masked=20)
    with pytest.raises(UsageError, match=r"length is 2000 but .* takes at most 1024"):
        plan(path, length=2000)
    with pytest.raises(ModelError, match=r"no config.json"):
        plan(str(tmp_path.parent), length=10)
    with pytest.raises(UsageError, match="'boe-dense' is not planned, because it runs whole canvases back"):
        ways_of("boe-dense")


def test_ways() -> None:
    assert ways_of("confidence") == ways_of("mdlm") == ("plain",)
    assert ways_of("boe") == ways_of("boe-paper") == ("boe",) and ways_of("boe-verify") == ("boe", "lookahead")
    assert candidates_of("boe", 256) == 4 and candidates_of("boe-paper", 256) == 64


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(folder(tmp_path, vocab_size=1000, hidden_size=64, num_hidden_layers=1))
    command = ["models", "--plan", path, "--length", "32", "--batch", "2", "--dtype", "bfloat16", "--sampler", "boe"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dtype"] == "bfloat16" and found["total"] == found["weights"] + found["boe"]
    assert main(command) == 0
    assert "2 canvases of 32 rows, 32 of them masked" in capsys.readouterr().out


def test_live_counts_a_storage_once_and_forgets_it() -> None:
    weight = torch.ones(100)
    with Live([weight]) as live:
        kept = torch.ones(10, dtype=torch.float64)
        _ = kept.view(2, 5), weight[1:], torch.ones(1000)
        del _
    assert (live.bytes, live.peak) == (80, 4080)
