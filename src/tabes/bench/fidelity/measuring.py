"""Ask every score and find the truth: rows out, nothing judged. Shapes: B batch rows, L canvas rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tabes.bench.fidelity.rows import Curve, StateRow
from tabes.bench.fidelity.scores import Question, Score
from tabes.bench.fidelity.states import LEAST_MASKED, scene_of, start, stopped, stops
from tabes.bench.fidelity.truths import exact_drops, relaxed_paths
from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.errors import NumericsError, UsageError
from tabes.steering import Importance, Scene, as_objective
from tabes.steering.candidates import top
from tabes.tasks import Task

__all__ = ["Inject", "Settings", "measure"]

Inject = Literal["candidates", "all"]
OnStates = Callable[[float], None]


@dataclass(frozen=True)
class Settings:
    """How many states, the most confident `candidates` of each, and what is asked.

    `inject` "all" writes every masked row softly in a joint injection, not only the candidates. `theory` also follows
    the relaxed path of every candidate, `points` on it. State i stops where the stream `seed + i` says.
    """

    states: int = 96
    candidates: int = 8
    seed: int = 0
    objective: str = "entropy"
    inject: Inject = "candidates"
    theory: bool = True
    points: int = 17
    batch_size: int = 16

    def __post_init__(self) -> None:
        for name, least in (("states", 1), ("candidates", 2), ("points", 3), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be {least} or more")
        if self.inject not in ("candidates", "all"):
            raise UsageError(f"inject is '{self.inject}'; it must be candidates or all")
        as_objective(self.objective)


def measure(
    model: Denoiser,
    task: Task,
    scores: Mapping[str, Score],
    settings: Settings,
    *,
    on_states: OnStates = lambda measured: None,
) -> tuple[StateRow, ...]:
    """A row for the state of every item, in their order. Items with fewer than two rows to fill have none.

    `on_states` is told how many states (fractions too) were measured since it was last called.
    """
    items = task.items(settings.states, settings.seed)
    seeds = [settings.seed + number for number in range(len(items))]
    canvas = start(model, task, items)
    usable_B = canvas.masked_BL.sum(1) >= LEAST_MASKED
    left = stops(canvas, seeds, settings.candidates + 1).tolist()
    # Like with like: rows that are replayed are padded to the longest of their batch.
    numbers = sorted(usable_B.nonzero().squeeze(1).tolist(), key=left.__getitem__)
    if not numbers:
        raise UsageError(f"no item of task '{task.name}' has two rows to fill; choose another task")
    on_states(len(items) - len(numbers))
    found: list[StateRow] = []
    for first in range(0, len(numbers), settings.batch_size):
        batch = numbers[first : first + settings.batch_size]
        begun = start(model, task, [items[number] for number in batch])
        canvas = stopped(model, begun, torch.tensor([left[number] for number in batch], device=model.device))
        found += _Batch(model, task, scores, settings, on_states).rows(canvas, batch)
    return tuple(sorted(found, key=lambda row: row.item))


@dataclass(frozen=True)
class _Batch:
    """States that are measured together."""

    model: Denoiser
    task: Task
    scores: Mapping[str, Score]
    settings: Settings
    on_states: OnStates

    @torch.no_grad()
    def rows(self, canvas: Canvas, numbers: Sequence[int]) -> list[StateRow]:
        """A row for every state; `numbers` are those of the items."""
        settings, size = self.settings, len(numbers)
        scene = scene_of(self.model, canvas)
        question = self._question(scene)
        tell = self._teller(size)
        answers = {name: self._answer(name, score, question, tell) for name, score in self.scores.items()}
        truth_BL = question.net(exact_drops(scene, question.candidates_BL, question.objective))
        tell()
        curves = self._curves(question, tell) if settings.theory else None
        chosen_BL, masked_B = question.candidates_BL, scene.canvas.masked_BL.sum(1).tolist()
        return [
            StateRow(
                task=self.task.name,
                model=self.model.name,
                objective=settings.objective,
                item=numbers[b],
                seed=settings.seed + numbers[b],
                masked=masked_B[b],
                share_masked=masked_B[b] / int(scene.canvas.writable_BL[b].sum()),
                candidates=scene.canvas.positions_BL[b][chosen_BL[b]].tolist(),
                truth=truth_BL[b][chosen_BL[b]].tolist(),
                scores={name: value_BL[b][chosen_BL[b]].tolist() for name, (value_BL, _) in answers.items()},
                cost={name: cost for name, (_, cost) in answers.items()},
                curve=None if curves is None else _curve(curves, b, chosen_BL[b]),
            )
            for b in range(size)
        ]

    def _teller(self, states: int) -> Callable[[], None]:
        """What to call after each of the equal parts of the work, so that a bar moves."""
        parts = len(self.scores) + 1 + (self.settings.points if self.settings.theory else 0)
        return lambda: self.on_states(states / parts)

    def _question(self, scene: Scene) -> Question:
        open_BL, count_B = scene.canvas.open_BL, torch.full_like(scene.canvas.block_B, self.settings.candidates)
        candidates_BL = top(open_BL, scene.prediction.confidence_BL, count_B)
        injected_BL = open_BL if self.settings.inject == "all" else candidates_BL
        return Question(scene, candidates_BL, injected_BL, as_objective(self.settings.objective))

    def _answer(self, name: str, score: Score, question: Question, tell: Callable[[], None]) -> tuple[Tensor, float]:
        """The score, and what it cost in full forwards of each state."""
        canvas = question.scene.canvas
        unit = self.model.full_forward_flops(canvas)
        with self.model.ledger.measure(canvas.tokens_BL.device, unit) as costs:
            score_BL = score(question)
        bad_BL = question.candidates_BL & ~torch.isfinite(score_BL)
        if bool(bad_BL.any()):
            row, position = bad_BL.nonzero()[0].tolist()
            raise NumericsError(f"score '{name}' is not finite", row, position)
        tell()
        return score_BL, costs[0].forward_equivalents

    def _curves(self, question: Question, tell: Callable[[], None]) -> _Curves:
        """What the theorem is about, less what the objective charges: that shifts both of its sides alike."""
        scene, chosen_BL, objective = question.scene, question.candidates_BL, question.objective
        rule = Importance(0.0, injection="alone", self_term="exclude", backward="dense", objective=objective)
        path_BLG = relaxed_paths(scene, chosen_BL, objective, self.settings.points, tell)
        return _Curves(
            question.net(rule.drops(scene, chosen_BL)),
            question.net(path_BLG[..., 0] - path_BLG[..., -1]),
            path_BLG.diff(n=2).abs().amax(-1) * (self.settings.points - 1) ** 2,
        )


class _Curves(NamedTuple):
    """The columns of `Curve` for a batch, (B, L) each."""

    first_order_BL: Tensor
    relaxed_BL: Tensor
    curvature_BL: Tensor


def _curve(curves: _Curves, b: int, chosen_L: Tensor) -> Curve:
    return Curve(*(value_BL[b][chosen_L].tolist() for value_BL in curves))
