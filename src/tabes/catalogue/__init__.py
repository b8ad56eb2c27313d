"""The catalogue: every preset by name, what it is made of, where it comes from and when it is a good choice.

`tabes samplers` and docs/samplers.md are made from it. One file per family.
"""

from __future__ import annotations

from importlib import import_module

from tabes.catalogue.preset import Preset

__all__ = ["FAMILIES", "PRESETS", "Preset"]

FAMILIES = ("local", "adaptive", "steered", "lookahead", "revising", "ancestral")

# The parts register themselves when their packages are imported.
for _package in ("rankings", "budgets", "writers", "revisers", "kernels"):
    import_module(f"tabes.{_package}")

PRESETS: dict[str, Preset] = {}
for _family in FAMILIES:
    PRESETS |= import_module(f"tabes.catalogue.{_family}").PRESETS
