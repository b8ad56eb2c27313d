"""Samplers and tasks written in one word, so that a command line can compare any of them.

    NAME[:PARAMETER=VALUE]...[@cache=N][@suppress=ID]...       confidence:tokens_per_step=2:temperature=0.5@cache=4

Samplers in a list are separated by commas. `@cache=N` decodes with a full forward every N steps (`@cache=block`: once
per block) and replays in between. `@suppress=ID` is a token that must not come (`@suppress=end`: the end-of-text
tokens); there may be several. Values are numbers, true, false, none, or else text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tabes.denoiser import AnyDenoiser
from tabes.errors import UnknownNameError, UsageError
from tabes.presets import sampler
from tabes.rowcache import RowCache
from tabes.sampling import Sampler
from tabes.suppression import Suppress
from tabes.tasks import TASKS, Task

__all__ = ["SamplerSpec", "parse_parameters", "parse_sampler", "parse_samplers", "parse_task"]

_WORDS = {"true": True, "false": False, "none": None}
# Two ways to say the same: a sampler's own word on one replaces everybody's word on the other.
_STEPS = frozenset({"num_steps", "tokens_per_step"})


@dataclass(frozen=True)
class SamplerSpec:
    """A sampler by name with its parameters, how often the row cache refreshes (None: no cache), what must not come."""

    text: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cache: int | Literal["block"] | None = None
    suppress: tuple[int | Literal["end"], ...] = ()

    def build(self) -> Sampler:
        return sampler(self.name, **self.parameters)

    def wrap(self, model: AnyDenoiser) -> AnyDenoiser:
        model = model if self.cache is None else RowCache(model, self.cache)
        return Suppress(model, self.suppress) if self.suppress else model


def parse_sampler(
    text: str, shared: Mapping[str, Any] | None = None, cache: int | Literal["block"] | None = None
) -> SamplerSpec:
    """One sampler; `shared` parameters and `cache` hold where the text does not say otherwise."""
    head, *suffixes = text.strip().split("@")
    name, own = _named("sampler", head)
    common = {key: value for key, value in (shared or {}).items() if value is not None}
    if own.keys() & _STEPS:
        common = {key: value for key, value in common.items() if key not in _STEPS}
    options = {"cache": cache, "suppress": ()} | _options(text, suffixes)
    return SamplerSpec(text.strip(), name, common | own, **options)


def parse_samplers(
    text: str, shared: Mapping[str, Any] | None = None, cache: int | Literal["block"] | None = None
) -> tuple[SamplerSpec, ...]:
    """Several samplers separated by commas."""
    specs = tuple(parse_sampler(part, shared, cache) for part in text.split(",") if part.strip())
    if not specs:
        raise UsageError("no sampler was named; give names separated by commas, for example confidence,margin")
    names = [spec.text for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"sampler '{name}' is listed twice; name each once")
    return specs


def parse_task(text: str, shared: Mapping[str, Any] | None = None) -> Task:
    """A task such as `sudoku:clues=28`."""
    name, own = _named("task", text)
    common = {key: value for key, value in (shared or {}).items() if value is not None}
    return TASKS.build(name, **(common | own))


def parse_parameters(assignments: Sequence[str], where: str) -> dict[str, Any]:
    """`name=value` texts as parameters."""
    found: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"'{assignment}' in {where} is not name=value, such as tokens_per_step=2")
        if name in found:
            raise UsageError(f"'{name}' is given twice in {where}; give it once")
        found[name] = _value(value)
    return found


def _named(kind: str, text: str) -> tuple[str, dict[str, Any]]:
    name, *assignments = text.strip().split(":")
    return name, parse_parameters(assignments, f"{kind} '{text.strip()}'")


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def token(value: Any) -> int | Literal["end"]:
    """What may follow `suppress`."""
    if value == "end":
        return "end"
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"suppress is {value!r}; give a token id, or 'end' for the end-of-text tokens")
    return value


def _options(text: str, suffixes: Sequence[str]) -> dict[str, Any]:
    """What stands after each @: one cache, any number of tokens to suppress."""
    where, found = (
        f"sampler '{text.strip()}'",
        [suffix for suffix in suffixes if suffix.partition("=")[0] != "suppress"],
    )
    options = parse_parameters(found, where)
    for unknown in options.keys() - {"cache"}:
        raise UnknownNameError("option after @", unknown, ("cache", "suppress"))
    tokens = [parse_parameters([suffix], where)["suppress"] for suffix in suffixes if suffix not in found]
    return options | {"suppress": tuple(token(value) for value in tokens)}
