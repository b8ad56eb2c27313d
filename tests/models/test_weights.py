"""Reading a checkpoint's tensors: sharded, single or pickled, complete or one sentence, and in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tabes.errors import TabesError, UsageError
from tabes.models.families import Checkpoint
from tabes.models.families.weights import fill
from tabes.models.loading import open_network
from tests.dit import OURS

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
BIG = "backbone.vocab_embed.embedding"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small MDLM in float32."""
    OURS["mdlm"].save(tmp_path / "mdlm", torch.float32)
    return tmp_path / "mdlm"


def change(folder: Path, edit: Callable[[dict[str, Tensor]], Any]) -> None:
    weights = load_file(folder / SINGLE)
    edit(weights)
    save_file(weights, folder / SINGLE, metadata={"format": "pt"})


def shard(folder: Path, parts: int = 3) -> None:
    weights = load_file(folder / SINGLE)
    (folder / SINGLE).unlink()
    names = {key: f"model-{i % parts + 1:05}-of-{parts:05}.safetensors" for i, key in enumerate(sorted(weights))}
    for name in set(names.values()):
        save_file({key: weights[key] for key in names if names[key] == name}, folder / name, metadata={"format": "pt"})
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def complaint(folder: Path, **options: Any) -> str:
    with pytest.raises(TabesError) as caught:
        open_network(folder, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 400
    return text


def logits(folder: Path, **options: Any) -> Tensor:
    network, _ = open_network(folder, **options)
    tokens_BL = torch.arange(6, 20)[None]
    hidden_BLd, _ = network.forward(tokens_BL, positions_BL=torch.arange(14)[None], padding_BL=None)
    return network.head(hidden_BLd[0])


def test_shards_and_pickles_are_the_single_file(folder: Path) -> None:
    expected = logits(folder)
    weights = load_file(folder / SINGLE)
    shard(folder)
    assert not (folder / SINGLE).exists()
    assert torch.equal(logits(folder), expected)
    for path in folder.glob("model*"):
        path.unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    assert torch.equal(logits(folder), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(folder: Path, dtype: torch.dtype) -> None:
    network, _ = open_network(folder, dtype=dtype)
    assert network.dtype == network.embedding_weight().dtype == dtype
    assert torch.equal(network.embedding_weight(), load_file(folder / SINGLE)[BIG].to(dtype))
    change(folder, lambda weights: weights.update({key: value.to(dtype) for key, value in weights.items()}))
    assert open_network(folder)[0].dtype == dtype
    assert not any(part.requires_grad for part in network.model.parameters())  # type: ignore[attr-defined]


def test_a_shard_is_missing(folder: Path) -> None:
    shard(folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    text = complaint(folder)
    assert "lacks the file model-00002-of-00003.safetensors" in text
    assert INDEX in text


def test_no_weights(folder: Path) -> None:
    (folder / SINGLE).unlink()
    assert "no weights" in complaint(folder)
    (folder / INDEX).write_text("{")
    assert INDEX in complaint(folder)
    (folder / INDEX).write_text("{}")
    assert INDEX in complaint(folder)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_file(folder: Path, part: float) -> None:
    size = (folder / SINGLE).stat().st_size
    os.truncate(folder / SINGLE, int(part * size))
    assert SINGLE in complaint(folder)


def test_a_pickle_that_would_run_code(folder: Path) -> None:
    (folder / SINGLE).unlink()
    torch.save({"a": nn.Linear(2, 2)}, folder / "pytorch_model.bin")
    assert "could not be loaded" in complaint(folder)
    torch.save([torch.zeros(2)], folder / "pytorch_model.bin")
    assert "no table of tensors" in complaint(folder)


def test_missing_and_left_over(folder: Path) -> None:
    change(folder, lambda weights: [weights.pop(key) for key in sorted(weights) if ".mlp.0." in key])
    text = complaint(folder)
    assert "lacks weights" in text
    assert "and 7 more" in text
    OURS["mdlm"].save(folder, torch.float32)
    change(folder, lambda weights: weights.update({"backbone.blocks.3.norm1.weight": torch.ones(32)}))
    assert "does not ask for: backbone.blocks.3.norm1.weight" in complaint(folder)
    OURS["mdlm"].save(folder, torch.float32)
    change(folder, lambda weights: weights.update({"norm.weight": torch.ones(32)}))
    assert "does not ask for: norm.weight" in complaint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_damaged_weights(folder: Path, value: float) -> None:
    change(folder, lambda weights: weights[BIG][-1, -1].fill_(value))
    text = complaint(folder)
    assert "NaN or infinite" in text
    assert BIG in text


def test_a_number_too_large_for_the_dtype(folder: Path) -> None:
    change(folder, lambda weights: weights[BIG][-1, -1].fill_(1e6))
    assert logits(folder).isfinite().all()
    assert BIG in complaint(folder, dtype="float16")


def test_quantised_weights(folder: Path) -> None:
    change(folder, lambda weights: weights.update({BIG: weights[BIG].to(torch.int8)}))
    assert "no floats" in complaint(folder)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"hidden_dim": 48}, "where its config asks for"),
        ({"vocab_size": 61}, "(60,) where its config asks for (61,)"),
        ({"cond_dim": 16}, "where its config asks for"),
        ({"n_heads": 2}, "rotary_emb.inv_freq with shape (4,)"),
        ({"n_heads": 3}, "3 heads in a width of 32"),
        ({"n_blocks": 4}, "lacks weights its config asks for: blocks.3."),
        ({"n_blocks": 2}, "does not ask for: backbone.blocks.2."),
        ({"n_blocks": 0}, "n_blocks 0; it must be a positive integer"),
        ({"hidden_dim": "large"}, "hidden_dim 'large'"),
        ({"model_length": None}, "model_length None"),
        ({"time_conditioning": "no"}, "time_conditioning 'no'"),
    ],
)
def test_sizes_that_contradict_the_weights(folder: Path, sizes: dict[str, Any], words: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | sizes))
    assert words in complaint(folder)


