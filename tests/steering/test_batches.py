"""A batch row decodes as it would alone: every preset, with blocks, ragged padding, guidance and the row cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tabes
from tabes import Guidance, RowCache
from tabes.denoiser import AnyDenoiser
from tests.steering.scenes import PRESETS, alone, filled, ragged, steered, tiny

pytestmark = pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
WRAPPERS: dict[str, Callable[[AnyDenoiser], AnyDenoiser]] = {
    "plain": lambda model: model,
    "guidance": lambda model: Guidance(model, 0.7),
    "cache": lambda model: RowCache(model, 3),
    "block-cache": lambda model: RowCache(model, "block"),
    "cached-guidance": lambda model: RowCache(Guidance(model, 0.5), 2),
    "guided-cache": lambda model: Guidance(RowCache(model, 2), 0.5),
}
SHAPES: dict[str, dict[str, Any]] = {"whole": {}, "blocks": {"block_length": 3}}


def shifted(positions: tuple[int, ...], by: int) -> tuple[int, ...]:
    return tuple(position - by for position in positions)


def history(steps: list[tabes.Step], row: int, padding: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """What was written when, until the row was done."""
    found = [(shifted(step.positions[row], padding), step.tokens[row]) for step in steps]
    return [one for one in found if one[0]]


def agree(model: AnyDenoiser, canvas: tabes.Canvas, rule: Any) -> None:
    _, together = filled(model, canvas, rule, seed=3)
    for row in range(2):
        _, single = filled(model, alone(canvas, row), rule, seed=3 + row)
        assert history(together, row, int(canvas.padding_BL[row].sum())) == history(single, 0, 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_batch_row_is_the_row_alone(preset: str, wrapper: str, shape: str) -> None:
    canvas = ragged(8, **SHAPES[shape])
    agree(WRAPPERS[wrapper](tiny("qwen2-grouped")), canvas, steered(preset))
    agree(WRAPPERS[wrapper](tiny("bert")), canvas, steered(preset, tokens_per_step=2))


@pytest.mark.parametrize(
    "choice",
    [
        {"expansion": "gauss", "injection": "alone", "self_term": "exclude"},
        {"self_term": "avoid", "rho": 0.5},
        {"probes": "uncertain", "probe_count": 3},
        {"probes": "uncertain", "probe_share": 0.4},
        {"probes": "block", "objective": "block_mean"},
        {"delta": 0.01, "gate": True, "floor_weight": 1.0, "floor_height": 3.0},
        {"prefilter": "margin", "candidates": 3, "mix": 0.5},
        {"objective": "information_gain", "sign": -1},
    ],
    ids=repr,
)
@pytest.mark.parametrize("preset", ["boe", "boe-verify"])
def test_whatever_the_parameters(preset: str, choice: dict[str, Any]) -> None:
    agree(tiny("llama"), ragged(7, block_length=4), steered(preset, **choice))


@pytest.mark.parametrize("preset", ["boe", "boe-verify", "lookahead"])
def test_drawn_tokens_too(preset: str) -> None:
    agree(RowCache(tiny("llama"), 2), ragged(7), steered(preset, temperature=0.7))


@pytest.mark.parametrize("choice", [{"horizon": 2}, {"horizon": 3, "beam": 3}, {"candidates": 2, "horizon": 2}])
def test_further_ahead_too(choice: dict[str, Any]) -> None:
    agree(tiny("llama", torch.float32), ragged(6, block_length=4), steered("lookahead", **choice))


def test_probes_of_the_block_on_a_cache() -> None:
    agree(RowCache(tiny("llama"), 3), ragged(7, block_length=3), steered("lookahead", probes="block"))
