"""How much memory decoding takes, before anything is downloaded: `plan(name, length=..., batch=...)`.

The real code runs on a network without numbers while its tensors are counted (`tabes.planning.live`), once for each
way to decode. docs/memory.md says how close that comes to what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from tabes.errors import TabesError, UsageError
from tabes.models import guard
from tabes.planning.live import Live
from tabes.planning.shapes import Shape, fake_network
from tabes.planning.stages import Scene

__all__ = ["Plan", "plan"]


@dataclass(frozen=True)
class Plan:
    """Bytes. Peaks are above the weights; None where the model cannot be decoded so.

    Attributes:
        name: Of the model.
        dtype: Of its weights.
        device: Decides how much is computed at a time.
        batch, length, masked: The canvases; all masked rows are read, replayed and watched.
        parameters: How many numbers were trained.
        weights: What these take, buffers included.
        forward: The most alive during one forward.
        memory: Remembered keys and values of one forward.
        logits: The most alive in the passes over the vocabulary.
        plain, row_cache, lookahead, boe: The most alive in one step decoded so.
    """

    name: str
    dtype: str
    device: str
    batch: int
    length: int
    masked: int
    candidates: int
    parameters: int
    weights: int
    forward: int
    memory: int | None
    logits: int
    plain: int
    row_cache: int | None
    lookahead: int | None
    boe: int | None

    def total(self, way: str) -> int | None:
        """Weights and peak of one way to decode: "plain", "row_cache", "lookahead" or "boe"."""
        peak: int | None = getattr(self, way)
        return None if peak is None else self.weights + peak

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def plan(
    name: str,
    *,
    length: int,
    batch: int = 1,
    masked: int | None = None,
    candidates: int = 4,
    dtype: torch.dtype | None = None,
    device: str = "cuda",
    revision: str | None = None,
) -> Plan:
    """The memory of one step. `masked` rows of every canvas are masked (None: all, the first step of an empty canvas).

    `name` is a published model whose sizes are known here, a local folder (its config is all that is read), or a hub
    name. `dtype` None is what the config says.
    """
    masked = length if masked is None else masked
    for what, value, most in (("length", length, None), ("batch", batch, None), ("masked", masked, length)):
        if not isinstance(value, int) or value < 1 or (most is not None and value > most):
            bound = "" if most is None else f" and at most the length, {most}"
            raise UsageError(f"{what} is {value!r}; it must be 1 or more{bound}")
    with fake_network(name, dtype, revision) as shape, torch.no_grad():
        limit = shape.network.max_length
        if limit is not None and length > limit:
            raise UsageError(f"length is {length} but {name} takes at most {limit}")
        scene = Scene(shape.network, batch, length, masked, min(candidates, masked), torch.device(device))
        return _planned(name, shape, scene)


def _planned(name: str, shape: Shape, scene: Scene) -> Plan:
    forward, _ = _measured(shape, scene.forward)
    _, memory = _measured(shape, scene.remembered)
    replays = memory is not None and _replays(scene)
    ways = {"row_cache": scene.cached, "lookahead": scene.lookahead, "boe": scene.steered}
    return Plan(
        name=name,
        dtype=str(scene.network.dtype).removeprefix("torch."),
        device=scene.device.type,
        batch=scene.batch,
        length=scene.length,
        masked=scene.masked,
        candidates=scene.candidates,
        parameters=shape.parameters,
        weights=shape.bytes,
        forward=forward,
        memory=memory if replays else None,
        logits=_measured(shape, scene.logits)[0],
        plain=_measured(shape, scene.plain)[0],
        **{way: _measured(shape, stage)[0] if replays else None for way, stage in ways.items()},
    )


def _measured(shape: Shape, stage: Callable[[], Any]) -> tuple[int, int]:
    """The most bytes alive while a stage runs, and what its result still holds afterwards."""
    live = Live(shape.weights)
    with guard.explained(shape.network.name), live:
        kept = stage()
        held = live.bytes
    del kept
    return live.peak, held


def _replays(scene: Scene) -> bool:
    """Whether its attention asks our function, which is what remembers."""
    try:
        return bool(scene.remembered().layers)
    except TabesError:
        return False
