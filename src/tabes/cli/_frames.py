"""A Sudoku being filled: an animation on a terminal, a few stills side by side in a pipe. Shapes: P cells (81)."""

from __future__ import annotations

from collections.abc import Sequence
from time import sleep
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tabes.canvas import Canvas
    from tabes.denoiser import Denoiser
    from tabes.tasks import Item

__all__ = ["Frames"]

DIGITS = frozenset("123456789")
_STILLS = 4
_PAUSE = 0.05


class Frames:
    """Shows every canvas it is given: given digits plain, the newest ones bright, wrong ones red."""

    def __init__(self, console: Console, denoiser: Denoiser, item: Item) -> None:
        self.console, self.denoiser, self.item = console, denoiser, item
        self._grids: list[str] = [item.prompt]
        self._live = Live(self._drawn(0), console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start(refresh=True)
        return self

    def show(self, canvas: Canvas) -> None:
        """The next frame."""
        assert self.denoiser.tokenizer is not None
        tokens = self.denoiser.tokenizer.convert_ids_to_tokens(canvas.tokens_BL[0].tolist())
        self._grids.append("".join(token if token in DIGITS else "." for token in tokens))
        if self._live is not None:
            self._live.update(self._drawn(len(self._grids) - 1), refresh=True)
            sleep(_PAUSE)

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.stop()
            return
        last = len(self._grids) - 1
        stills = Table.grid(padding=(0, 5, 0, 0))
        stills.add_row(*(self._drawn(round(last * at / (_STILLS - 1))) for at in range(_STILLS)))
        self.console.print(stills)

    def _drawn(self, at: int) -> Text:
        return _grid(self._grids[at], self._grids[max(at - 1, 0)], self.item).append(f"\nstep {at}", "dim")


def _grid(cells_P: str, before_P: str, item: Item) -> Text:
    text = Text(no_wrap=True)
    for at, cell in enumerate(cells_P):
        row, column = divmod(at, 9)
        if column == 0 and row in (3, 6):
            text.append("------+-------+------\n", "dim")
        text.append(cell, _style(cell, at, before_P, item))
        text.append("\n" if column == 8 else " | " if column in (2, 5) else " ", "dim")
    return text


def _style(cell: str, at: int, before_P: Sequence[str], item: Item) -> str:
    if cell == ".":
        return "dim"
    if item.prompt[at] != ".":
        return ""
    if cell != item.answer[at]:
        return "bold red"
    return "bold green" if before_P[at] == "." else "cyan"