def test_rotary_frequencies_are_checked_and_can_be_absent(folder: Path) -> None:
    key, expected = "backbone.rotary_emb.inv_freq", logits(folder)
    change(folder, lambda weights: weights.pop(key))
    assert torch.equal(logits(folder), expected)
    change(folder, lambda weights: weights.update({key: torch.tensor([1.0, 0.3, 0.03, 0.01])}))
    assert "another base" in complaint(folder)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("kept", torch.zeros(2))


def two(folder: Path) -> tuple[Two, Checkpoint]:
    tensors = {"a.weight": torch.eye(3), "a.bias": torch.ones(3), "b.weight": torch.eye(3), "b.bias": torch.ones(3)}
    save_file({**tensors, "kept": torch.tensor([3.0, 4.0]), "unused": torch.zeros(1)}, folder / SINGLE)
    with torch.device("meta"):
        return Two(), Checkpoint(str(folder), {})


def rename(key: str) -> str | None:
    return None if key == "unused" else key.replace("a.", "first.").replace("b.", "second.")


def test_any_module_is_filled(tmp_path: Path) -> None:
    module, checkpoint = two(tmp_path)
    fill(module, checkpoint, rename, device={"first": "cpu", "": torch.device("cpu")})
    assert torch.equal(module.first(torch.tensor([[1.0, 2.0, 3.0]])), torch.tensor([[2.0, 3.0, 4.0]]))
    assert module.kept.tolist() == [3.0, 4.0]  # type: ignore[union-attr, operator]
    assert not any(part.is_meta for part in module.state_dict().values())


def test_places_that_are_none(tmp_path: Path) -> None:
    module, checkpoint = two(tmp_path)
    with pytest.raises(UsageError, match=r"no place for second\.weight"):
        fill(module, checkpoint, rename, device={"first": "cpu", "kept": "cpu"})
    with pytest.raises(UsageError, match="cannot be put on device 'nowhere'"):
        fill(module, checkpoint, rename, device="nowhere")
    with pytest.raises(TabesError, match=r"does not ask for: unused"):
        fill(module, checkpoint, lambda key: key.replace("a.", "first.").replace("b.", "second."))


