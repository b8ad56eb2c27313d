"""Looking over a rule's shoulder: what it is asked and answers at every step, and what the network really computed.

Shapes: B batch rows, L canvas rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas, Move
from tabes.denoiser import AnyDenoiser, Denoiser
from tabes.prediction import Prediction, Reducer
from tabes.sampling import Sampler
from tabes.view import View

__all__ = ["Asked", "Calls", "UndeclaredStatisticWarning", "Watched", "counted"]


class UndeclaredStatisticWarning(UserWarning):
    """A part reads a statistic it did not declare: right, but it costs another pass over the vocabulary."""


@dataclass
class Calls:
    """What the layers and the head of the network really computed."""

    tokens: int = 0
    head_rows: int = 0


@contextmanager
def counted(model: Denoiser) -> Iterator[Calls]:
    """Count behind the ledger's back, whoever calls the tiny model and however."""
    bert, calls = model.network.backbone.model, Calls()  # type: ignore[attr-defined]

    def layers(module: Any, inputs: tuple[Tensor, ...]) -> None:
        calls.tokens += inputs[0].shape[0] * inputs[0].shape[1]

    def head(module: Any, inputs: tuple[Tensor, ...]) -> None:
        calls.head_rows += inputs[0].shape[0] * inputs[0].shape[1]

    hooks = [bert.bert.encoder.register_forward_pre_hook(layers), bert.cls.register_forward_pre_hook(head)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class Given:
    """A prediction, what was declared for it, and how often its logits were gone over."""

    prediction: Prediction
    declared: frozenset[str]
    passes: int = 0

    def __post_init__(self) -> None:
        reduce = self.prediction.reduce

        def counting(reducer: Reducer) -> dict[str, Tensor]:
            self.passes += 1
            return reduce(reducer)

        self.prediction.reduce = counting  # type: ignore[method-assign]


@dataclass
class Asked:
    """A denoiser wrapper that keeps the predictions it gave, and what was declared for each."""

    denoiser: AnyDenoiser
    given: list[Given] = field(default_factory=list)

    @property
    def base(self) -> Denoiser:
        return self.denoiser.base

    @property
    def takes_offers(self) -> bool:
        return self.denoiser.takes_offers

    def begin(self) -> Asked:
        return Asked(self.denoiser.begin(), self.given)

    def select(self, keep_B: Tensor) -> Asked:
        return Asked(self.denoiser.select(keep_B), self.given)

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        self.denoiser.offer(canvas, prediction)

    def predict(self, canvas: Canvas, rows_BL: Tensor, *, statistics: Iterable[str] = (), **more: Any) -> Prediction:
        """As the denoiser inside does."""
        declared = frozenset(statistics)
        return self._kept(self.denoiser.predict(canvas, rows_BL, statistics=declared, **more), declared)

    def replay(self, memory: Any, rows_BL: Tensor, *, statistics: Iterable[str] = (), **more: Any) -> Prediction:
        """As the denoiser inside does."""
        declared = frozenset(statistics)
        return self._kept(self.denoiser.replay(memory, rows_BL, statistics=declared, **more), declared)

    def undeclared(self, known: frozenset[str]) -> frozenset[str]:
        """Statistics read since this was last asked that nobody had declared, and that cost a pass of their own."""
        again = [one for one in self.given if one.passes > 1]
        read = frozenset[str]().union(*(one.prediction.wanted - one.declared for one in again))
        self.given.clear()
        return read - known

    def _kept(self, prediction: Prediction, declared: frozenset[str]) -> Prediction:
        self.given.append(Given(prediction, declared))
        return prediction


@dataclass
class Watched:
    """A sampler that does what another one does, and is checked at every step."""

    sampler: Sampler
    asked: Asked

    @property
    def revises(self) -> bool:
        return self.sampler.revises

    def init(self, canvas: Canvas) -> Any:
        """The state before the first step."""
        state = self.sampler.init(canvas)
        _check_state(state, canvas.tokens_BL.shape[0])
        return state

    def step(self, view: View, state: Any) -> tuple[Move, Any]:
        """One step, and what must be true after it."""
        canvas = view.canvas
        before = [tensor.clone() for tensor in (*_tensors(vars(canvas)), *_tensors(state))]
        move, after = self.sampler.step(view, state)
        same = [
            tensor.equal(old) for tensor, old in zip((*_tensors(vars(canvas)), *_tensors(state)), before, strict=True)
        ]
        assert all(same), "changes the canvas or its own state in place; make new tensors"
        _check_move(move, canvas)
        _check_state(after, canvas.tokens_BL.shape[0])
        self._warn()
        return move, after

    def _warn(self) -> None:
        known: frozenset[str] = getattr(self.sampler, "statistics", frozenset())
        for name in sorted(self.asked.undeclared(known)):
            text = f"{name} is read but not declared; name it in `statistics`, or another pass is made over the logits"
            warnings.warn(text, UndeclaredStatisticWarning, stacklevel=2)


def _check_move(move: Move, canvas: Canvas) -> None:
    shape = tuple(canvas.tokens_BL.shape)
    for name in ("write_BL", "tokens_BL", "remask_BL", "scores_BL"):
        value = getattr(move, name)
        found = None if value is None else tuple(value.shape)
        label = "scores" if name == "scores_BL" else name
        assert found in (None, shape), (
            f"gives {label} of shape {found}; they must be (batch, canvas rows), here {shape}"
        )
    if move.scores_BL is not None:
        bad_BL = move.scores_BL.isnan() & canvas.open_BL
        assert not bool(bad_BL.any()), "gives scores that are NaN for rows that may be written"


def _check_state(state: Any, batch: int) -> None:
    for kind in _unselectable(state):
        raise AssertionError(
            f"has a {kind} with tensors in its state; use a tabes.batched.Batched, whose rows can leave the batch"
        )
    for tensor in _tensors(state):
        assert tensor.shape[:1] == (batch,), (
            f"has a tensor of shape {tuple(tensor.shape)} in its state; its first axis must be the batch, here {batch}"
        )


def _unselectable(value: Any) -> Iterator[str]:
    """Kinds of containers that are kept whole when batch rows are done, though they hold something per row."""
    if isinstance(value, Tensor) or next(_tensors(value), None) is None:
        return
    if isinstance(value, tuple):
        for item in value:
            yield from _unselectable(item)
    elif isinstance(value, Batched):
        for item in vars(value).values():
            yield from _unselectable(item)
    elif not hasattr(value, "select"):
        yield type(value).__name__


def _tensors(value: Any) -> Iterator[Tensor]:
    """Those that a state or a canvas holds, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, Batched):
        yield from _tensors(vars(value))
