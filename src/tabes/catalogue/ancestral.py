"""Transitions of masked and score-based diffusion: coins for every row."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {}
