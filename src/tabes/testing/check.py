"""What must hold for every rule in every scene, and the sentence that says what did not.

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from tabes.canvas import Canvas
from tabes.decoding import Step, decode
from tabes.errors import CombinationError, UsageError
from tabes.sampling import Sampler
from tabes.testing.scenes import Scene, tiny_model
from tabes.testing.watch import Asked, Watched, counted

__all__ = ["check"]

# Far more than any scene has masks; a rule that revises may take long, but not for ever.
_LIMIT = 1000
# A rule that remembers on itself does so in every scene.
_INTERLEAVED = ("plain", "everything")

Build = Callable[[Any, Scene], Sampler]
RowStep = tuple[tuple[tuple[int, int], ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Trial:
    """One part in one scene."""

    part: Any
    build: Build
    scene: Scene
    seed: int

    def run(self, canvas: Canvas | None = None, part: Any = None, row: int = 0) -> list[Step]:
        """Decode the scene's canvas, or another with the random numbers of batch row `row` and on."""
        asked = Asked(self.scene.wrap(tiny_model()))
        sampler = Watched(self.build(self.part if part is None else part, self.scene), asked)
        canvas = self.scene.canvas if canvas is None else canvas
        steps = list(islice(decode(asked, canvas, sampler, seed=self.seed + row), _LIMIT))
        assert len(steps) < _LIMIT, f"is not done after {_LIMIT} steps"
        return steps


def check(name: str, part: Any, build: Build, scenes: Sequence[Scene], seed: int) -> None:
    """Run every scene; raise for the first thing that broke, with the call that shows it alone."""
    if not scenes:
        raise UsageError(f"{name} has no scene to run {part!r} in; name one, or give it as many steps as blocks (4)")
    fresh, refused = _copy(part), list[CombinationError]()
    for scene in scenes:
        trial = Trial(part, build, scene, seed)
        try:
            _check(trial, fresh)
        except CombinationError as error:
            refused.append(error)
        except Exception as error:
            is_ours = isinstance(error, AssertionError)
            what = str(error) if is_ours else f"raises {type(error).__name__}: {error}"
            again = f"tabes.testing.{name}(..., scenes=['{scene.name}'], seed={seed})"
            raise AssertionError(f"{part!r} {what} [see it alone: {again}]") from (None if is_ours else error)
    if len(refused) == len(scenes):
        raise AssertionError(f"{part!r} refuses every scene, the last with: {refused[-1]}")


def _check(trial: Trial, fresh: Any) -> None:
    with counted(tiny_model()) as calls:
        steps = trial.run()
    cost = [(step.cost.forward_tokens, step.cost.head_rows) for step in steps]
    known = tuple(sum(column) for column in zip(*cost, strict=True))
    assert known == (calls.tokens, calls.head_rows), (
        f"calls the network behind the ledger's back: {calls.tokens} token rows and {calls.head_rows} head rows were "
        f"computed, {known[0]} and {known[1]} counted; ask through the view (view.predict, view.denoiser.replay)"
    )
    _check_steps(trial, steps)
    _check_repeats(trial, steps, fresh)
    _check_rows(trial, steps)
    if trial.scene.name in _INTERLEAVED:
        _check_turns(trial)


def _check_steps(trial: Trial, steps: list[Step]) -> None:
    sampler, canvas = trial.build(trial.part, trial.scene), trial.scene.canvas
    last = steps[-1].canvas
    assert not bool(last.masked_BL.any()), "leaves masks over"
    for step in steps:
        kept_BL = ~canvas.writable_BL
        assert step.canvas.tokens_BL[kept_BL].equal(canvas.tokens_BL[kept_BL]), "changes a token that was given"
        if not sampler.revises:
            changed = [*step.rewritten, *step.remasked]
            assert not any(changed), f"changes a written token in step {step.index}, though it does not say it revises"
    most = getattr(getattr(sampler, "budget", None), "num_steps", None)
    if most is not None and not sampler.revises:
        assert len(steps) <= most, f"takes {len(steps)} steps where {most} were asked for"


