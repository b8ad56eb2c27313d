"""The small trained models that ship with the package, by name."""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder", "names"]

_HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Names `tabes.load` finds without a hub or a path."""
    return tuple(sorted(path.parent.name for path in _HERE.glob("*/config.json")))


def folder(name: str) -> Path | None:
    """Where a bundled model lies; None for any other name."""
    return _HERE / name if name in names() else None