def test_no_config_is_for_others_to_explain(tmp_path: Path) -> None:
    assert Checkpoint.find(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert Checkpoint.find(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("[]")
    assert Checkpoint.find(str(tmp_path)) is None
    assert Checkpoint.find("nobody/nothing") is None


_FROM_THE_CACHE = """
import tabes
model = tabes.load("kuleshov-group/mdlm-owt")
print(model.name, model.mask_id, model.tokenizer, model.network.vocab_size)
"""


def test_a_repository_of_the_hub_that_was_fetched_before(folder: Path, tmp_path: Path) -> None:
    shard(folder)
    repository = tmp_path / "cache" / "models--kuleshov-group--mdlm-owt"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    (repository / "snapshots").mkdir()
    folder.rename(repository / "snapshots" / ("0" * 40))
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", _FROM_THE_CACHE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["kuleshov-group/mdlm-owt", "59", "None", "60"], done.stderr


_MEASURE = """
import sys
from pathlib import Path
from tabes.models.loading import open_network
from tests.models.test_weights import warm
def now(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith(name))
warm()
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before = now("VmRSS")
network, _ = open_network(sys.argv[1], dtype=sys.argv[2])
weights = sum(part.numel() * part.element_size() for part in network.model.parameters())
print((now("VmHWM") - before) * 1024 / weights)
"""


def warm() -> None:
    """Whatever the first checkpoint of a process costs besides its weights."""
    OURS["mdlm"].network(torch.bfloat16)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loading_takes_little_more_than_the_weights(folder: Path, stored: torch.dtype, dtype: str) -> None:
    width, blocks = 512, 12
    config = json.loads((folder / "config.json").read_text())
    sizes = {"hidden_dim": width, "n_blocks": blocks, "n_heads": 8, "cond_dim": 128, "vocab_size": 5000}
    (folder / "config.json").write_text(json.dumps(config | sizes))
    save_file(tensors_of(width, blocks, stored), folder / SINGLE, metadata={"format": "pt"})
    command = [sys.executable, "-c", _MEASURE, str(folder), dtype]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert 0.8 < float(done.stdout) < 1.2


def tensors_of(width: int, blocks: int, dtype: torch.dtype, vocab: int = 5000, cond: int = 128) -> dict[str, Tensor]:
    """Published names, any numbers."""
    shapes: dict[str, tuple[int, ...]] = {
        "vocab_embed.embedding": (vocab, width),
        "sigma_map.mlp.0.weight": (cond, 256),
        "sigma_map.mlp.0.bias": (cond,),
        "sigma_map.mlp.2.weight": (cond, cond),
        "sigma_map.mlp.2.bias": (cond,),
        "output_layer.norm_final.weight": (width,),
        "output_layer.linear.weight": (vocab, width),
        "output_layer.linear.bias": (vocab,),
        "output_layer.adaLN_modulation.weight": (2 * width, cond),
        "output_layer.adaLN_modulation.bias": (2 * width,),
    }
    for block in range(blocks):
        shapes |= {
            f"blocks.{block}.norm1.weight": (width,),
            f"blocks.{block}.norm2.weight": (width,),
            f"blocks.{block}.attn_qkv.weight": (3 * width, width),
            f"blocks.{block}.attn_out.weight": (width, width),
            f"blocks.{block}.mlp.0.weight": (4 * width, width),
            f"blocks.{block}.mlp.0.bias": (4 * width,),
            f"blocks.{block}.mlp.2.weight": (width, 4 * width),
            f"blocks.{block}.mlp.2.bias": (width,),
            f"blocks.{block}.adaLN_modulation.weight": (6 * width, cond),
            f"blocks.{block}.adaLN_modulation.bias": (6 * width,),
        }
    return {f"backbone.{name}": torch.full(shape, 0.01, dtype=dtype) for name, shape in shapes.items()}
