"""Samplers by name: presets of parts, and how a name with parameters becomes a sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tabes.catalogue import PRESETS, Preset
from tabes.errors import UnknownNameError, UsageError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, WRITERS, Budget, CountBudget, Part, Ranking, Reviser, Writer
from tabes.registry import Registry
from tabes.sampling import KERNELS, PartSampler, Sampler
from tabes.settings import Setting

__all__ = ["SHARED", "preset_of", "sampler", "samplers", "settings_of"]

SHARED = ("num_steps", "tokens_per_step", "budget", "temperature", "top_p", "top_k", "reviser")
_STEPS, _DRAWS = ("num_steps", "tokens_per_step"), ("temperature", "top_p", "top_k")


def samplers() -> tuple[str, ...]:
    """The names `sampler` knows: presets, and rankings and kernels (of other packages too) that have none."""
    return tuple(sorted({*PRESETS, *_without_preset(RANKINGS), *_without_preset(KERNELS)}))


def preset_of(name: str) -> Preset:
    """The preset called `name`; a ranking or kernel without one is its own. Presets are spelled with hyphens."""
    if name.replace("_", "-") in PRESETS:
        return PRESETS[name.replace("_", "-")]
    if name in _without_preset(RANKINGS):
        return Preset(_summary(RANKINGS.find(name)), ranking=name)
    if name in _without_preset(KERNELS):
        return Preset(_summary(KERNELS.find(name)), kernel=name)
    raise UnknownNameError("sampler", name, samplers())


def settings_of(name: str) -> tuple[Setting, ...]:
    """Every parameter of its own that the sampler called `name` takes, with the default it has there."""
    preset = preset_of(name)
    if preset.kernel is not None:
        known = KERNELS.settings(preset.kernel)
    else:
        assert preset.ranking is not None
        known = RANKINGS.settings(preset.ranking)
        known += tuple(one for one in BUDGETS.settings(preset.budget) if one.name not in _STEPS)
        known += () if preset.reviser is None else REVISERS.settings(preset.reviser)
    defaults = preset.parameters
    return tuple(Setting(one.name, defaults.get(one.name, one.default), one.range, one.help) for one in known)


def sampler(
    name: str,
    *,
    num_steps: int | None = None,
    tokens_per_step: int | None = None,
    budget: str | Budget | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    reviser: str | Reviser | None = None,
    **parameters: Any,
) -> Sampler:
    """The sampler called `name`.

    Steps: `num_steps` in all (default: one per token) or `tokens_per_step`; `budget` names another way to spread
    them ("even", "curve", "threshold", ...) and `reviser` what takes written tokens back. Tokens: the most probable one
    at `temperature` 0, else drawn, restricted by `top_p` and `top_k`; None is what the sampler's authors use. Further
    parameters go to whichever part has them: `tabes samplers` lists all.
    """
    preset = preset_of(name)
    values = (num_steps, tokens_per_step, budget, temperature, top_p, top_k, reviser)
    given = {key: value for key, value in zip(SHARED, values, strict=True) if value is not None}
    if preset.kernel is not None:
        return _kernel(name, preset, given, parameters)
    return _parts(name, preset, given, parameters)


def _kernel(name: str, preset: Preset, given: Mapping[str, Any], parameters: Mapping[str, Any]) -> Sampler:
    assert preset.kernel is not None
    known = KERNELS.parameters(preset.kernel)
    for unknown in given.keys() - known.keys():
        raise UsageError(f"sampler '{name}' is one whole transition, which has no {unknown}; leave it out")
    for unknown in parameters.keys() - known.keys():
        raise UnknownNameError(f"parameter of sampler '{name}'", unknown, known)
    return KERNELS.build(preset.kernel, **{**preset.parameters, **given, **parameters})


def _parts(name: str, preset: Preset, given: Mapping[str, Any], parameters: Mapping[str, Any]) -> Sampler:
    assert preset.ranking is not None
    budget, reviser = given.get("budget"), given.get("reviser", preset.reviser)
    for what, value, kind in (("budget", budget, Budget), ("reviser", reviser, Reviser)):
        if value is not None and not isinstance(value, str | kind):
            more = "; a number of tokens is tokens_per_step" if what == "budget" else ""
            raise UsageError(f"{what} is {value!r}; give a name (tabes samplers lists them) or a {kind.__name__}{more}")
    chosen = _budget_name(preset, given) if budget is None else budget
    homes: list[tuple[Registry[Any], Any]] = [(RANKINGS, preset.ranking), (BUDGETS, chosen), (REVISERS, reviser)]
    own = _shared_out(name, preset, [(one, part) for one, part in homes if isinstance(part, str)], parameters)
    steps = {key: given[key] for key in _STEPS if key in given}
    ranking = RANKINGS.build(preset.ranking, **own["ranking"])
    return PartSampler(
        ranking=ranking,
        budget=_budget(chosen, steps, own.get("budget", {})),
        writer=_writer(preset, {key: given[key] for key in _DRAWS if key in given}, ranking),
        reviser=REVISERS.build(reviser, **own["reviser"]) if isinstance(reviser, str) else reviser,
    )


def _shared_out(
    name: str, preset: Preset, named: list[tuple[Registry[Any], str]], parameters: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Which kind of part is given which parameters. The preset's own are for the parts it names, not for others."""
    known = {registry.kind: set(registry.parameters(part)) - set(SHARED) for registry, part in named}
    everything = set[str]().union(*known.values())
    for unknown in parameters.keys() - everything:
        raise UnknownNameError(f"parameter of sampler '{name}'", unknown, (*SHARED, *everything))
    for key in parameters:
        homes = [(one.kind, part) for one, part in named if key in known[one.kind]]
        if len(homes) > 1:
            said = " and of ".join(f"the {kind} '{part}'" for kind, part in homes)
            raise UsageError(f"{key} is a parameter of {said}; give a {homes[-1][0]} made with it, not its name")
    own = {one.kind: dict(preset.parameters) if getattr(preset, one.kind) == part else {} for one, part in named}
    return {
        kind: {key: value for key, value in {**own[kind], **parameters}.items() if key in keys}
        for kind, keys in known.items()
    }


