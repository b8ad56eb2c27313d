"""Samplers by name: presets of parts, and how a name with parameters becomes a sampler."""

from __future__ import annotations

from dataclasses import dataclass
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


PRESETS: dict[str, Preset] = {
    "confidence": Preset("confidence", "most confident token first", "MaskGIT 2202.04200, LLaDA 2502.09992"),
    "entropy": Preset("entropy", "least uncertain row first", "as used in Dream 2508.15487"),
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
    them ("even", "cosine"). Tokens: the most probable one at `temperature` 0, else drawn, restricted by `top_p` and
    `top_k`. Further parameters go to the ranking.
    """
    if name not in PRESETS:
        raise UnknownNameError("sampler", name, PRESETS)
    ranking = PRESETS[name].ranking
    known = RANKINGS.parameters(ranking)
    for unknown in parameters.keys() - known.keys():
        raise UnknownNameError(f"parameter of sampler '{name}'", unknown, (*_SHARED, *known))
    return PartSampler(
        ranking=RANKINGS.build(ranking, **parameters),
        budget=_budget(budget, num_steps, tokens_per_step),
        writer=_writer(temperature, top_p, top_k),
        reviser=REVISERS.build(reviser) if isinstance(reviser, str) else reviser,
    )


def _budget(budget: str | Budget | None, num_steps: int | None, tokens_per_step: int | None) -> Budget:
    given = {"num_steps": num_steps, "tokens_per_step": tokens_per_step}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) == 2:
        raise UsageError(f"num_steps={num_steps} and tokens_per_step={tokens_per_step} exclude each other; give one")
    if isinstance(budget, Budget):
        for name in given:
            raise UsageError(f"{name} was given besides a ready-made budget; set it on the budget")
        return budget
    default = "tokens_per_step" if tokens_per_step is not None else "even"
    return BUDGETS.build(budget or default, **given)


def _writer(temperature: float, top_p: float | None, top_k: int | None) -> Writer:
    if temperature == 0.0:
        for name, value in (("top_p", top_p), ("top_k", top_k)):
            if value is not None:
                raise UsageError(f"{name}={value} has no effect at temperature 0; set a temperature above 0")
        return WRITERS.build("argmax")
    return WRITERS.build("categorical", temperature=temperature, top_p=top_p, top_k=top_k)
