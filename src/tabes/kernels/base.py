"""What kernels share: whole transitions, in which every row has coins of its own.

The time t of a kernel falls from 1 to 1e-5 on its own grid, in every block anew. From t to the next time s a masked row
of the block is revealed with one chance and a written row masked again with another (`Chances`); a revealed row's token
is drawn from the network's prediction. The coin comes first and the token after it: the joint distribution is that of
one draw over tokens and mask, but the vocabulary is read only at the rows revealed, and the network is not called at
all when there are none in the batch (this is what MDLM's cache of predictions saves, and more).
What is masked when the steps are over is filled with the most probable tokens, by one more forward (`fill`).

Shapes: B batch rows, L canvas rows, N predicted rows, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.canvas import Canvas, Move
from tabes.kernels.clock import KernelClock
from tabes.prediction import Prediction
from tabes.settings import check, setting
from tabes.view import View
from tabes.writers.distribution import distribution
from tabes.writers.inverse import draw

__all__ = ["Chances", "Drawn", "Kernel", "KernelState", "Now", "transition"]

_END = 1e-5


class Chances(NamedTuple):
    """Probabilities, (B, L) or (B, 1): that a masked row is revealed, that a written row is masked again."""

    reveal_BL: Tensor
    remask_BL: Tensor


class Drawn(NamedTuple):
    """Tokens for the rows in `rows_BL`, and, if the kernel asks for it, the probability they were drawn with."""

    rows_BL: Tensor
    tokens_BL: Tensor
    probability_BL: Tensor | None = None


@dataclass(frozen=True)
class Now:
    """One step: the rows of the block that are masked and written, the times (float64) before and after it.

    `prediction` is that of the masked rows, for kernels whose coins need it.
    """

    masked_BL: Tensor
    written_BL: Tensor
    time_B: Tensor
    next_time_B: Tensor
    prediction: Prediction | None = None


@dataclass(frozen=True)
class KernelState(Batched):
    """The clock, and what the kernel itself remembers."""

    clock: KernelClock
    memory: Any = None


@dataclass(frozen=True)
class Kernel(ABC):
    """A transition from one time to the next. A kernel defines `chances`; the rest is here."""

    num_steps: int = setting(128, "steps in all, shared evenly between blocks", least=1, whole=True)
    temperature: float = setting(1.0, "how flat the distribution is made; 0: always the best", least=0, below=inf)
    top_p: float | None = setting(None, "draw from the most probable tokens that hold this share", above=0, most=1)
    top_k: int | None = setting(None, "draw from this many most probable tokens", least=1, whole=True)
    nucleus: str = setting("keep", "what top_p does with the token that crosses it", choices=("keep", "drop"))
    fill: str = setting(
        "argmax",
        "what is masked after the last step gets its best token or a draw; none: the last step reveals all",
        choices=("argmax", "draw", "none"),
    )

    coins_read: ClassVar[bool] = False
    """Whether the chances need the prediction: then it is made at all masked rows and at every step."""

    def __post_init__(self) -> None:
        check(self)

    @abstractmethod
    def chances(self, now: Now, memory: Any) -> Chances:
        """The chances of this step. Values outside [0, 1] count as the nearer end."""

    @property
    def revises(self) -> bool:
        return False

    @property
    def always_calls(self) -> bool:
        """Whether the network is called though nothing is revealed."""
        return False

    @property
    def wants_probability(self) -> bool:
        """Whether `remembered` needs the probability that every token was drawn with."""
        return False

    def grid(self, steps: int) -> Tensor:
        """The times of so many steps, the first 1, in float64."""
        return torch.linspace(1.0, _END, steps + 1, dtype=torch.float64)

    def told(self, time_B: Tensor) -> Tensor:
        """What a timed network is told: the time, as long as the share that is masked follows it."""
        return time_B

    def begin(self, canvas: Canvas) -> Any:
        """What it remembers before the first step."""
        return None

    def remembered(self, memory: Any, drawn: Drawn) -> Any:
        """What it remembers after a step that wrote `drawn`."""
        return memory

    def init(self, canvas: Canvas) -> KernelState:
        return KernelState(KernelClock.create(canvas, self.num_steps, self.grid), self.begin(canvas))

    def step(self, view: View, state: KernelState) -> tuple[Move, KernelState]:
        clock = state.clock
        now = self._now(view, clock)
        reveal_BL, remask_BL = self._coins(view, now, state)
        fill_BL = now.masked_BL & clock.over_B[:, None]
        drawn = self._drawn(view, now, reveal_BL | fill_BL, fill_BL)
        full_B = ~((now.masked_BL & ~drawn.rows_BL) | remask_BL).any(1)
        # Where nothing is taken back a full block stays as it is: its remaining steps would do nothing.
        leave_B = full_B & (clock.last_B | clock.over_B) if self.revises else full_B
        clock = clock.tick(leave_B)
        move = Move(drawn.rows_BL, drawn.tokens_BL, remask_BL, done_B=clock.done())
        return move, KernelState(clock, self.remembered(state.memory, drawn))

    def _now(self, view: View, clock: KernelClock) -> Now:
        area_BL = clock.area(view.canvas)
        masked_BL = view.canvas.masked_BL & area_BL
        prediction = None
        if self.coins_read:
            prediction = view.predict(masked_BL, time_B=self.told(clock.time_B))
        return Now(masked_BL, area_BL & ~masked_BL, clock.time_B, clock.next_time_B, prediction)

    def _coins(self, view: View, now: Now, state: KernelState) -> tuple[Tensor, Tensor]:
        """Which rows are revealed and which masked again. Behind the last step there are no coins any more."""
        reveal_BL, remask_BL = self.chances(now, state.memory)
        if self.fill == "none":
            last_B1 = state.clock.last_B[:, None]
            reveal_BL, remask_BL = reveal_BL.masked_fill(last_B1, 1.0), remask_BL.masked_fill(last_B1, 0.0)
        coin_BL, over_B1 = view.uniform("kernel.coin"), state.clock.over_B[:, None]
        return (
            now.masked_BL & ~over_B1 & (coin_BL < reveal_BL),
            now.written_BL & ~over_B1 & (coin_BL < remask_BL),
        )

    def _drawn(self, view: View, now: Now, rows_BL: Tensor, fill_BL: Tensor) -> Drawn:
        prediction = self._read(view, now, rows_BL)
        if prediction is None or len(prediction) == 0:
            return Drawn(rows_BL, view.canvas.tokens_BL, torch.zeros(rows_BL.shape, device=rows_BL.device))
        # A number that is not finite shows in the largest logit; a draw from NaNs looks like any other.
        prediction = prediction.wanting({"top_logit"})
        if self.temperature == 0:
            statistics = {"top_token", "confidence"} if self.wants_probability else {"top_token"}
            tokens_BL = prediction.wanting(statistics).top_token_BL
            return Drawn(rows_BL, tokens_BL, prediction.confidence_BL if self.wants_probability else None)
        fills = self.fill == "argmax" and bool(fill_BL.any())
        if fills:
            prediction = prediction.wanting({"top_token"})
        found = self._draws(prediction, view.uniform("kernel.token")[rows_BL])
        tokens_BL = torch.where(fill_BL, prediction.top_token_BL, found["token"]) if fills else found["token"]
        return Drawn(rows_BL, tokens_BL, found.get("probability"))

    def _read(self, view: View, now: Now, rows_BL: Tensor) -> Prediction | None:
        if now.prediction is not None:
            return now.prediction.at(rows_BL)
        if self.always_calls or bool(rows_BL.any()):
            return view.predict(rows_BL, time_B=self.told(now.time_B))
        return None

    def _draws(self, prediction: Prediction, uniform_N: Tensor) -> dict[str, Tensor]:
        def reduce(logits_nV: Tensor, rows: slice) -> dict[str, Tensor]:
            weights_nV = self.weights(logits_nV)
            token_n = draw(weights_nV, uniform_N[rows])
            if not self.wants_probability:
                return {"token": token_n}
            weight_n = weights_nV.gather(1, token_n[:, None]).squeeze(1)
            return {"token": token_n, "probability": weight_n / weights_nV.sum(1)}

        return prediction.reduce(reduce)

    def weights(self, logits_NV: Tensor) -> Tensor:
        """What a revealed row's token is drawn from, for a temperature above 0; it need not sum to 1."""
        return distribution(logits_NV, self.temperature, self.top_p, self.top_k, crossing=self.nucleus == "keep")


def transition(chances: Chances, masked_BL: Tensor, tokens_BL: Tensor, p_BLV: Tensor, mask_id: int) -> Tensor:
    """The distribution (B, L, V) of every row's next token; the mask's column: to stay masked, to be masked again.

    `p_BLV` is what a revealed row's token is drawn from.
    """
    reveal_BL1, remask_BL1 = (value.clamp(0, 1).expand(masked_BL.shape)[..., None] for value in chances)
    stays_BLV = torch.nn.functional.one_hot(tokens_BL, p_BLV.shape[-1]).double()
    mask_V = torch.nn.functional.one_hot(torch.tensor(mask_id, device=p_BLV.device), p_BLV.shape[-1]).double()
    from_mask_BLV = reveal_BL1 * p_BLV.double() + (1 - reveal_BL1) * mask_V
    from_token_BLV = (1 - remask_BL1) * stays_BLV + remask_BL1 * mask_V
    return torch.where(masked_BL[..., None], from_mask_BLV, from_token_BLV)
