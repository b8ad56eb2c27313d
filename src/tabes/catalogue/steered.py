"""Rules that look at what a write does to the rest: gradients and replays (docs/boe.md)."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

_TABES = "TABES 2602.00250"
# Chosen on tuning items, except `writes`; so is the floor, of which the paper prints neither number (docs/boe.md).
_BEST = {"candidates": 4, "delta": 0.1, "sure": 0.95, "writes": 1}
_PAPER = {"rho": 0.25, "gate": True, "floor_weight": 1.0, "floor_height": 0.5}

PRESETS: dict[str, Preset] = {
    "boe": Preset(
        "where unsure, the write that makes the rest least uncertain by its gradient",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_BEST,
    ),
    "boe-dense": Preset(
        "boe with a second forward and a dense backward: the reference",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_BEST | {"backward": "dense"},
    ),
    "boe-literal": Preset(
        "the paper to the letter: only candidates active",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_PAPER | {"probes": "candidates"},
    ),
    "boe-paper": Preset(
        "the paper's method as it is meant",
        _TABES,
        "steered",
        ranking="boe",
        parameters=_PAPER,
    ),
    "boe-verify": Preset(
        "importance proposes, lookahead decides",
        _TABES,
        "steered",
        ranking="boe-verify",
        parameters=_BEST | {"verify": 2},
    ),
    "lookahead": Preset(
        "where unsure, tries the surest rows and writes what leaves the least uncertain",
        "TABES 2602.00250, its quantity measured instead of estimated",
        "steered",
        ranking="lookahead",
        parameters={"delta": 0.1, "sure": 0.95, "writes": 1},
    ),
}
