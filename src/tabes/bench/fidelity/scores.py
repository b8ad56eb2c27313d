"""Scores by name: what a rule would rank candidates by, before any gate, floor or mixing.

`tis-...` is token importance at a = 0, 1/2 or 1 of the way to the soft write, "gauss" the two-point rule. Without a
suffix all candidates are injected at once, a row's own entropy is in the sum and only masked rows are replayed, as
`boe` does it; "alone" injects each by itself and leaves its own entropy out, "exact" is the theorem's. Your own is one
more entry, here or in what you pass to `measure`:

    SCORES["margin"] = lambda question: question.scene.prediction.margin_BL

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tabes.errors import UnknownNameError, UsageError
from tabes.steering import Importance, Lookahead, NoSignalWarning, Objective, Probes, Scene

__all__ = ["SCORES", "Question", "Score", "parse_scores"]


@dataclass(frozen=True)
class Question:
    """Which of these candidates should be written? `injected_BL` has them all: the soft writes of a joint injection."""

    scene: Scene
    candidates_BL: Tensor
    injected_BL: Tensor
    objective: Objective

    def net(self, drops_BL: Tensor) -> Tensor:
        """Less what the objective charges for writing a row."""
        return drops_BL - self.objective.charge(self.scene.prediction)


Score = Callable[[Question], Tensor]
"""(B, L), larger where a row should be written earlier; only values at candidates count."""


def _importance(
    expansion: float | str, *, joint: bool = True, probes: str = "masked", share: float | None = None, **options: Any
) -> Score:
    """Importance of the candidates; `joint` says whether rows that do not compete may be injected too."""

    def score(question: Question) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            rule = Importance(expansion, probes=Probes(probes, share=share), objective=question.objective, **options)  # type: ignore[arg-type]
        return question.net(rule.drops(question.scene, question.injected_BL if joint else question.candidates_BL))

    return score


def _lookahead(question: Question) -> Tensor:
    return question.net(Lookahead(question.objective).drops(question.scene, question.candidates_BL))


_ALONE: dict[str, Any] = {"joint": False, "injection": "alone", "self_term": "exclude"}
# The gradient through every row: what the theorem differentiates.
_EXACT: dict[str, Any] = {**_ALONE, "backward": "dense"}

SCORES: dict[str, Score] = {
    "confidence": lambda question: question.scene.prediction.confidence_BL,
    "neg-entropy": lambda question: -question.scene.prediction.entropy_BL,
    "tis-0": _importance(0.0),
    "tis-0-exact": _importance(0.0, **_EXACT),
    "tis-literal": _importance(0.0, joint=False, probes="candidates"),
    "tis-half": _importance(0.5),
    "tis-half-dense": _importance(0.5, backward="dense"),
    "tis-half-avoid": _importance(0.5, joint=False, self_term="avoid"),
    "tis-half-exclude": _importance(0.5, self_term="exclude"),
    "tis-half-alone": _importance(0.5, **_ALONE),
    "tis-one": _importance(1.0),
    "gauss-alone": _importance("gauss", **_ALONE),
    "tis-third-probes": _importance(0.5, probes="uncertain", share=1 / 3),
    "lookahead": _lookahead,
}


def parse_scores(text: str | None) -> dict[str, Score]:
    """Scores by their names, separated by commas; all of them for None."""
    if text is None:
        return dict(SCORES)
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("no score was named; give names separated by commas, for example confidence,tis-half")
    for name in names:
        if name not in SCORES:
            raise UnknownNameError("score", name, SCORES)
        if names.count(name) > 1:
            raise UsageError(f"score '{name}' is listed twice; name each once")
    return {name: SCORES[name] for name in names}
