from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tabes
from tabes import bundled
from tabes.bench import read_rows, summarise
from tabes.cli._catalogue import KINDS
from tabes.models import cards
from tabes.parts import WRITERS
from tabes.presets import settings_of
from tests.cli.conftest import Outcome

Command = Callable[..., Outcome]
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


def test_generate_prints_the_text_and_nothing_else(command: Command, texts: Path) -> None:
    outcome = command("generate", "--model", texts, "--prompt", "w1 [MASK] w2", "--max-new-tokens", 2)
    expected = tabes.generate(tabes.load(texts), "w1 [MASK] w2", max_new_tokens=2)
    assert outcome == Outcome(0, f"{expected.texts[0] if expected.texts else ''}\n", "")


def test_generate_json(command: Command, texts: Path) -> None:
    prompts = ("--prompt", "w1 w2", "--prompt", "w3")
    found = command("generate", "--model", texts, *prompts, "-n", 4, "--sampler", "confidence", "--json").json
    assert len(found["texts"]) == len(found["sequences"]) == 2
    assert {len(sequence) for sequence in found["sequences"]} == {6}
    assert found["steps"] == found["cost"]["forward_calls"] == 4
    assert found["cost"]["forward_equivalents"] > 0


def test_generate_passes_every_choice_on(command: Command, texts: Path) -> None:
    options = {"temperature": 0.8, "top_k": 20, "block_length": 2, "cfg_scale": 0.5, "seed": 7}
    flags = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    flags += ["--set", "tokens_per_step=2", "--sampler", "margin"]
    found = command("generate", "--model", texts, "--prompt", "w1", "-n", 6, "--json", *flags).json
    rule = tabes.sampler("margin", temperature=0.8, top_k=20, tokens_per_step=2)
    expected = tabes.generate(
        tabes.load(texts), "w1", sampler=rule, max_new_tokens=6, block_length=2, cfg_scale=0.5, seed=7
    )
    assert found["sequences"] == expected.sequences.tolist()
    assert found["cost"]["forward_tokens"] == expected.cost.forward_tokens == 2 * 3 * 7


def test_generate_with_the_row_cache_saves_work(command: Command, texts: Path) -> None:
    arguments = ("generate", "--model", texts, "--prompt", "w1 w2 w3", "-n", 8, "--json")
    plain, cached = command(*arguments).json, command(*arguments, "--cache-every", 4).json
    assert cached["cost"]["forward_tokens"] < plain["cost"]["forward_tokens"]
    guided = command(*arguments, "--cache-every", 1, "--cfg-scale", 1).json
    assert guided["sequences"] == command(*arguments, "--cfg-scale", 1).json["sequences"]


def test_nothing_to_fill_returns_at_once_at_no_cost(command: Command, texts: Path) -> None:
    outcome = command("generate", "--model", texts, "--prompt", "w1 w2", "--json")
    assert outcome.code == 0 and "nothing to fill" in outcome.err
    assert outcome.json["steps"] == 0
    counts = {name: value for name, value in outcome.json["cost"].items() if name != "full_forward_flops"}
    assert not any(counts.values())


def test_generate_fills_a_grid(command: Command, sudoku: Path) -> None:
    found = command("generate", "--model", sudoku, "--prompt", PUZZLE, "--set", "tokens_per_step=17", "--json").json
    (sequence,) = found["sequences"]
    assert len(sequence) == 81 and 10 not in sequence
    assert all(int(given) == token for given, token in zip(PUZZLE, sequence, strict=True) if given != ".")


COMPARE = ("--items", 3, "--clues", 70, "--seed", 5)


