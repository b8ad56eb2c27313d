"""The conformance kit: run it on a ranking, budget, reviser or kernel of your own (docs/write-a-rule.md).

    def test_mine() -> None:
        tabes.testing.check_ranking(Mine(bonus=0.3))

A tiny random BERT in memory decodes a ragged batch with a hole in a prompt, plainly, in blocks, with drawn tokens,
guided, row-cached and revised. Each check raises an AssertionError: one sentence on what broke, and how to see it
alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tabes.errors import UsageError
from tabes.parts import Budget, Ranking, Reviser
from tabes.rankings import Confidence
from tabes.sampling import Sampler
from tabes.testing.check import check
from tabes.testing.scenes import SCENES, Scene, tiny_model
from tabes.testing.watch import UndeclaredStatisticWarning

__all__ = [
    "UndeclaredStatisticWarning",
    "check_budget",
    "check_kernel",
    "check_ranking",
    "check_reviser",
    "tiny_model",
]


def check_ranking(ranking: Ranking, *, scenes: Iterable[str] | None = None, seed: int = 0) -> None:
    """Raise an AssertionError unless `ranking` does what every ranking must.

    It fills every mask, writes no given token and no written one again, obeys the number of steps; equal seeds give
    equal results; a batch row decodes as alone, two decodings at once as one after the other; scores are (B, L) and no
    NaN; neither the canvas nor a state is changed in place; no call of the network goes uncounted. It may refuse a
    scene with a CombinationError. An `UndeclaredStatisticWarning` says which statistic it reads undeclared.
    """
    _must_be(ranking, Ranking, "check_ranking")
    check("check_ranking", ranking, lambda part, scene: scene.sampler(part), _chosen(scenes), seed)


def check_budget(budget: Budget, *, scenes: Iterable[str] | None = None, seed: int = 0) -> None:
    """The same for a budget; one with `num_steps` may take no more steps than that."""
    _must_be(budget, Budget, "check_budget")
    fitting = _fitting(_chosen(scenes), budget)
    check("check_budget", budget, lambda part, scene: scene.sampler(Confidence(), part), fitting, seed)


def check_reviser(reviser: Reviser, *, scenes: Iterable[str] | None = None, seed: int = 0) -> None:
    """The same for a reviser, which may change what was written but must come to an end."""
    _must_be(reviser, Reviser, "check_reviser")
    unrevised = tuple(scene for scene in _chosen(scenes) if not scene.revised)
    check("check_reviser", reviser, lambda part, scene: scene.sampler(Confidence(), reviser=part), unrevised, seed)


def check_kernel(kernel: Sampler, *, scenes: Iterable[str] | None = None, seed: int = 0) -> None:
    """The same for a kernel, or for any sampler that is whole; one that does not say it `revises` must not."""
    for name in ("init", "step"):
        if not callable(getattr(kernel, name, None)):
            raise UsageError(f"check_kernel was given {kernel!r}, which has no {name}; give a kernel")
    whole = tuple(scene for scene in _fitting(_chosen(scenes), kernel) if not scene.revised)
    check("check_kernel", kernel, lambda part, scene: part, whole, seed)


def _fitting(scenes: tuple[Scene, ...], part: object) -> tuple[Scene, ...]:
    """Those with no more blocks than the part has steps."""
    steps = getattr(part, "num_steps", None)
    return tuple(scene for scene in scenes if steps is None or scene.blocks <= steps)


def _must_be(part: object, kind: type[object], check_: str) -> None:
    if not isinstance(part, kind):
        raise UsageError(f"{check_} was given {part!r}; give a {kind.__name__.lower()}, made with its parameters")


def _chosen(names: Iterable[str] | None) -> tuple[Scene, ...]:
    if names is None:
        return tuple(SCENES.values())
    wanted = (names,) if isinstance(names, str) else tuple(names)
    for name in wanted:
        if name not in SCENES:
            raise UsageError(f"there is no scene '{name}'; the scenes are {', '.join(SCENES)}")
    return tuple(SCENES[name] for name in wanted)
