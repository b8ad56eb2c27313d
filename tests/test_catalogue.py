"""The catalogue is complete: every name builds, says what it is, and every part can be reached."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tabes
from tabes.budgets import Compatible
from tabes.catalogue import FAMILIES, PRESETS, Preset
from tabes.cli._catalogue import KINDS, rules
from tabes.cli._catalogue_page import page
from tabes.errors import UsageError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, Part
from tabes.presets import SHARED, settings_of
from tabes.rankings.boe import Boe
from tabes.sampling import KERNELS, PartSampler
from tabes.settings import Setting

pytestmark = pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
PAGE = Path(__file__).parent.parent / "docs" / "samplers.md"
PARTS = [(kind, name) for kind, registry in KINDS.items() for name in registry.names()]
TEXTS = [one.name for one in fields(Preset) if one.type == "str" and one.name != "budget"]


def parts_of(preset: Preset) -> dict[str, tuple[Setting, ...]]:
    """The parameters of each part of a preset."""
    if preset.kernel is not None:
        return {"kernel": KERNELS.settings(preset.kernel)}
    assert preset.ranking is not None
    found = {"ranking": RANKINGS.settings(preset.ranking), "budget": BUDGETS.settings(preset.budget)}
    return found if preset.reviser is None else found | {"reviser": REVISERS.settings(preset.reviser)}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_what_it_names(name: str) -> None:
    preset, built = PRESETS[name], tabes.sampler(name)
    if preset.kernel is not None:
        assert type(built) is KERNELS.find(preset.kernel)
        assert preset.ranking is preset.reviser is None, "a kernel has no parts"
        return
    assert isinstance(built, PartSampler) and preset.ranking is not None
    assert type(built.ranking) is RANKINGS.find(preset.ranking)
    assert type(built.budget) is BUDGETS.find(preset.budget)
    assert (None if built.reviser is None else type(built.reviser)) is (
        None if preset.reviser is None else REVISERS.find(preset.reviser)
    )
    assert built.revises == (preset.reviser is not None)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_says_what_it_is(name: str) -> None:
    preset = PRESETS[name]
    missing = [text for text in TEXTS if not getattr(preset, text).strip() and text != "paper"]
    assert not missing, f"{name} says nothing of {', '.join(missing)}"
    assert preset.family in FAMILIES
    assert not preset.summary.endswith("."), "the table puts no full stops"


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_a_preset_sets_exists_and_holds(name: str) -> None:
    preset = PRESETS[name]
    known = {one.name: one for part in parts_of(preset).values() for one in part}
    draws = {"temperature", "top_p", "top_k"} if preset.kernel is None else set()
    for key, value in preset.parameters.items():
        assert key in known or key in draws, key
        assert key in draws or value in known[key].range
    listed = {one.name: one.default for one in settings_of(name)}
    assert listed == listed | {key: preset.parameters[key] for key in preset.parameters if key not in draws}


@pytest.mark.parametrize("name", PRESETS)
def test_no_parameter_belongs_to_two_parts(name: str) -> None:
    counted = Counter(one.name for part in parts_of(PRESETS[name]).values() for one in part)
    assert [key for key, times in counted.items() if times > 1] == []


def test_no_part_has_a_parameter_that_every_sampler_takes() -> None:
    for kind in ("ranking", "budget", "reviser"):
        for name in KINDS[kind].names():
            taken = {one.name for one in KINDS[kind].settings(name)} & set(SHARED)
            assert taken <= {"num_steps", "tokens_per_step"}, (kind, name)


def test_what_a_preset_sets_is_for_its_own_parts_only() -> None:
    rule = tabes.sampler("boe", budget="compatible")
    assert isinstance(rule, PartSampler) and isinstance(rule.budget, Compatible) and isinstance(rule.ranking, Boe)
    assert (rule.ranking.sure, rule.budget.sure) == (0.95, Compatible().sure)


def test_a_parameter_of_two_chosen_parts_is_refused_unless_one_is_ready_made() -> None:
    with pytest.raises(UsageError, match="sure is a parameter of the ranking 'boe' and of the budget 'compatible'"):
        tabes.sampler("boe", budget="compatible", sure=0.5)
    rule = tabes.sampler("boe", budget=Compatible(sure=0.5), sure=0.7)
    assert isinstance(rule, PartSampler) and isinstance(rule.ranking, Boe)
    assert (rule.ranking.sure, rule.budget) == (0.7, Compatible(sure=0.5))


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_every_part_has_a_formula(kind: str, name: str) -> None:
    """An indented line in the docstring of its file, or a sign of assignment or comparison somewhere."""
    part = KINDS[kind].find(name)
    text = f"{inspect.getdoc(sys.modules[part.__module__])}\n{part.__doc__}"
    assert "\n    " in text or any(sign in text for sign in ("=", "~", "<", ">", "argmax_v")), text
    assert part.__doc__ and not part.__doc__.startswith(f"{part.__name__}("), "dataclass wrote the docstring"


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_every_parameter_has_help_and_a_default_that_makes_sense(kind: str, name: str) -> None:
    for one in KINDS[kind].settings(name):
        assert one.help, f"{one.name} has no help"
        assert not one.help.endswith("."), one.help
        assert one.default in one.range or one.default is None, f"{one.name}={one.default!r}"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in PARTS if kind in ("ranking", "kernel")])
def test_every_ranking_and_kernel_is_reachable(kind: str, name: str) -> None:
    named = [one for one in rules() if getattr(one.preset, kind) == name]
    assert named, f"no sampler has the {kind} {name}"
    assert {one.name for one in named} <= set(tabes.samplers())


@pytest.mark.parametrize("name", BUDGETS.names())
def test_every_budget_is_reachable(name: str) -> None:
    rule = tabes.sampler("confidence", budget=name)
    assert isinstance(rule, PartSampler) and type(rule.budget) is BUDGETS.find(name)


@pytest.mark.parametrize("name", REVISERS.names())
def test_every_reviser_is_reachable(name: str) -> None:
    rule = tabes.sampler("confidence", reviser=name)
    assert isinstance(rule, PartSampler) and type(rule.reviser) is REVISERS.find(name)


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_a_wrong_value_of_any_parameter_is_refused(kind: str, name: str) -> None:
    """Where a range says anything, it is obeyed."""
    for one in KINDS[kind].settings(name):
        wrong = next((value for value in _unlikely() if value not in one.range), None)
        if wrong is None:
            continue
        with pytest.raises(tabes.TabesError, match=f"{one.name} is "):
            KINDS[kind].build(name, **{one.name: wrong})


def _unlikely() -> tuple[Any, ...]:
    return -1.5, 7.25, "no such word"


def test_parts_are_part_of_the_family() -> None:
    for kind in ("ranking", "budget", "writer", "reviser"):
        assert all(issubclass(KINDS[kind].find(name), Part) for name in KINDS[kind].names())


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run: tabes samplers --markdown > docs/samplers.md"


def test_the_page_has_every_sampler_and_every_part() -> None:
    text = page()
    for name, preset in PRESETS.items():
        assert f"\n### {name}\n" in text and preset.summary[1:] in text
    for kind, name in PARTS:
        assert f"\n### {kind} {name}\n" in text
