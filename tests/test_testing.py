"""The conformance kit: what is right passes, and every way to be wrong is caught in one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tabes import testing
from tabes.batched import Batched
from tabes.budgets import Even
from tabes.canvas import Canvas, Move
from tabes.errors import CombinationError, UsageError
from tabes.guidance import Guidance
from tabes.parts import BUDGETS, RANKINGS, REVISERS, Budget, Proposal, Ranked, Ranking, Reviser, Revision
from tabes.prediction import Prediction
from tabes.presets import sampler
from tabes.rankings import Confidence
from tabes.sampling import KERNELS
from tabes.testing.scenes import SCENES
from tabes.view import View
from tests.toys import Coins, Rising, TakeBackLeastCertain

FEW = ("plain", "everything")


@pytest.mark.parametrize("name", RANKINGS.names())
def test_our_rankings_conform(name: str) -> None:
    testing.check_ranking(RANKINGS.build(name), scenes=FEW)


@pytest.mark.parametrize("name", BUDGETS.names())
def test_our_budgets_conform(name: str) -> None:
    testing.check_budget(BUDGETS.build(name), scenes=FEW)


@pytest.mark.parametrize("name", REVISERS.names())
def test_our_revisers_conform(name: str) -> None:
    few = {"loops": 2} if "loops" in REVISERS.parameters(name) else {}
    testing.check_reviser(REVISERS.build(name, **few), scenes=FEW)


@pytest.mark.parametrize("name", KERNELS.names())
def test_our_kernels_conform(name: str) -> None:
    few = {"num_steps": 8} if "num_steps" in KERNELS.parameters(name) else {}
    testing.check_kernel(KERNELS.build(name, **few), scenes=FEW)


def test_toys_conform_in_every_scene() -> None:
    testing.check_ranking(Rising())
    testing.check_budget(Even(7))
    testing.check_reviser(TakeBackLeastCertain())
    testing.check_kernel(Coins())
    testing.check_kernel(sampler("margin", num_steps=9))


def caught(check: Callable[..., None], part: Any, words: str, **options: Any) -> str:
    """One sentence: who, what, how to see it alone."""
    with pytest.raises(AssertionError) as failure:
        check(part, **options)
    said = str(failure.value)
    assert words in said and said.startswith(repr(part)), said
    assert f"[see it alone: tabes.testing.{check.__name__}(..., scenes=['" in said and "\n" not in said
    return said


class Plain(Ranking):
    """What the broken rankings below are without their flaw."""

    statistics: ClassVar[frozenset[str]] = frozenset({"confidence"})

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return prediction.confidence_BL


@dataclass(frozen=True)
class MixesRows(Plain):
    """A loop over the batch in which every row sees the ones before it."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        best = torch.zeros(prediction.confidence_BL.shape[1])
        rows = []
        for row in prediction.confidence_BL:
            rows.append(row - 2 * best)
            best = torch.maximum(best, row)
        return torch.stack(rows)


@dataclass(frozen=True)
class SeesPadding(Plain):
    """Even columns first: which ones are even depends on the padding."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        columns_L = torch.arange(prediction.confidence_BL.shape[1])
        return prediction.confidence_BL + 1.0 * (columns_L % 2 == 0)


@dataclass(frozen=True)
class WrapsAround(Plain):
    """The left neighbour of the first row is the last: or padding, if there is any."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return prediction.confidence_BL + torch.roll(~view.canvas.masked_BL, 1, dims=1).float()


