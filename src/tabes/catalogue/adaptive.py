"""Rules that write as many rows as they dare."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {}
