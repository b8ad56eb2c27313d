"""Values of a config.json, each checked, each refused in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabes.errors import ModelError
from tabes.models.families.checkpoint import Checkpoint

__all__ = ["boolean", "heads", "number", "require", "size", "token_ids"]

_SIZE = "it must be a positive integer"


def size(checkpoint: Checkpoint, *names: str, default: int | None = None) -> int:
    """A positive integer, by the first of its names that has a value."""
    name = next((name for name in names if checkpoint.config.get(name) is not None), names[0])
    value = checkpoint.config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(checkpoint, name, _SIZE)
    return value


def number(checkpoint: Checkpoint, name: str) -> float:
    """A positive number."""
    value = checkpoint.config.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise _wrong(checkpoint, name, "it must be a positive number")
    return float(value)


def boolean(checkpoint: Checkpoint, name: str, *, default: bool) -> bool:
    """A truth value."""
    value = checkpoint.config.get(name, default)
    if not isinstance(value, bool):
        raise _wrong(checkpoint, name, "it must be true or false")
    return value


def heads(checkpoint: Checkpoint, width: str, queries: str, keys: str) -> tuple[int, int, int]:
    """The width, its heads, and the heads of keys and values (as many where the config does not say)."""
    d, H = size(checkpoint, width), size(checkpoint, queries)
    K = size(checkpoint, keys, default=H)
    if d % (2 * H):
        raise _wrong(checkpoint, queries, f"a width of {d} must split into heads of the same even width")
    if H % K:
        raise _wrong(checkpoint, keys, f"it must divide the {H} heads of the queries")
    return d, H, K


def require(checkpoint: Checkpoint, known: Mapping[str, tuple[Any, ...]]) -> None:
    """Refuse what would be computed otherwise than the config asks; what it does not mention is as usual."""
    for name, allowed in known.items():
        if name in checkpoint.config and checkpoint.config[name] not in allowed:
            raise _wrong(checkpoint, name, f"only {' or '.join(map(repr, allowed))} can be loaded")


def token_ids(checkpoint: Checkpoint, vocab_size: int) -> dict[str, Any]:
    """The special ids a config names, all inside the vocabulary; None for those it does not name."""
    found: dict[str, Any] = {}
    for name in ("mask_token_id", "eos_token_id", "pad_token_id", "bos_token_id"):
        value = checkpoint.config.get(name)
        ids = value if isinstance(value, list) and name == "eos_token_id" else [] if value is None else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i < vocab_size for i in ids):
            raise _wrong(checkpoint, name, f"it must be an id of its vocabulary (0 to {vocab_size - 1})")
        found[name] = value
    return found


def _wrong(checkpoint: Checkpoint, name: str, sentence: str) -> ModelError:
    value = checkpoint.config.get(name)
    return ModelError(f"the config.json of {checkpoint.name} has {name} {value!r:.60}; {sentence}")
