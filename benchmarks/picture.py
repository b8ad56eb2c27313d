"""docs/boe.png: one step of steering. `python -m benchmarks.picture`

The first state of the tuning puzzles in which confidence is unsure and would write a wrong digit, `boe` a right one: an
illustration, not evidence (that is in docs/boe.md). A panel each for confidence, importance and the drop that lookahead
finds, over all masked cells; the four candidates are framed, the cell each would write is starred.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tabes
from tabes.canvas import Canvas
from tabes.denoiser import Denoiser
from tabes.steering import Importance, Lookahead, Scene
from tabes.steering.candidates import top
from tabes.tasks.sudoku import puzzles

__all__ = ["main"]

SURE, CANDIDATES, PUZZLES, CLUES, SEED = 0.95, 4, 400, 28, 101
PICTURE = Path(__file__).parent.parent / "docs" / "boe.png"


def main() -> int:
    """Find the state, draw it."""
    torch.set_num_threads(1)
    model = tabes.load("sudoku")
    found = puzzles(PUZZLES, CLUES, SEED)
    givens_NP, solutions_NP = (torch.from_numpy(grid).long() for grid in (found.givens, found.solutions))
    tokens_NP = torch.where(givens_NP == 0, model.mask_id, givens_NP)
    for start in range(0, PUZZLES, 50):
        canvas = Canvas.create(tokens_NP[start : start + 50], mask_id=model.mask_id)
        for step in tabes.decode(model, canvas, tabes.sampler("confidence")):
            for b, score in enumerate(step.scores):
                if score and score[0] < SURE:
                    state = State(model, step.before.select(torch.tensor([b])), solutions_NP[start + b])
                    if state.tells():
                        state.draw(PICTURE)
                        return 0
    print("no state tells the rules apart", file=sys.stderr)
    return 1


class State:
    """One canvas and what the scores say of it; rows are the 81 cells."""

    @torch.no_grad()
    def __init__(self, model: Denoiser, canvas: Canvas, solution_P: Tensor) -> None:
        read = ("confidence", "entropy", "top_token")
        prediction = model.predict(canvas, canvas.masked_BL, statistics=read, remember=True)
        scene = Scene(canvas, model, prediction, prediction.top_token_BL)
        self.masked_P = canvas.masked_BL[0]
        self.tokens_P, self.digits_P = canvas.tokens_BL[0], prediction.top_token_BL[0]
        self.right_P = self.digits_P == solution_P
        self.panels = {
            "confidence": prediction.confidence_BL[0],
            "importance (one backward pass)": Importance().drops(scene, canvas.masked_BL)[0],
            "lookahead (a replay for every cell)": Lookahead().drops(scene, canvas.masked_BL)[0],
        }
        count_B = torch.tensor([CANDIDATES])
        self.candidates_P = top(canvas.masked_BL, prediction.confidence_BL, count_B)[0]

    def pick(self, values_P: Tensor) -> int:
        """The candidate a score would write."""
        return int(torch.where(self.candidates_P, values_P, -torch.inf).argmax())

    def tells(self) -> bool:
        """Whether confidence is wrong here and the others are right."""
        first, *others = (bool(self.right_P[self.pick(values_P)]) for values_P in self.panels.values())
        return not first and all(others)

    def draw(self, path: Path) -> None:
        """A panel per score."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(14, 5.1), dpi=110, layout="constrained")
        for axis, (name, values_P) in zip(figure.subplots(1, 3), self.panels.items(), strict=True):
            shown_P = torch.where(self.masked_P, values_P, torch.nan).view(9, 9)
            image = axis.imshow(shown_P, cmap="viridis", vmin=0.0)
            figure.colorbar(image, ax=axis, shrink=0.75, label="probability" if name == "confidence" else "nats")
            self._annotate(axis, values_P)
            pick = self.pick(values_P)
            verdict = "right" if self.right_P[pick] else "wrong"
            axis.set_title(f"{name}\nwrites {int(self.digits_P[pick])} (starred): {verdict}", fontsize=11)
        figure.savefig(path)

    def _annotate(self, axis: Any, values_P: Tensor) -> None:
        pick = self.pick(values_P)
        for cell in range(81):
            row, column = divmod(cell, 9)
            if not self.masked_P[cell]:
                axis.text(column, row, int(self.tokens_P[cell]), ha="center", va="center", color="#666666", fontsize=9)
            if self.candidates_P[cell]:
                axis.text(
                    column, row, "★" if cell == pick else "", ha="center", va="center", color="white", fontsize=15
                )
                box = {"xy": (column - 0.5, row - 0.5), "width": 1, "height": 1, "fill": False}
                axis.add_patch(_rectangle(**box, edgecolor="#e0202b", linewidth=2.2))
        for line in range(10):
            width = 1.6 if line % 3 == 0 else 0.3
            axis.axhline(line - 0.5, color="black", linewidth=width)
            axis.axvline(line - 0.5, color="black", linewidth=width)
        axis.set(xticks=[], yticks=[])


def _rectangle(**options: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle(zorder=3, **options)


if __name__ == "__main__":
    sys.exit(main())
