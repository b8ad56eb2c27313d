"""docs/samplers.md, made from the catalogue: `tabes samplers --markdown > docs/samplers.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module

from tabes.cli._catalogue import KINDS, Piece, Rule, families, pieces, rules, spelled, values
from tabes.settings import Setting

__all__ = ["page"]

_OPENING = """# Samplers

Every decoding rule that comes with tabes: what it does, what it costs, when to choose it, which source it follows and
how that was checked. This page is made from the catalogue (`tabes samplers --markdown > docs/samplers.md`);
`tabes samplers NAME` prints one entry, `tabes samplers --json` all of them for machines.

```python
import tabes

rule = tabes.sampler("confidence", budget="threshold", threshold=0.9)
print(rule.revises, tabes.samplers()[:3])
```

A sampler is made of four parts: a [ranking](#rankings) says which rows, a [budget](#budgets) how many, a
[writer](#writers) which tokens, a [reviser](#revisers) what is taken back. Or it is one whole transition, a
[kernel](#kernels). Any budget and any reviser go with any ranking: `budget=` and `reviser=` choose another, and
parameters of whatever is chosen are given beside them; `temperature`, `top_p` and `top_k` go with all of them,
`num_steps` and `tokens_per_step` with budgets that count. Costs are what a step takes besides one forward and one pass
over the rows read. Formulas and all parameters with their values stand under the parts, below.
"""

_FEW = 12
_WORDS = {
    "ranking": "Which rows come first.",
    "budget": "How many rows a step writes.",
    "writer": "Which token: the most probable at temperature 0, else one that is drawn.",
    "reviser": "What is taken back.",
    "kernel": "Whole transitions: what is revealed and what is masked again come from one distribution.",
}


def page() -> str:
    """The page, of what comes with tabes only."""
    known = tuple(one for one in rules() if all(piece.ours for piece in one.pieces))
    return "\n".join(_lines(known)) + "\n"


def _lines(known: tuple[Rule, ...]) -> Iterator[str]:
    yield _OPENING
    grouped = (one for members in families(known).values() for one in members)
    yield from _table(("sampler", "what it does", "costs", "from"), map(_glance, grouped))
    for family, members in families(known).items():
        yield from ("", f"## {family.capitalize()}", "", _first_line(family))
        for one in members:
            yield from _rule(one)
    yield from _fidelity(known)
    for kind in KINDS:
        yield from ("", f"## {kind.capitalize()}s", "", _WORDS[kind])
        for piece in pieces(kind):
            if piece.ours:
                yield from _piece(piece)


def _glance(one: Rule) -> tuple[str, ...]:
    return f"[`{one.name}`](#{one.name})", one.preset.summary, one.preset.cost, one.preset.paper


def _rule(one: Rule) -> Iterator[str]:
    preset = one.preset
    yield from ("", f"### {one.name}", "", f"{_sentence(preset.summary)} {_sentence(preset.paper)}".strip(), "")
    yield f"* **Made of**: {', '.join(_link(piece) for piece in one.pieces)}{_set(one)}."
    yield f"* **Costs**: {_sentence(preset.cost)}" + (" Written tokens may change later." if one.revises else "")
    if preset.choose:
        yield f"* **Choose it**: {_sentence(preset.choose)}"
    if 0 < len(one.own) <= _FEW:
        yield f"* **Parameters**: {', '.join(f'`{each.name}={spelled(each.default)}`' for each in one.own)}."
    elif one.own:
        yield f"* **Parameters**: {len(one.own)}, listed under {', '.join(_link(each) for each in one.pieces)}."


def _fidelity(known: Sequence[Rule]) -> Iterator[str]:
    yield from ("", "## Faithful to which source, verified how, known departures", "")
    lines = ((f"`{one.name}`", one.preset.source, one.preset.verified, one.preset.departures) for one in known)
    yield from _table(("sampler", "source", "verified by", "known departures"), lines)


def _piece(piece: Piece) -> Iterator[str]:
    yield from ("", f"### {piece.kind} {piece.name}", "", "```text", piece.text, "```")
    if piece.settings:
        yield ""
        yield from _table(("parameter", "default", "values", "what it is"), map(_setting, piece.settings))


def _setting(one: Setting) -> tuple[str, ...]:
    return f"`{one.name}`", spelled(one.default), values(one.range), one.help


def _link(piece: Piece) -> str:
    return f"[{piece.kind} `{piece.name}`](#{piece.kind}-{piece.name})"


def _set(one: Rule) -> str:
    """What the preset sets on its parts, where that is not their default."""
    given = ", ".join(f"`{name}={spelled(value)}`" for name, value in one.preset.parameters.items())
    return f" with {given}" if given else ""


def _first_line(family: str) -> str:
    if family == "others":
        return "Without a place in a family."
    return (import_module(f"tabes.catalogue.{family}").__doc__ or "").split("\n")[0]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    for line in (header, ["---"] * len(header), *lines):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