def test_compare_json(command: Command, sudoku: Path, tmp_path: Path) -> None:
    names = "confidence,margin,random:tokens_per_step=2,confidence@cache=4"
    outcome = command("compare", "-m", sudoku, "-s", names, *COMPARE, "--out", tmp_path / "rows.jsonl", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = outcome.json["samplers"]
    assert [one["sampler"] for one in found] == names.split(",")
    assert all({"solved", "cells_right", "seconds", "cost", "difference_to_first"} <= one.keys() for one in found)
    assert found[0]["difference_to_first"] is None
    assert {"difference", "low", "high", "method", "wins", "losses"} <= found[1]["difference_to_first"]["solved"].keys()
    calls, work = ([one["cost"][name] for one in found] for name in ("forward_calls", "forward_equivalents"))
    assert calls == [11, 11, 6, 11] and work[3] < work[2] < work[0]
    assert [summary.as_dict() for summary in summarise(read_rows(tmp_path / "rows.jsonl"))] == found


def test_compare_repeats_itself(command: Command, sudoku: Path) -> None:
    def decided(*options: object) -> list[tuple[float, float]]:
        found = command("compare", "-m", sudoku, "-s", "random", "--temperature", 1, *COMPARE, *options, "--json").json
        return [(one["solved"], one["cells_right"]) for one in found["samplers"]]

    assert decided() == decided() == decided("--batch-size", 2)


def test_compare_table_for_people(command: Command, sudoku: Path) -> None:
    outcome = command("compare", "--model", sudoku, "--samplers", "confidence,random", *COMPARE)
    *header, first, second = outcome.out.splitlines()
    assert "solved" in "".join(header) and "seconds" in "".join(header)
    assert first.startswith("confidence") and second.startswith("random")
    assert "95% interval" in outcome.err


FIDELITY = ("--states", 3, "--task", "sudoku:clues=70", "--candidates", 3, "--seed", 5, "--points", 5)


def test_fidelity_json(command: Command, sudoku: Path, tmp_path: Path) -> None:
    from tabes.bench.fidelity import examine, read_states, summarise

    rows, picture = tmp_path / "rows.jsonl", tmp_path / "fidelity.png"
    names = "confidence,tis-literal,tis-half,lookahead"
    arguments = ("fidelity", "-m", sudoku, "-s", names, *FIDELITY, "--out", rows, "--plot", picture, "--json")
    outcome = command(*arguments)
    assert (outcome.code, outcome.err) == (0, "")
    found = outcome.json
    assert [one["score"] for one in found["scores"]] == names.split(",")
    assert {"spearman", "pooled_kendall", "share", "regret", "best", "cost"} <= found["scores"][0].keys()
    assert (found["states"], found["candidates"], found["picture"]) == (3, 3, str(picture))
    assert picture.read_bytes().startswith(b"\x89PNG")
    states = read_states(rows)
    assert [one.as_dict() for one in summarise(states)] == found["scores"]
    theory = examine(states)
    assert theory is not None and theory.as_dict() == found["theory"]
    assert command(*arguments).json == found


def test_fidelity_table_for_people(command: Command, sudoku: Path) -> None:
    outcome = command("fidelity", "--model", sudoku, "--scores", "confidence,tis-half", *FIDELITY)
    *header, first, second, blank, theorem, _, _ = outcome.out.splitlines()[:8]
    assert "spearman" in header[0] and "regret" in header[0] and "forwards" in header[1]
    assert first.startswith("confidence") and second.startswith("tis-half") and not blank
    assert theorem.startswith("The theorem") and all(len(line) <= 100 for line in outcome.out.splitlines())
    assert "3 states" in outcome.err
    short = command("fidelity", "--model", sudoku, "--scores", "confidence,tis-half", *FIDELITY, "--no-theory")
    assert short.out.splitlines() == [*header, first, second]


def test_fidelity_without_matplotlib_says_so_and_goes_on(
    command: Command, sudoku: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tabes.cli.fidelity"], "find_spec", lambda name: None)
    path = tmp_path / "fidelity.png"
    outcome = command("fidelity", "-m", sudoku, "-s", "confidence", *FIDELITY, "--no-theory", "--plot", path, "--json")
    assert outcome.code == 0 and "matplotlib" in outcome.err and len(outcome.err.splitlines()) == 1
    assert outcome.json["picture"] is None and outcome.json["theory"] is None and not path.exists()


def test_fidelity_help_names_every_score(command: Command) -> None:
    from tabes.bench.fidelity import SCORES

    words = command("fidelity", "--help").out.replace(",", " ").replace(".", " ").split()
    assert SCORES.keys() <= set(words)


@pytest.mark.filterwarnings("ignore::tabes.steering.NoSignalWarning")
def test_samplers_lists_every_rule_with_its_parameters(command: Command) -> None:
    found = command("samplers", "--json").json
    assert {f"{kind}s" for kind in KINDS} | {"samplers"} == found.keys()
    assert tuple(one["name"] for one in found["samplers"]) == tabes.samplers()
    for one in found["samplers"]:
        assert one["summary"] and one["cost"] and one["parts"]
        given = {each["name"]: each["default"] for each in one["parameters"] if each["default"] is not None}
        rule = tabes.sampler(one["name"], **given)
        assert rule == tabes.sampler(one["name"])
        assert rule.revises == one["revises"]
    for kind, registry in KINDS.items():
        assert tuple(one["name"] for one in found[f"{kind}s"]) == registry.names()


def test_ranges_are_told_to_machines(command: Command) -> None:
    (boe,) = (one for one in command("samplers", "--json").json["samplers"] if one["name"] == "boe")
    ranges = {one["name"]: one["range"] for one in boe["parameters"]}
    assert ranges["rho"] == {"above": 0, "most": 1, "or_none": True}
    assert ranges["expansion"] == {"least": 0, "most": 1, "choices": ["gauss"]}
    assert ranges["mix"] == {"or_none": True}
    assert "threshold" in ranges["budget"]["choices"]


def test_samplers_table_is_short_and_has_every_name(command: Command) -> None:
    text = command("samplers").out
    assert all(f"\n{name} " in text for name in tabes.samplers())
    assert all(name in text for registry in KINDS.values() for name in registry.names() if name not in WRITERS.names())
    assert "steered" in text and "probe_count" not in text


def test_samplers_tells_all_of_one(command: Command) -> None:
    text = command("samplers", "boe").out
    assert all(one.name in text for one in settings_of("boe")) and "tokens_per_step" in text
    assert all(words in text for words in ("docs/boe.md", "verified", "departs", "ranking boe", "score_i = gate_i"))
    found = command("samplers", "boe", "--json").json
    assert found["name"] == "boe" and found["departures"]


def test_samplers_tells_of_parts_too(command: Command) -> None:
    text = command("samplers", "compatible").out
    assert text.startswith("budget compatible") and "i joins the set S" in text and "0 or more" in text
    (found,) = command("samplers", "compatible", "--json").json
    assert "bound" in {one["name"] for one in found["parameters"]}


def test_samplers_refuses_what_it_does_not_know(command: Command) -> None:
    assert command("samplers", "confidense").is_refusal("unknown sampler 'confidense'", "confidence")
    assert command("samplers", "boe", "--markdown").is_refusal("--markdown")


def test_samplers_prints_the_page(command: Command) -> None:
    from tabes.cli._catalogue_page import page

    assert command("samplers", "--markdown").out == page()


def test_generate_suppresses_tokens(command: Command, texts: Path) -> None:
    arguments = ("generate", "--model", texts, "--prompt", "w1 w2", "-n", 4, "--json")
    plain = command(*arguments).json["sequences"][0][2:]
    found = command(*arguments, "--suppress", plain[0], "--suppress", "end").json["sequences"]
    expected = tabes.generate(tabes.load(texts), "w1 w2", max_new_tokens=4, suppress=[plain[0], "end"])
    assert found == expected.sequences.tolist() and plain[0] not in found[0][2:]


def test_generate_takes_any_budget_and_reviser(command: Command, texts: Path) -> None:
    arguments = ("generate", "--model", texts, "--prompt", "w1 w2", "-n", 6, "--json", "-s", "confidence", "--set")
    budget = command(*arguments, "budget=threshold", "--set", "threshold=0").json
    assert budget["steps"] == 1
    reviser = command(*arguments, "reviser=loop", "--set", "loops=2").json
    assert reviser["steps"] > 6


def test_models_lists_what_is_bundled(command: Command) -> None:
    found = command("models", "--json").json
    assert [one["name"] for one in found["bundled"]] == list(bundled.names())
    assert all(one["summary"] and 0 < one["megabytes"] < 8 for one in found["bundled"])
    assert [one["name"] for one in found["families"]] == [card.name for card in cards()]
    text = command("models")
    assert text.code == 0 and all(one["name"] in text.out for one in found["bundled"])


def test_demo_in_a_pipe(command: Command, sudoku: Path, tmp_path: Path) -> None:
    outcome = command("demo", "--model", sudoku, "--items", 2, "--clues", 76, "--out", tmp_path)
    assert (outcome.code, outcome.err) == (0, "")
    assert "step 0" in outcome.out and "step 5" in outcome.out
    assert all(name in outcome.out for name in ("left-to-right", "confidence@cache=4", "order.png"))
    assert (tmp_path / "order.png").read_bytes().startswith(b"\x89PNG")
    assert len(read_rows(tmp_path / "rows.jsonl")) == 12


def test_demo_without_matplotlib_says_so_and_goes_on(
    command: Command, sudoku: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tabes.cli.demo"], "find_spec", lambda name: None)
    outcome = command("demo", "--model", sudoku, "--items", 1, "--clues", 79, "--out", tmp_path, "--json")
    assert outcome.code == 0 and "matplotlib" in outcome.err and len(outcome.err.splitlines()) == 1
    assert outcome.json["picture"] is None and not (tmp_path / "order.png").exists()
    assert len(outcome.json["samplers"]) == 6


def test_train_calls_the_training(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tabes.training.loop import LogRow

    calls: list[dict[str, object]] = []

    def train_sudoku(out: Path, *, report: Callable[[LogRow], None], **options: object) -> Path:
        calls.append({"out": out, **options})
        report(LogRow(step=3, train=2.0, validation=1.5, validation_error=0.01, seconds=4.0))
        return out / "model"

    monkeypatch.setattr("tabes.training.sudoku.train_sudoku", train_sudoku)
    text = command("train", "sudoku", "--out", tmp_path)
    assert text.code == 0 and "1.5000" in text.out and "tabes compare" in text.out
    found = command("train", "sudoku", "--out", tmp_path, "--steps", 3, "--seed", 2, "--no-resume", "--json").json
    assert (found["steps"], found["log"][0]["validation"]) == (3, 1.5)
    assert calls == [
        {"out": tmp_path, "seed": 0, "steps": None, "resume": True},
        {"out": tmp_path, "seed": 2, "steps": 3, "resume": False},
    ]
