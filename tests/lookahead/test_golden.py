"""The recorded behaviour of the Information-Gain sampler, in both of its variants, with its own candidates fed in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tabes
from tabes.budgets import AllSure
from tabes.prediction import Prediction
from tabes.rankings import InfoGain
from tabes.sampling import PartSampler
from tabes.steering.foresight import Walk
from tabes.steering.paths import Paths
from tabes.view import View
from tabes.writers import Argmax
from tests.conftest import GOLDEN
from tests.test_golden import committed, label, read

CASES = [path for name in ("info_gain", "lookum") for path in sorted((GOLDEN / name).glob("*.json"))]
CLOSE = 1e-3


@dataclass(frozen=True)
class Recorded(InfoGain):
    """Tries the recorded candidates, and notes what came of them; `follow` takes the recorded winner, whoever won."""

    follow: bool = False
    steps: tuple[dict[str, Any], ...] = ()
    seen: dict[int, dict[str, list[float]]] = field(default_factory=dict)

    def _drawn(self, view: View, prediction: Prediction, confidence_BL: Tensor, count_B: Tensor) -> Paths:
        candidates = self.steps[view.step].get("candidates")
        if candidates is None:
            return super()._drawn(view, prediction, confidence_BL, count_B)
        write_1KL = torch.zeros(1, len(candidates), confidence_BL.shape[1], dtype=torch.bool)
        for index, rows in enumerate(candidates):
            write_1KL[0, index, rows] = True
        mine = super()._drawn(view, prediction, confidence_BL, count_B)
        assert write_1KL[0, 0].equal(mine.write_BKL[0, 0]), "the first candidate is the greedy one"
        self.seen[view.step] = {}
        return Paths.of(write_1KL)

    def _worth(self, prediction: Prediction, paths: Paths, walk: Walk) -> Tensor:
        worth_BK = super()._worth(prediction, paths, walk)
        costs = prediction.entropy_BL[0] @ paths.write_BKL[0].float().T
        self.seen[max(self.seen)] = {
            "objective_J": worth_BK[0].tolist(),
            "next_entropy_H": walk.mean_N.tolist(),
            "cost_C": (self.charge * costs).tolist(),
            "fill_tokens": walk.canvas.tokens_BL[paths.write_BKL[0]].tolist(),
        }
        return worth_BK

    def _chosen(self, view: View, worth_BK: Tensor) -> Tensor:
        won_B = super()._chosen(view, worth_BK)
        return torch.full_like(won_B, self.steps[view.step]["winner"]) if self.follow else won_B


def of(case: dict[str, Any], **choice: Any) -> Recorded:
    charge = {"info_gain": 1.0, "lookum": 0.0}[case["params"]["variant"]]
    return Recorded(charge=charge, candidates=1, steps=tuple(case["steps"]), **choice)


def run(model: tabes.Denoiser, case: dict[str, Any], ranking: InfoGain) -> tabes.Output:
    params = case["params"]
    rule = PartSampler(ranking, AllSure(num_steps=params["steps"], sure=params["threshold"]), Argmax())
    ids, length, block = torch.tensor([case["prompt_ids"]]), case["gen_length"], params["block_size"]
    return tabes.generate(model, input_ids=ids, max_new_tokens=length, sampler=rule, block_length=block)


def of_mode(case: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    return [step for step in case["steps"] if step["mode"] == mode]


def flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


@pytest.mark.parametrize("path", CASES, ids=label)
def test_trace(path: Path, golden_model: tabes.Denoiser) -> None:
    case = read(path)
    ranking = of(case)
    output = run(golden_model, case, ranking)
    assert [committed(step) for step in output.steps] == [step["committed"] for step in case["steps"]]
    assert output.sequences[0].tolist() == case["final_ids"]
    compared = 0
    for step in of_mode(case, "lookahead"):
        mine = ranking.seen[step["step"]]
        assert bool(mine) == (len(step["candidates"]) > 1), "one candidate alone is not tried"
        for name, values in mine.items():
            assert values == pytest.approx(list(flat(step[name])), abs=CLOSE), (step["step"], name)
            compared += 1
    assert compared >= 4 * 7
    assert all(entry for step, entry in ranking.seen.items() if len(case["steps"][step]["candidates"]) > 1)


@pytest.mark.parametrize("path", CASES, ids=label)
def test_forwards(path: Path, golden_model: tabes.Denoiser) -> None:
    """As many as the reference makes, less those behind a block's last row, whose result it does not use."""
    case = read(path)
    cost = run(golden_model, case, of(case)).cost
    unused = len(of_mode(case, "greedy_single"))
    assert cost.forward_calls == case["counts"]["forward_calls"] - unused
    assert cost.forward_tokens == (case["counts"]["forward_rows"] - unused) * case["canvas_length"]


def test_the_cases_have_every_mode() -> None:
    modes = {step["mode"] for path in CASES for step in read(path)["steps"]}
    assert modes == {"lookahead", "greedy_single", "bypass_fill_block"}
    assert any(step["winner"] != 0 for path in CASES for step in of_mode(read(path), "lookahead"))


def test_replay_orders_the_candidates_alike(golden_model: tabes.Denoiser) -> None:
    """Given rows keep what they were remembered with, so numbers differ; the order is far from chance (which is 0).

    A random network mixes given and masked rows as it likes; on a trained one see test_full_and_replay.py.
    """
    agreement = []
    for case in map(read, CASES):
        ranking = of(case, evaluate="replay", follow=True)
        output = run(golden_model, case, ranking)
        assert [committed(step) for step in output.steps] == [step["committed"] for step in case["steps"]]
        pairs = [
            (ranking.seen[step["step"]], step) for step in of_mode(case, "lookahead") if len(step["candidates"]) > 2
        ]
        agreement += [spearman(mine["objective_J"], step["objective_J"]) for mine, step in pairs]
    assert len(agreement) > 40
    assert sum(agreement) / len(agreement) > 0.5


def spearman(one: list[float], other: list[float]) -> float:
    ranks = torch.stack([torch.tensor(values).argsort().argsort().double() for values in (one, other)])
    return float(torch.corrcoef(ranks)[0, 1])
