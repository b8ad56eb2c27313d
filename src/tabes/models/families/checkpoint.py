"""The files of a checkpoint, in a folder or on the hub: its config, and its tensors one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors import safe_open
from torch import Tensor
from transformers.utils.hub import cached_file

from tabes.errors import ModelError
from tabes.models import guard

__all__ = ["Checkpoint", "Stored"]

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = "pytorch_model.bin"

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class Stored(NamedTuple):
    """A tensor that was not read yet; `dtype` is None for numbers that are no floats."""

    path: Path
    shape: tuple[int, ...]
    dtype: torch.dtype | None


@dataclass(frozen=True)
class Checkpoint:
    """A folder, or a repository of the hub.

    Attributes:
        name: As the user gave it.
        config: What stands in config.json.
        revision: Of a repository.
    """

    name: str
    config: Mapping[str, Any]
    revision: str = "main"

    @classmethod
    def find(cls, name: str, revision: str | None = None) -> Self | None:
        """None where there is no config.json that could be read: transformers says best why."""
        bare = cls(name, {}, revision or "main")
        try:
            path = bare.file("config.json")
            config = None if path is None else json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cls(name, config, bare.revision) if isinstance(config, dict) else None

    def file(self, name: str) -> Path | None:
        """Where a file lies, fetched from the hub if need be; None if there is no such file."""
        if Path(self.name).is_dir():
            path = Path(self.name) / name
            return path if path.is_file() else None
        found = cached_file(
            self.name,
            name,
            revision=self.revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
        return None if found is None else Path(found)

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """Every tensor of every file by its key. Only the headers are read."""
        found: dict[str, Stored] = {}
        for path in self._weight_files():
            with guard.explained(f"{path.name} of {self.name}"):
                found |= _pickled(path) if path.suffix == ".bin" else _headers(path)
        return found

    @property
    def dtype(self) -> torch.dtype:
        """Of most of its numbers."""
        sizes: dict[torch.dtype, int] = {}
        for _, shape, dtype in self.stored.values():
            if dtype is not None:
                sizes[dtype] = sizes.get(dtype, 0) + torch.Size(shape).numel()
        return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else torch.float32

    @contextmanager
    def read(self, key: str) -> Iterator[Tensor]:
        """One tensor, on the CPU, gone afterwards: a file is mapped only while one of its tensors is read."""
        path = self.stored[key].path
        with guard.explained(f"{key} of {self.name}"):
            if path.suffix == ".bin":
                yield _unpickled(path)[key]
            else:
                with safe_open(path, framework="pt") as tensors:
                    yield tensors.get_tensor(key)

    def _weight_files(self) -> list[Path]:
        index = self.file(INDEX)
        if index is not None:
            with guard.explained(f"{INDEX} of {self.name}"):
                names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
            return [self._shard(name) for name in names]
        for name in (SINGLE, PICKLED):
            path = self.file(name)
            if path is not None:
                return [path]
        raise ModelError(f"{self.name} has no weights: neither {SINGLE} nor {INDEX} nor {PICKLED}")

    def _shard(self, name: str) -> Path:
        path = self.file(name)
        if path is None:
            raise ModelError(f"{self.name} lacks the file {name}, which its {INDEX} names")
        return path


def _headers(path: Path) -> dict[str, Stored]:
    with safe_open(path, framework="pt") as tensors:
        slices = {key: tensors.get_slice(key) for key in tensors.keys()}  # noqa: SIM118 (it is no dict)
        return {
            key: Stored(path, tuple(part.get_shape()), _DTYPES.get(part.get_dtype())) for key, part in slices.items()
        }


def _pickled(path: Path) -> dict[str, Stored]:
    return {
        key: Stored(path, tuple(tensor.shape), tensor.dtype if tensor.is_floating_point() else None)
        for key, tensor in _unpickled(path).items()
    }


def _unpickled(path: Path) -> dict[str, Tensor]:
    """Older checkpoints; `weights_only` runs no code of theirs."""
    tensors = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise ModelError(f"{path.name} is no table of tensors")
    return tensors
