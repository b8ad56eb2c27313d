"""Reaction completion as a benchmark task: most of a product is masked, and what is written must be that molecule.

A molecule is one graph written as a line: brackets and rings must close, atoms keep their valences, and the reactants
say which atoms there are. So tokens depend on each other over long distances, and the order of writing shows.

The reactions come from a file of the user's. They are shuffled once, the same way for everybody; the first 246 are for
tuning a rule, the others for reporting what it is worth.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tabes.errors import UsageError
from tabes.models.smiles import MASK, smiles_tokens
from tabes.tasks.base import TASKS, Item

__all__ = ["ReactionTask", "Split"]

Split = Literal["tuning", "reporting", "all"]

_TUNING: Final = 246  # leaves 750 of the 996 reactions this was made for
_ARROW: Final = ">>"
_SPLIT_STREAM, _MASK_STREAM = 0x5917, 0x3A5C  # separate this module's randomness from other uses of the same seed


@dataclass(frozen=True)
class _Reaction:
    """`number` is its place in the file: the masks hang on it, so they are the same in every split."""

    number: int
    reactants: str
    product: tuple[str, ...]


@TASKS.register("reactions")
@dataclass(frozen=True)
class ReactionTask:
    """Reactions `reactants>>product` with a share of the product's tokens masked. An item's answer is the product.

    Attributes:
        path: A CSV file with a reaction in every row.
        share: Of the product's tokens are masked, at least one. A larger share masks more beside the same ones.
        draw: The first draw of masks.
        draws: So many items for each reaction, with other masks each: every reaction in draw `draw`, then all again.
        split: "tuning", "reporting" or "all" (tuning, then reporting).
        column: Of the file, where the reactions are.
    """

    path: str | Path
    share: float = 0.7
    draw: int = 0
    draws: int = 1
    split: Split = "reporting"
    column: str = "rxn"

    name: ClassVar[str] = "reactions"
    metrics: ClassVar[tuple[str, ...]] = ("exact", "tokens_right")
    max_new_tokens: ClassVar[int] = 0
    stop: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if self.split not in get_args(Split):
            raise UsageError(f"task 'reactions': split is {self.split!r}; it must be 'tuning', 'reporting' or 'all'")
        if isinstance(self.share, bool) or not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise UsageError(f"task 'reactions': share is {self.share!r}; it must be above 0 and at most 1")
        for parameter, least in (("draw", 0), ("draws", 1)):
            _check_count(parameter, getattr(self, parameter), least)

    def items(self, count: int, seed: int) -> tuple[Item, ...]:
        """The first `count` items of the split. `seed` draws other masks; it moves no reaction."""
        _check_count("count", count, 0)
        _check_count("seed", seed, 0)
        reactions = _part(_read(Path(self.path), self.column), self.split)
        if count > len(reactions) * self.draws:
            raise UsageError(
                f"task 'reactions': {count} items were asked for, but split '{self.split}' has {len(reactions)} "
                f"reactions, each in {self.draws} draws of masks; ask for fewer items or more draws"
            )
        turns = (divmod(at, len(reactions)) for at in range(count))
        return tuple(self._item(reactions[which], self.draw + turn, seed) for turn, which in turns)

    def _item(self, reaction: _Reaction, draw: int, seed: int) -> Item:
        order = _shuffled(len(reaction.product), _MASK_STREAM, seed, draw, reaction.number)
        holes = set(order[: max(1, int(self.share * len(order) + 0.5))].tolist())
        shown = "".join(MASK if at in holes else token for at, token in enumerate(reaction.product))
        return Item(f"{reaction.reactants}{_ARROW}{shown}", "".join(reaction.product))

    def score(self, item: Item, text: str) -> dict[str, float]:
        """A text with more or fewer tokens than the answer is wrong everywhere: nothing says which token is which.

        That happens when a model writes tokens that are no SMILES, or marks that leave the text.
        """
        wanted, shown = smiles_tokens(item.answer), smiles_tokens(_product(item.prompt))
        try:
            found = smiles_tokens(_product(text))
        except UsageError:
            found = ()
        if len(found) != len(wanted):
            return dict.fromkeys(self.metrics, 0.0)
        right = [a == b for a, b, hole in zip(found, wanted, shown, strict=True) if hole == MASK]
        return {"exact": float(found == wanted), "tokens_right": sum(right) / len(right)}


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"task 'reactions': {name} is {value!r}; it must be a whole number, at least {least}")


def _product(reaction: str) -> str:
    return reaction.partition(_ARROW)[2]


def _part(reactions: Sequence[_Reaction], split: Split) -> list[_Reaction]:
    """The reactions of a split, in the order everybody has them in."""
    shuffled = [reactions[number] for number in _shuffled(len(reactions), _SPLIT_STREAM)]
    parts: dict[Split, slice] = {"tuning": slice(_TUNING), "reporting": slice(_TUNING, None), "all": slice(None)}
    return shuffled[parts[split]]


def _shuffled(length: int, *stream: int) -> NDArray[np.intp]:
    """0 ... length - 1 in random order. Sorted doubles, because numpy may change how it shuffles but not these."""
    return np.argsort(np.random.default_rng(stream).random(length), kind="stable")


def _read(path: Path, column: str) -> list[_Reaction]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            columns, rows = table.fieldnames or (), list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"task 'reactions': {path} cannot be read ({reason}); path= names a CSV file") from None
    if column not in columns:
        known = ", ".join(f"'{name}'" for name in columns) or "none"
        raise UsageError(f"task 'reactions': {path} has no column '{column}' but {known}; name one with column=")
    return [_reaction(number, row[column] or "", path) for number, row in enumerate(rows)]


def _reaction(number: int, text: str, path: Path) -> _Reaction:
    reactants, arrow, product = text.partition(_ARROW)
    try:
        smiles_tokens(reactants)
        tokens = smiles_tokens(product)
    except UsageError as error:
        raise UsageError(f"task 'reactions': reaction {number + 1} of {path}: {error}") from None
    if not arrow or not tokens or _ARROW in tokens or MASK in smiles_tokens(text):
        raise UsageError(f"task 'reactions': reaction {number + 1} of {path} is {text!r:.80}, not reactants>>product")
    return _Reaction(number, reactants, tokens)
