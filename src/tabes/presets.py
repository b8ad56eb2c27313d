"""Samplers by name: presets of parts, and how a name with parameters becomes a sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tabes.errors import UnknownNameError, UsageError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, WRITERS, Budget, Reviser, Writer
from tabes.sampling import PartSampler, Sampler

__all__ = ["PRESETS", "Preset", "sampler", "samplers"]

# The parts register themselves when their packages are imported.
for _package in ("rankings", "budgets", "writers", "revisers", "kernels"):
    import_module(f"tabes.{_package}")


@dataclass(frozen=True)
class Preset:
    """A named choice of parts."""

    ranking: str
    summary: str
    paper: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def own(self) -> dict[str, Any]:
        """The parameters of its ranking and the values they have here."""
        return {**RANKINGS.parameters(self.ranking), **self.parameters}


_TABES = "TABES 2602.00250"
# Chosen on tuning items, except `writes`; so is the floor, of which the paper prints neither number (docs/boe.md).
_BEST = {"candidates": 4, "delta": 0.1, "sure": 0.95, "writes": 1}
_PAPER = {"rho": 0.25, "gate": True, "floor_weight": 1.0, "floor_height": 0.5}
_LITERAL = {"probes": "candidates"}

PRESETS: dict[str, Preset] = {
    "boe": Preset("boe", "where unsure, the write that makes the rest least uncertain by its gradient", _TABES, _BEST),
    "boe-dense": Preset(
        "boe", "boe with a second forward and a dense backward: the reference", _TABES, _BEST | {"backward": "dense"}
    ),
    "boe-literal": Preset("boe", "the paper to the letter: only candidates active", _TABES, _PAPER | _LITERAL),
    "boe-paper": Preset("boe", "the paper's method as it is meant", _TABES, _PAPER),
    "boe-verify": Preset("boe-verify", "importance proposes, lookahead decides", _TABES, _BEST | {"verify": 2}),
    "confidence": Preset("confidence", "most confident token first", "MaskGIT 2202.04200, LLaDA 2502.09992"),
    "entropy": Preset("entropy", "least uncertain row first", "as used in Dream 2508.15487"),
    "lookahead": Preset(
        "lookahead",
        "where unsure, tries the surest rows and writes what leaves the least uncertain",
        "",
        {"delta": 0.1, "sure": 0.95, "writes": 1},
    ),
    "left_to_right": Preset("left_to_right", "lowest row first, as an autoregressive model", ""),
    "margin": Preset("margin", "largest lead of the best token over the second first", "Kim et al. 2502.06768"),
    "random": Preset("random", "a fresh random order at every step", "MDLM 2406.07524, with fixed counts"),
}

_SHARED = ("num_steps", "tokens_per_step", "budget", "temperature", "top_p", "top_k", "reviser")


def samplers() -> tuple[str, ...]:
    """The names `sampler` knows."""
    return tuple(sorted(PRESETS))


def sampler(
    name: str,
    *,
    num_steps: int | None = None,
    tokens_per_step: int | None = None,
    budget: str | Budget | None = None,
    temperature: float = 0.0,
    top_p: float | None = None,
    top_k: int | None = None,
    reviser: str | Reviser | None = None,
    **parameters: Any,
) -> Sampler:
    """The sampler called `name`.

    Steps: `num_steps` in all (default: one per token) or `tokens_per_step`; `budget` names another way to spread
    them ("even", "cosine", "compatible"). Tokens: the most probable one at `temperature` 0, else drawn, restricted by
    `top_p` and `top_k`. Further parameters go to the ranking or the budget, whichever has them.
    """
    if name not in PRESETS:
        raise UnknownNameError("sampler", name, PRESETS)
    preset = PRESETS[name]
    known, of_budget = preset.own, _own_parameters(budget)
    for unknown in parameters.keys() - known.keys() - of_budget:
        raise UnknownNameError(f"parameter of sampler '{name}'", unknown, (*_SHARED, *known, *of_budget))
    for_budget = {key: parameters.pop(key) for key in of_budget & parameters.keys()}
    return PartSampler(
        ranking=RANKINGS.build(preset.ranking, **{**preset.parameters, **parameters}),
        budget=_budget(budget, num_steps, tokens_per_step, for_budget),
        writer=_writer(temperature, top_p, top_k),
        reviser=REVISERS.build(reviser) if isinstance(reviser, str) else reviser,
    )


def _own_parameters(budget: str | Budget | None) -> set[str]:
    """What a budget chosen by name takes besides the number of steps or tokens."""
    return set(BUDGETS.parameters(budget)) - set(_SHARED) if isinstance(budget, str) else set()


def _budget(
    budget: str | Budget | None, num_steps: int | None, tokens_per_step: int | None, own: Mapping[str, Any]
) -> Budget:
    given = {"num_steps": num_steps, "tokens_per_step": tokens_per_step}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) == 2:
        raise UsageError(f"num_steps={num_steps} and tokens_per_step={tokens_per_step} exclude each other; give one")
    if isinstance(budget, Budget):
        for name in given:
            raise UsageError(f"{name} was given besides a ready-made budget; set it on the budget")
        return budget
    default = "tokens_per_step" if tokens_per_step is not None else "even"
    return BUDGETS.build(budget or default, **given, **own)


def _writer(temperature: float, top_p: float | None, top_k: int | None) -> Writer:
    if temperature == 0.0:
        for name, value in (("top_p", top_p), ("top_k", top_k)):
            if value is not None:
                raise UsageError(f"{name}={value} has no effect at temperature 0; set a temperature above 0")
        return WRITERS.build("argmax")
    return WRITERS.build("categorical", temperature=temperature, top_p=top_p, top_k=top_k)
