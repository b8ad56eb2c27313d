"""The frozen surface: exported names, their signatures, and a light import."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from dataclasses import fields
from types import ModuleType

import pytest

import tabes

NAMES = [
    "Canvas",
    "Cost",
    "Denoiser",
    "Guidance",
    "Move",
    "Output",
    "RowCache",
    "Sampler",
    "Step",
    "Suppress",
    "TabesError",
    "chat",
    "decode",
    "generate",
    "load",
    "sampler",
    "samplers",
]


def test_exported_names() -> None:
    assert tabes.__all__ == NAMES
    assert set(NAMES) <= set(dir(tabes))


def test_unknown_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'decoder'"):
        tabes.decoder  # noqa: B018


def test_signatures() -> None:
    load = inspect.signature(tabes.load).parameters
    assert list(load)[1:] == ["tokenizer", "dtype", "device", "device_map", "revision", "mask_token_id"]
    assert list(inspect.signature(tabes.generate).parameters) == [
        *("model", "prompt", "input_ids", "attention_mask", "sampler", "max_new_tokens", "num_steps", "block_length"),
        *("temperature", "top_p", "top_k", "cfg_scale", "suppress", "stop", "seed", "streamer", "progress"),
    ]
    assert list(inspect.signature(tabes.decode).parameters) == ["model", "canvas", "sampler", "stop", "seed"]
    assert [field.name for field in fields(tabes.Output)] == ["sequences", "texts", "steps", "cost"]


def test_no_module_hides_a_function() -> None:
    """A submodule called like a public function would replace it the moment it is imported."""
    for module in pkgutil.walk_packages(tabes.__path__, "tabes."):
        importlib.import_module(module.name)
    assert not [name for name in NAMES if isinstance(getattr(tabes, name), ModuleType)]


def test_import_is_light() -> None:
    code = "import sys, tabes; tabes.samplers(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"transformers", "matplotlib", "scipy", "typer", "rich", "lm_eval", "ray"} & set(loaded)
    bare = subprocess.run(
        [sys.executable, "-c", "import sys, tabes; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert "torch" not in bare.stdout.split()