@dataclass
class HiddenState(Plain):
    """Counts its calls on itself, for ever."""

    calls: list[int] = field(default_factory=list)

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        self.calls.append(1)
        return prediction.confidence_BL * (-1) ** (len(self.calls) // 4)

    def __repr__(self) -> str:
        return "HiddenState()"


@dataclass
class StateOnItself(Plain):
    """Starts anew at `init`, so one decoding at a time goes well."""

    calls: list[int] = field(default_factory=list)

    def init(self, canvas: Canvas) -> None:
        self.calls.clear()

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        self.calls.append(1)
        return prediction.confidence_BL * (-1) ** len(self.calls)

    def __repr__(self) -> str:
        return "StateOnItself()"


@dataclass(frozen=True)
class Nondeterministic(Ranking):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return torch.rand(prediction.rows_BL.shape)


@dataclass(frozen=True)
class OneStream(Ranking):
    """Repeatable, but the numbers belong to the batch and not to its rows."""

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        generator = torch.Generator().manual_seed(view.step)
        return torch.rand(prediction.rows_BL.shape, generator=generator)


@dataclass(frozen=True)
class WrongShape(Plain):
    keep: str = "L"

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        confidence_BL = prediction.confidence_BL
        shapes = {
            "L": confidence_BL.mean(0),
            "B1": confidence_BL.mean(1, keepdim=True),
            "N": confidence_BL[prediction.rows_BL],
        }
        return shapes[self.keep]


@dataclass(frozen=True)
class NotANumber(Plain):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return (prediction.confidence_BL - 0.9).log()


@dataclass(frozen=True)
class Undeclared(Ranking):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        return -prediction.entropy_BL


@dataclass(frozen=True)
class WritesInPlace(Plain):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        view.canvas.tokens_BL[:, 3] = 1
        return prediction.confidence_BL


@dataclass(frozen=True)
class BehindTheLedger(Plain):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        canvas, network = view.canvas, view.denoiser.base.network
        network.forward(canvas.tokens_BL, positions_BL=canvas.positions_BL, padding_BL=None)
        return prediction.confidence_BL


@dataclass(frozen=True)
class BehindTheHead(Plain):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        network = view.denoiser.base.network
        network.head(torch.zeros(1, network.hidden_size, dtype=network.dtype))
        return prediction.confidence_BL


@dataclass(frozen=True)
class Raises(Plain):
    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        raise IndexError("no such row")


@pytest.mark.parametrize(
    ("ranking", "words"),
    [
        (MixesRows(), "decodes batch row 1 otherwise in a batch than alone"),
        (SeesPadding(), "decodes batch row 0 otherwise in a batch than alone"),
        (WrapsAround(), "decodes batch row 0 otherwise in a batch than alone"),
        (HiddenState(), "remembers something between decodings outside its state"),
        (StateOnItself(), "gives different results when two decodings take turns"),
        (Nondeterministic(), "gives different results for equal seeds; draw with view.uniform(purpose)"),
        (OneStream(), "otherwise in a batch than alone"),
        (WrongShape("L"), "gives scores of shape (14,); they must be (batch, canvas rows), here (3, 14)"),
        (WrongShape("B1"), "gives scores of shape (3, 1)"),
        (WrongShape("N"), "raises RuntimeError"),
        (NotANumber(), "gives scores that are NaN"),
        (WritesInPlace(), "changes the canvas or its own state in place"),
        (BehindTheLedger(), "calls the network behind the ledger's back"),
        (BehindTheHead(), "calls the network behind the ledger's back"),
        (Raises(), "raises IndexError: no such row"),
    ],
    ids=lambda value: type(value).__name__ + getattr(value, "keep", "") if isinstance(value, Ranking) else "",
)
def test_broken_rankings_are_caught(ranking: Ranking, words: str) -> None:
    caught(testing.check_ranking, ranking, words)


def test_the_sentence_shows_both_and_the_call_repeats_it() -> None:
    said = caught(testing.check_ranking, MixesRows(), "in step 0 it writes")
    assert "alone it writes" in said and "scenes=['plain'], seed=0" in said
    caught(testing.check_ranking, MixesRows(), "otherwise in a batch", scenes=["drawn"], seed=5)


def test_an_undeclared_statistic_is_a_warning() -> None:
    with pytest.warns(testing.UndeclaredStatisticWarning, match="entropy is read but not declared"):
        testing.check_ranking(Undeclared(), scenes=["plain"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        testing.check_ranking(Confidence(), scenes=["plain"])


@dataclass(frozen=True)
class Last(Batched):
    seen: Any


@dataclass(frozen=True)
class Remembers(Plain):
    """A ranking with a state of some kind."""

    state: str

    def init(self, canvas: Canvas) -> Any:
        zero_BL = torch.zeros(canvas.tokens_BL.shape)
        states = {
            "list": [zero_BL],
            "flat": Last(zero_BL.flatten()),
            "nested": Last((zero_BL[0],)),
            "changed": Last(zero_BL),
        }
        return states[self.state]

    def rank(self, view: View, prediction: Prediction, proposal: Proposal, state: Any) -> tuple[Tensor, Any]:
        if self.state == "changed":
            state.seen.add_(1)
        return prediction.confidence_BL, state


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("list", "has a list with tensors in its state"),
        ("flat", "has a tensor of shape (42,) in its state; its first axis must be the batch, here 3"),
        ("nested", "has a tensor of shape (14,) in its state"),
        ("changed", "changes the canvas or its own state in place"),
    ],
)
def test_broken_states_are_caught(state: str, words: str) -> None:
    caught(testing.check_ranking, Remembers(state), words)


@dataclass(frozen=True)
class Refuses(Plain):
    """Says which scenes it cannot do."""

    everything: bool = False

    def scores(self, view: View, prediction: Prediction, proposal: Proposal) -> Tensor:
        inner = getattr(view.denoiser, "denoiser", None)
        if self.everything or isinstance(inner, Guidance):
            raise CombinationError("the ranking 'refuses' does not work with guidance, which doubles the batch")
        return prediction.confidence_BL


def test_a_rule_may_refuse_a_scene_but_not_all() -> None:
    testing.check_ranking(Refuses())
    with pytest.raises(AssertionError, match="refuses every scene, the last with: the ranking 'refuses'"):
        testing.check_ranking(Refuses(everything=True))


@dataclass(frozen=True)
class Stalls(Budget):
    """Writes until three masks are left, then nothing more."""

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        return (ranked.rank_BL == 0) & (view.canvas.masked_BL.sum(1) > 3)[:, None], state


@dataclass(frozen=True)
class TooSlow(Stalls):
    num_steps: int = 4

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        return ranked.rank_BL == 0, state


@dataclass(frozen=True)
class AsManyAsTheBatch(Stalls):
    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        return ranked.rank_BL < len(taken_B), state


def test_broken_budgets_are_caught() -> None:
    caught(testing.check_budget, Stalls(), "is not done after 1000 steps")
    caught(testing.check_budget, TooSlow(), "takes 11 steps where 4 were asked for")
    caught(testing.check_budget, AsManyAsTheBatch(), "otherwise in a batch than alone")


@dataclass(frozen=True)
class Masks(Reviser):
    """Masks what it must not."""

    what: str

    def revise(self, view: View, ranked: Ranked, write_BL: Tensor, state: Any) -> tuple[Revision, Any]:
        canvas = view.canvas
        wrong = {"given": ~canvas.writable_BL, "masked": canvas.masked_BL}
        return Revision(wrong[self.what]), state


def test_broken_revisers_are_caught() -> None:
    caught(testing.check_reviser, Masks("given"), "raises UsageError: the sampler masked a row that is given")
    caught(testing.check_reviser, Masks("masked"), "raises UsageError: the sampler")


@dataclass(frozen=True)
class Rewrites:
    """A kernel that fills everything at once, then once more with other tokens, and does not say it revises."""

    revises: ClassVar[bool] = False
    honest: bool = False

    def init(self, canvas: Canvas) -> None:
        return None

    def step(self, view: View, state: None) -> tuple[Move, None]:
        prediction = view.predict(view.canvas.writable_BL, statistics=("top_token",))
        tokens_BL = (prediction.top_token_BL + view.step) % 30
        write_BL = view.canvas.masked_BL if self.honest else view.canvas.writable_BL
        return Move(write_BL & (view.canvas.block_BL <= view.canvas.block_B[:, None]), tokens_BL), None


def test_broken_kernels_are_caught() -> None:
    testing.check_kernel(Rewrites(honest=True))
    caught(testing.check_kernel, Rewrites(), "changes a written token in step 1, though it does not say it revises")


def test_bad_use_gets_one_sentence() -> None:
    with pytest.raises(UsageError, match="check_ranking was given 'mine'; give a ranking, made with its parameters"):
        testing.check_ranking("mine")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="check_budget was given <class"):
        testing.check_budget(Even)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no init; give a kernel"):
        testing.check_kernel(object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="there is no scene 'nowhere'; the scenes are plain"):
        testing.check_ranking(Confidence(), scenes="nowhere")
    for nothing in ({"scenes": []}, {"scenes": ["blocks"]}):
        with pytest.raises(UsageError, match="check_budget has no scene to run Even"):
            testing.check_budget(Even(2), **nothing)


def test_the_scenes_cover_what_they_promise() -> None:
    canvas = SCENES["plain"].canvas
    assert canvas.padding_BL.any() and len({int(n) for n in canvas.masked_BL.sum(1)}) == 3
    hole_L = canvas.masked_BL[1].nonzero().squeeze(1)
    assert bool((hole_L.diff() > 1).any()), "a hole in the prompt"
    assert SCENES["blocks"].blocks > 2
    kinds = [(s.guidance, s.cache, s.temperature, s.revised, s.block_length) for s in SCENES.values()]
    assert all(any(values) for values in zip(*kinds, strict=True))


def test_the_model_is_the_same_every_time_and_leaves_the_global_stream_alone() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    testing.tiny_model.cache_clear()
    first = testing.tiny_model()
    assert torch.random.get_rng_state().equal(before)
    testing.tiny_model.cache_clear()
    assert first.network.embedding_weight().equal(testing.tiny_model().network.embedding_weight())
