"""Rules of other packages: an installed distribution offers them by entry point; broken ones get one sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import tabes
from tabes.cli import main
from tabes.errors import UsageError
from tabes.parts import BUDGETS, RANKINGS, REVISERS, WRITERS
from tabes.presets import preset_of, sampler
from tabes.registry import Registry
from tabes.sampling import KERNELS, PartSampler
from tabes.testing import check_budget, check_kernel, check_ranking, check_reviser

REGISTRIES: tuple[Registry[Any], ...] = (RANKINGS, BUDGETS, WRITERS, REVISERS, KERNELS)

RULES = """
    from dataclasses import dataclass

    import torch

    from tabes.budgets import Even
    from tabes.parts import CountBudget, Ranking, Reviser, Revision
    from tabes.presets import sampler
    from tabes.settings import setting


    @dataclass(frozen=True)
    class RightToLeft(Ranking):
        '''The highest row first, every `stride`-th before the others.'''

        stride: int = setting(1, "rows of one pass", least=1, whole=True)

        def scores(self, view, prediction, proposal):
            return view.canvas.positions_BL.float() + 100.0 * (view.canvas.positions_BL % self.stride == 0)


    @dataclass(frozen=True)
    class Pairs(CountBudget):
        '''Two at a time.'''

        size: int = setting(2, "rows at a time", least=1, whole=True)

        def counts(self, view, state):
            return torch.full_like(view.canvas.block_B, self.size), state


    @dataclass(frozen=True)
    class Content(Reviser):
        '''Never changes its mind.'''

        def revise(self, view, ranked, write_BL, state):
            return Revision(torch.zeros_like(write_BL)), state


    @dataclass(frozen=True)
    class AtOnce:
        '''Everything in one step.'''

        revises = False

        def init(self, canvas):
            return None

        def step(self, view, state):
            from tabes.canvas import Move

            prediction = view.predict(view.canvas.open_BL, statistics=("top_token",))
            return Move(view.canvas.open_BL, prediction.top_token_BL), state


    not_a_class = RightToLeft(2)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A distribution on the path: its module `elsewhere_rules` and what it offers."""

    def put(module: str = RULES, **offers: dict[str, str]) -> None:
        (tmp_path / "elsewhere_rules.py").write_text(dedent(module))
        info = tmp_path / "elsewhere-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
        lines = [
            f"[tabes.{kind}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for kind, names in offers.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))

    def forget() -> None:
        for registry in REGISTRIES:
            vars(registry).pop("_offered", None)
        sys.modules.pop("elsewhere_rules", None)

    monkeypatch.syspath_prepend(tmp_path)
    for registry in REGISTRIES:
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
    forget()
    yield put
    forget()


GOOD = {
    "rankings": {"right_to_left": "elsewhere_rules:RightToLeft"},
    "budgets": {"pairs": "elsewhere_rules:Pairs"},
    "revisers": {"content": "elsewhere_rules:Content"},
    "kernels": {"at_once": "elsewhere_rules:AtOnce"},
}


def test_an_installed_ranking_is_a_sampler(install: Install, golden_model: tabes.Denoiser) -> None:
    install(**GOOD)
    assert "right_to_left" in tabes.samplers() and "at_once" in tabes.samplers()
    assert "elsewhere_rules" not in sys.modules, "it is imported when it is asked for, not before"
    rule = sampler("right_to_left", budget="pairs", reviser="content", stride=2, size=3)
    assert isinstance(rule, PartSampler)
    assert [type(part).__name__ for part in rule.parts] == ["Argmax", "RightToLeft", "Pairs", "Content"]
    output = tabes.generate(golden_model, "w1 w2", max_new_tokens=6, sampler=rule)
    assert [step.positions[0] for step in output.steps] == [(2, 4, 6), (3, 5, 7)]
    whole = tabes.generate(golden_model, "w1 w2", max_new_tokens=6, sampler="at_once")
    assert len(whole.steps) == 1
    assert preset_of("right_to_left").summary == "The highest row first, every `stride`-th before the others"


def test_they_conform(install: Install) -> None:
    install(**GOOD)
    check_ranking(RANKINGS.build("right_to_left", stride=3))
    check_budget(BUDGETS.build("pairs"))
    check_reviser(REVISERS.build("content"))
    check_kernel(KERNELS.build("at_once"))


def test_the_command_line_knows_them(install: Install, capfd: pytest.CaptureFixture[str]) -> None:
    install(**GOOD)
    assert main(["samplers", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    listed = told["samplers"] if isinstance(told, dict) else told
    (found,) = [one for one in listed if one["name"] == "right_to_left"]
    assert "stride" in str(found["parameters"])
    assert main(["samplers"]) == 0
    assert "right_to_left" in capfd.readouterr().out
    puzzle = "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"
    run = ["generate", "--model", "sudoku", "--prompt", puzzle, "--sampler", "right_to_left", "--set", "stride=2"]
    assert main(run) == 0


def test_ours_cannot_be_replaced(install: Install) -> None:
    before = RANKINGS.find("confidence")
    install(rankings={"confidence": "elsewhere_rules:RightToLeft"})
    assert RANKINGS.find("confidence") is before and tabes.samplers().count("confidence") == 1


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("elsewhere_rules:Missing", "ranking 'odd' of elsewhere cannot be imported: "),
        ("no_such_module:Rule", "ranking 'odd' of elsewhere cannot be imported: No module named 'no_such_module'"),
        ("elsewhere_rules:not_a_class", "is RightToLeft(stride=2); it must be a class"),
        ("elsewhere_rules:Pairs", "is no tabes.parts.Ranking; make Pairs inherit it"),
    ],
)
def test_broken_offers_get_one_sentence(
    install: Install, capfd: pytest.CaptureFixture[str], target: str, words: str
) -> None:
    install(rankings={"odd": target})
    assert "odd" in tabes.samplers()
    with pytest.raises(UsageError) as caught:
        sampler("odd")
    assert words in str(caught.value)
    assert isinstance(sampler("confidence"), PartSampler), "one broken package must not stop the others"
    capfd.readouterr()
    assert main(["generate", "--model", "sudoku", "--prompt", ".", "--sampler", "odd"]) == 2
    told = capfd.readouterr()
    assert words in told.err and len(told.err.splitlines()) == 1


def test_a_module_that_breaks_when_imported(install: Install) -> None:
    install(
        "raise RuntimeError('too old')", budgets={"odd": "elsewhere_rules:Pairs"}, revisers={"odd": "elsewhere_rules:X"}
    )
    with pytest.raises(UsageError, match=r"^budget 'odd' of elsewhere cannot be imported: too old$"):
        sampler("confidence", budget="odd")
    with pytest.raises(UsageError, match=r"^reviser 'odd' of elsewhere cannot be imported: too old$"):
        sampler("confidence", reviser="odd")


def test_bad_values_of_their_parameters_are_refused_like_ours(install: Install) -> None:
    install(**GOOD)
    with pytest.raises(UsageError, match="stride is 0; it must be 1 or more"):
        sampler("right_to_left", stride=0)
    with pytest.raises(UsageError, match="unknown parameter of sampler 'right_to_left' 'strid'"):
        sampler("right_to_left", strid=1)
    with pytest.raises(UsageError, match="did you mean right_to_left"):
        sampler("right_to_lft")
