"""What there is to choose from, as data: `tabes samplers` prints it, its JSON and docs/samplers.md are made from it."""

from __future__ import annotations

import inspect
import sys
import warnings
from dataclasses import dataclass, fields, replace
from math import isinf
from typing import Any

from tabes.catalogue import FAMILIES, Preset
from tabes.errors import UnknownNameError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, WRITERS, CountBudget
from tabes.presets import preset_of, sampler, samplers, settings_of
from tabes.registry import Registry
from tabes.sampling import KERNELS
from tabes.settings import Range, Setting

__all__ = ["KINDS", "Piece", "Rule", "families", "look_up", "pieces", "rule", "rules", "spelled", "values"]

KINDS: dict[str, Registry[Any]] = {
    "ranking": RANKINGS,
    "budget": BUDGETS,
    "writer": WRITERS,
    "reviser": REVISERS,
    "kernel": KERNELS,
}


@dataclass(frozen=True)
class Piece:
    """A part that can be combined, or a kernel."""

    kind: str
    name: str

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Its parameters."""
        return KINDS[self.kind].settings(self.name)

    @property
    def summary(self) -> str:
        """The first line of its file, without the paper."""
        return self.text.split("\n\n")[0].split("(")[0].replace("\n", " ").strip().rstrip(".:")

    @property
    def text(self) -> str:
        """What its file says of it: the formula, the paper, what it reduces to."""
        part = KINDS[self.kind].find(self.name)
        return inspect.cleandoc(sys.modules[part.__module__].__doc__ or part.__doc__ or "")

    @property
    def ours(self) -> bool:
        """Whether it comes with tabes, not from another package."""
        return KINDS[self.kind].find(self.name).__module__.startswith("tabes.")

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {"name": self.name, "summary": self.summary, "parameters": [_as_dict(one) for one in self.settings]}


@dataclass(frozen=True)
class Rule:
    """A sampler by name: its preset, what it takes, whether it changes written tokens."""

    name: str
    preset: Preset
    own: tuple[Setting, ...]
    shared: tuple[Setting, ...]
    revises: bool

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What it is made of; the writer follows from the temperature."""
        names = {kind: getattr(self.preset, kind) for kind in ("ranking", "budget", "reviser", "kernel")}
        if self.preset.kernel is not None:
            names = {"kernel": self.preset.kernel}
        return tuple(Piece(kind, name) for kind, name in names.items() if name is not None)

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        left_out = ("ranking", "budget", "reviser", "kernel", "parameters")
        texts = {one.name: getattr(self.preset, one.name) for one in fields(Preset) if one.name not in left_out}
        return {
            "name": self.name,
            **texts,
            "revises": self.revises,
            "parts": {piece.kind: piece.name for piece in self.pieces},
            "parameters": [_as_dict(one) for one in (*self.own, *self.shared)],
        }


def rules() -> tuple[Rule, ...]:
    """Every sampler there is."""
    return tuple(rule(name) for name in samplers())


def rule(name: str) -> Rule:
    """The sampler called `name`, or one sentence on what there is instead."""
    preset = preset_of(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        revises = sampler(name).revises
    shared = () if preset.kernel is not None else _shared(preset)
    return Rule(name, preset, settings_of(name), shared, revises)


def families(known: tuple[Rule, ...]) -> dict[str, tuple[Rule, ...]]:
    """Samplers by family; what has none (of other packages, or rankings without a preset) last."""
    found = {family: tuple(one for one in known if one.preset.family == family) for family in FAMILIES}
    found["others"] = tuple(one for one in known if one.preset.family not in FAMILIES)
    return {family: members for family, members in found.items() if members}


def pieces(kind: str) -> tuple[Piece, ...]:
    """The parts of a kind."""
    return tuple(Piece(kind, name) for name in KINDS[kind].names())


def look_up(name: str) -> Rule | tuple[Piece, ...]:
    """The sampler called `name`, else the parts of that name."""
    if name in samplers():
        return rule(name)
    found = tuple(Piece(kind, name) for kind, registry in KINDS.items() if name in registry)
    if not found:
        everything = {*samplers(), *(part for registry in KINDS.values() for part in registry.names())}
        raise UnknownNameError("sampler", name, sorted(everything))
    return found


def values(span: Range) -> str:
    """The values that make sense, in words."""
    words = [spelled(choice) for choice in span.choices]
    numbers = str(replace(span, choices=())) if span.numeric else ""
    if numbers:
        words = [f"whole, {numbers}" if span.whole and not numbers.startswith("a whole") else numbers, *words]
    text = " or ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))
    return f"{text}; or none" if text and span.or_none else text


def spelled(value: Any) -> str:
    """A value as it is written on a command line."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _shared(preset: Preset) -> tuple[Setting, ...]:
    """What rules made of parts take besides their parts' own parameters."""
    budget = BUDGETS.parameters(preset.budget)
    num_steps = [one for one in BUDGETS.settings("even") if one.name == "num_steps" and one.name in budget]
    tokens = Setting("tokens_per_step", None, Range(least=1, whole=True, or_none=True), "tokens a step, instead")
    draws = {one.name: one for one in WRITERS.settings("categorical")}
    temperature = Range(least=0, below=draws["temperature"].range.below)
    budgets, revisers = Range(choices=BUDGETS.names()), Range(choices=REVISERS.names(), or_none=True)
    known = (
        *num_steps,
        *([tokens] if "tokens_per_step" in budget or issubclass(BUDGETS.find(preset.budget), CountBudget) else []),
        Setting("budget", preset.budget, budgets, "how many tokens a step writes; its parameters can be set too"),
        Setting("reviser", preset.reviser, revisers, "what takes written tokens back; its parameters can be set too"),
        Setting("temperature", 0.0, temperature, "0 writes the most probable token, above 0 draws one"),
        draws["top_p"],
        draws["top_k"],
    )
    return tuple(replace(one, default=preset.parameters.get(one.name, one.default)) for one in known)


def _as_dict(one: Setting) -> dict[str, Any]:
    """A parameter for machines; a bound that does not bind is left out."""
    # False and () say nothing, but a bound of 0 does.
    told = {key: value for key, value in vars(one.range).items() if _says(value)}
    default = one.default if isinstance(one.default, str | int | float | None) else str(one.default)
    return {"name": one.name, "default": default, "range": told, "help": one.help}


def _says(value: Any) -> bool:
    return value is not None and value is not False and value != () and not (isinstance(value, float) and isinf(value))
