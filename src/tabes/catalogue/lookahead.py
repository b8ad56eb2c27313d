"""Rules that try several writes with a forward each."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {}
