"""Locked-in rules that look at each row by itself."""

from __future__ import annotations

from tabes.catalogue.preset import Preset

__all__ = ["PRESETS"]

PRESETS: dict[str, Preset] = {
    "confidence": Preset(
        "most confident token first",
        "MaskGIT 2202.04200, LLaDA 2502.09992",
        "local",
        ranking="confidence",
    ),
    "entropy": Preset(
        "least uncertain row first",
        "as used in Dream 2508.15487",
        "local",
        ranking="entropy",
    ),
    "left_to_right": Preset(
        "lowest row first, as an autoregressive model",
        "",
        "local",
        ranking="left_to_right",
    ),
    "margin": Preset(
        "largest lead of the best token over the second first",
        "Kim et al. 2502.06768",
        "local",
        ranking="margin",
    ),
    "random": Preset(
        "a fresh random order at every step",
        "MDLM 2406.07524, with fixed counts",
        "local",
        ranking="random",
    ),
}