def _budget_name(preset: Preset, given: Mapping[str, Any]) -> str:
    """`tokens_per_step` is a budget of its own, and takes the place of a preset's that counts otherwise."""
    counts = issubclass(BUDGETS.find(preset.budget), CountBudget)
    wants = "tokens_per_step" in given and "tokens_per_step" not in BUDGETS.parameters(preset.budget)
    return "tokens_per_step" if counts and wants else preset.budget


def _budget(budget: str | Budget, steps: Mapping[str, int], own: Mapping[str, Any]) -> Budget:
    if len(steps) == 2:
        num_steps, tokens = steps["num_steps"], steps["tokens_per_step"]
        raise UsageError(f"num_steps={num_steps} and tokens_per_step={tokens} exclude each other; give one")
    if isinstance(budget, Budget):
        for name in steps:
            raise UsageError(f"{name} was given besides a ready-made budget; set it on the budget")
        return budget
    return BUDGETS.build(budget, **steps, **own)


def _writer(preset: Preset, given: Mapping[str, Any], ranking: Ranking) -> Writer:
    draws = {**{key: preset.parameters[key] for key in _DRAWS if key in preset.parameters}, **given}
    if draws.get("temperature", 0.0) != 0.0:
        return WRITERS.build("categorical", **draws)
    if getattr(ranking, "read", "model") == "writer":
        # The filters choose no token here, but the order: such a ranking looks at what they leave.
        return WRITERS.build("argmax", **{key: value for key, value in draws.items() if key != "temperature"})
    for name in given.keys() - {"temperature"}:
        raise UsageError(f"{name}={given[name]} has no effect at temperature 0; set a temperature above 0")
    return WRITERS.build("argmax")


def _without_preset(registry: Registry[Any]) -> set[str]:
    shown = {preset.ranking for preset in PRESETS.values()} | {preset.kernel for preset in PRESETS.values()}
    return {name for name in registry.names() if name not in shown and name not in PRESETS}


def _summary(part: type[Any]) -> str:
    """The first line of a part's docstring, without its full stop."""
    if issubclass(part, Part) and part.__doc__ is None:
        return ""
    return (part.__doc__ or "").strip().split("\n")[0].removesuffix(".")
