"""Few cases in which every pair of values of any two axes occurs: a covering array, greedy and deterministic."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import combinations

__all__ = ["pairwise"]

Pair = tuple[str, Hashable, str, Hashable]


def pairwise(axes: Mapping[str, Sequence[Hashable]]) -> list[dict[str, Hashable]]:
    """Cases as {axis: value}. The longest two axes decide how many there are at least."""
    names = sorted(axes, key=lambda name: -len(axes[name]))
    missing = set(_all(axes, names))
    order = {pair: at for at, pair in enumerate(_all(axes, names))}
    cases = []
    while missing:
        one, first, other, second = min(missing, key=order.__getitem__)
        case: dict[str, Hashable] = {one: first, other: second}
        for name in names:
            if name not in case:
                case[name] = _best(axes[name], name, case, missing, len(cases))
        missing -= set(_pairs(case, names))
        cases.append({name: case[name] for name in axes})
    return cases


def _best(
    values: Sequence[Hashable], name: str, case: Mapping[str, Hashable], missing: set[Pair], turn: int
) -> Hashable:
    """The value that covers most with what is chosen; among equals another one every time."""
    turned = [*values[turn % len(values) :], *values[: turn % len(values)]]

    def news(value: Hashable) -> int:
        return sum(
            (name, value, other, chosen) in missing or (other, chosen, name, value) in missing
            for other, chosen in case.items()
        )

    return max(turned, key=news)


def _all(axes: Mapping[str, Sequence[Hashable]], names: Sequence[str]) -> Iterator[Pair]:
    for one, other in combinations(names, 2):
        for first in axes[one]:
            for second in axes[other]:
                yield one, first, other, second


def _pairs(case: Mapping[str, Hashable], names: Sequence[str]) -> Iterator[Pair]:
    for one, other in combinations(names, 2):
        yield one, case[one], other, case[other]