def _check_repeats(trial: Trial, steps: list[Step], fresh: Any) -> None:
    told = _told(steps)
    if _told(trial.run()) == told:
        return
    first, second = (_told(trial.run(part=_copy(fresh))) for _ in range(2))
    assert first != second, "remembers something between decodings outside its state; keep it in what `init` returns"
    raise AssertionError("gives different results for equal seeds; draw with view.uniform(purpose)")


def _check_rows(trial: Trial, steps: list[Step]) -> None:
    canvas = trial.scene.canvas
    for row in range(canvas.tokens_BL.shape[0]):
        together, alone = _row(steps, row), _row(trial.run(_alone(canvas, row), row=row), 0)
        for index, (mine, theirs) in enumerate(zip(alone, together, strict=False)):
            assert mine == theirs, (
                f"decodes batch row {row} otherwise in a batch than alone: in step {index} it {_in_words(theirs)}, "
                f"alone it {_in_words(mine)}; batch rows must not see each other, nor padding"
            )
        assert len(alone) == len(together), f"takes another number of steps for batch row {row} in a batch than alone"


def _check_turns(trial: Trial) -> None:
    """A state kept on the object shows when two decodings take turns."""
    canvas = trial.scene.canvas
    canvases = (_alone(canvas, 1), _alone(canvas, 0))
    apart = [_told(trial.run(one)) for one in canvases]
    asked = Asked(trial.scene.wrap(tiny_model()))
    sampler = Watched(trial.build(trial.part, trial.scene), asked)
    turns = [decode(asked, one, sampler, seed=trial.seed) for one in canvases]
    steps: tuple[list[Step], list[Step]] = ([], [])
    for _ in range(_LIMIT):
        for kept, turn in zip(steps, turns, strict=True):
            kept += islice(turn, 1)
    assert [_told(kept) for kept in steps] == apart, (
        "gives different results when two decodings take turns; keep what it remembers in its state, not on itself"
    )


def _told(steps: list[Step]) -> list[Any]:
    """All that was decided, and the scores exactly."""
    scores = [None if step.scores_BL is None else step.scores_BL[step.before.open_BL].tolist() for step in steps]
    return [(step.canvas.tokens_BL.tolist(), score) for step, score in zip(steps, scores, strict=True)]


def _row(steps: list[Step], row: int) -> list[RowStep]:
    """What happened to one batch row while it was alive: written, masked again, and its open rows best first."""
    first = int(steps[0].before.padding_BL[row].sum())
    told = []
    for step in steps:
        tokens_L = step.canvas.tokens_BL[row]
        written = tuple((at - first, int(tokens_L[at])) for at in (*step.positions[row], *step.rewritten[row]))
        told.append((written, tuple(at - first for at in step.remasked[row]), _order(step, row, first)))
        if bool(step.done_B[row]):
            break
    return told


def _order(step: Step, row: int, first: int) -> tuple[int, ...]:
    if step.scores_BL is None:
        return ()
    scores, is_open = step.scores_BL[row].tolist(), step.before.open_BL[row].tolist()
    return tuple(at - first for at in sorted(range(len(scores)), key=lambda at: (-scores[at], at)) if is_open[at])


def _in_words(step: RowStep) -> str:
    written, remasked, order = step
    places = ", ".join(f"{token} at {at}" for at, token in written) or "nothing"
    again = f" and masks {', '.join(map(str, remasked))}" if remasked else ""
    return f"writes {places}{again}" + (f" (its order: {', '.join(map(str, order))})" if order else "")


def _alone(canvas: Canvas, row: int) -> Canvas:
    """One batch row without its padding."""
    content_L = ~canvas.padding_BL[row]
    return canvas.select(torch.tensor([row])).map(lambda value_BL: value_BL[:, content_L])


def _copy(part: Any) -> Any:
    """The part as it is now; one that cannot be copied is trusted to be the same later."""
    try:
        return deepcopy(part)
    except Exception:
        return part
