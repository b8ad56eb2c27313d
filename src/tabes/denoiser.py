"""Denoiser: canvas -> Prediction. The only place that calls the network, so the only place that counts.

Shapes: B batch rows, L canvas rows, R replayed rows, N predicted rows, d hidden, E input embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, Self

import torch
from torch import Tensor

from tabes.attention.memory import Memory
from tabes.canvas import Canvas
from tabes.cost import Ledger
from tabes.errors import CombinationError, UsageError
from tabes.prediction import Prediction
from tabes.rows import Rows, read_from, rows_before

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from tabes.models.cards import Card
    from tabes.models.network import Network

__all__ = ["AnyDenoiser", "AnyMemory", "Denoiser", "base_of"]


def base_of(model: AnyDenoiser) -> Denoiser:
    """The denoiser inside all wrappers, or one sentence for whoever passed something else."""
    base = getattr(model, "base", None)
    if not isinstance(base, Denoiser):
        raise UsageError(f"model is a {type(model).__name__}; make a denoiser of it with tabes.load(...)")
    return base


class AnyMemory(Protocol):
    """What a forward left behind, as rules see it: an immutable value."""

    @property
    def tokens_BL(self) -> Tensor | None: ...

    @property
    def time_B(self) -> Tensor | None: ...

    def with_time(self, time_B: Tensor) -> Self: ...

    def select(self, batch: Tensor) -> Self: ...

    def expand(self, k: int) -> Self: ...


class AnyDenoiser(Protocol):
    """What the loop and every rule may call: the denoiser itself, or a wrapper (guidance, row cache) around one."""

    @property
    def base(self) -> Denoiser:
        """The denoiser inside all wrappers: ids, tokenizer, ledger."""

    def begin(self) -> AnyDenoiser:
        """The denoiser for one decoding: wrappers that keep something from step to step start afresh."""

    def select(self, keep_B: Tensor) -> AnyDenoiser:
        """Go on with the batch rows where the bool mask `keep_B` is set."""

    @property
    def takes_offers(self) -> bool:
        """Whether it can make use of `offer`."""

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        """A replay that was made already, in case `canvas` is what is asked for next."""

    def predict(
        self,
        canvas: Canvas,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        """One forward of the whole canvas, read at `rows_BL`; with `remember` the prediction carries its Memory.

        `time_B` matters to timed networks only; they are told the canvas's own unless it is given.
        """

    def replay(
        self,
        memory: AnyMemory,
        rows_BL: Tensor,
        *,
        tokens_BL: Tensor | None = None,
        embeddings_BLE: Tensor | None = None,
        read_BL: Tensor | None = None,
        statistics: Iterable[str] = (),
        remember: bool = False,
        beside: bool = False,
    ) -> Prediction:
        """Recompute only `rows_BL` (with new tokens or embeddings), every other key and value as remembered.

        `read_BL` narrows what is read off the replayed rows. Under `torch.enable_grad` gradients reach the embeddings.
        With `beside` the rows are shadows, masked unless told otherwise, that replace nothing: each reads every row
        but its own, and the other shadows: what would be said of these rows if their tokens were not there to be read.
        """


@dataclass(frozen=True)
class Denoiser:
    """A masked diffusion model: its network, its tokenizer, its ids, and the ledger of what it was asked to do.

    `card` is what is known of its family, None for one we do not know.
    """

    network: Network
    tokenizer: PreTrainedTokenizerBase | None = field(repr=False)
    mask_id: int
    pad_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    name: str = "model"
    ledger: Ledger = field(default_factory=Ledger, compare=False, repr=False)
    card: Card | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.mask_id < self.network.vocab_size:
            size = self.network.vocab_size
            raise UsageError(f"mask id {self.mask_id} is outside the model's vocabulary of {size}; pass mask_token_id=")

    @property
    def base(self) -> Denoiser:
        return self

    @property
    def device(self) -> torch.device:
        return self.network.device

    def begin(self) -> Denoiser:
        return self

    def select(self, keep_B: Tensor) -> Denoiser:
        return self

    @property
    def takes_offers(self) -> bool:
        return False

    def offer(self, canvas: Canvas, prediction: Prediction) -> None:
        """Every prediction here is a forward of its own."""

    def check(self, canvas: Canvas) -> None:
        """Raise for a canvas this model cannot take: too long, or ids outside its vocabulary."""
        limit, vocab_size = self.network.max_length, self.network.vocab_size
        longest = int(canvas.positions_BL.max()) + 1
        if limit is not None and longest > limit:
            raise UsageError(f"the canvas is {longest} tokens long but {self.name} takes at most {limit}")
        largest, smallest = int(canvas.tokens_BL.max()), int(canvas.tokens_BL.min())
        if largest >= vocab_size or smallest < 0:
            worst = largest if largest >= vocab_size else smallest
            raise UsageError(f"token id {worst} is outside the vocabulary of {self.name} (0 to {vocab_size - 1})")
        if canvas.mask_id != self.mask_id:
            raise UsageError(f"the canvas has mask id {canvas.mask_id} but {self.name} has {self.mask_id}")

    def check_beside(self) -> None:
        """Raise for a model of which nothing can be replayed beside the canvas."""
        if self.network.replays and not self.network.shifted:
            return
        why = (
            "whose rows predict the next one, not the one they hide"
            if self.network.shifted
            else "which cannot replay rows alone"
        )
        raise CombinationError(f"replays beside the canvas (the reviser 'verify') do not work with {self.name}, {why}")

    def full_forward_flops(self, canvas: Canvas) -> float:
        """The unit of `forward_equivalents`: one plain forward of this canvas, logits at every row."""
        B, L = canvas.tokens_BL.shape
        work = self.network.work
        return B * (work.layers(L, L) + L * work.head)

    def predict(
        self,
        canvas: Canvas,
        rows_BL: Tensor,
        *,
        statistics: Iterable[str] = (),
        remember: bool = False,
        time_B: Tensor | None = None,
    ) -> Prediction:
        padding_BL = canvas.padding_BL if bool(canvas.padding_BL.any()) else None
        hidden_BLd, memory = self.network.forward(
            canvas.tokens_BL,
            positions_BL=canvas.positions_BL,
            padding_BL=padding_BL,
            time_B=(canvas.time_B if time_B is None else time_B) if self.network.timed else None,
            remember=remember,
        )
        B, L = canvas.tokens_BL.shape
        self.ledger.forward(B * L, B * self.network.work.layers(L, L))
        at = read_from(rows_BL, padding_BL) if self.network.shifted else rows_BL
        source = _Head(self, hidden_BLd[at])
        return Prediction(rows_BL, source, (self.mask_id,), statistics, memory, (~canvas.padding_BL).sum(1))

    def replay(
        self,
        memory: AnyMemory,
        rows_BL: Tensor,
        *,
        tokens_BL: Tensor | None = None,
        embeddings_BLE: Tensor | None = None,
        read_BL: Tensor | None = None,
        statistics: Iterable[str] = (),
        remember: bool = False,
        beside: bool = False,
    ) -> Prediction:
        if not isinstance(memory, Memory):
            raise UsageError(f"a {type(memory).__name__} was remembered by another denoiser; replay with that one")
        if beside:
            self.check_beside()
            tokens_BL = torch.full_like(memory.positions_BL, self.mask_id) if tokens_BL is None else tokens_BL
        read_BL = rows_BL if read_BL is None else read_BL & rows_BL
        if self.network.shifted:
            rows_BL = rows_BL | rows_before(read_BL, memory.padding_BL)
        rows = Rows.of(rows_BL)
        hidden_BRd, updated = self.network.replay(
            memory,
            rows.index_BR,
            valid_BR=rows.valid_BR,
            tokens_BR=None if tokens_BL is None else rows.gather(tokens_BL),
            embeddings_BRE=None if embeddings_BLE is None else rows.gather(embeddings_BLE),
            remember=remember,
            beside=beside,
        )
        self._count_replay(hidden_BRd, keys=rows_BL.shape[1] + beside * rows.count)
        if self.network.shifted:
            hidden_Nd = rows.at(hidden_BRd, *read_from(read_BL, memory.padding_BL), rows_BL.shape[1])
        else:
            hidden_Nd = rows.pick(hidden_BRd, read_BL)
        source = _Head(self, hidden_Nd)
        return Prediction(read_BL, source, (self.mask_id,), statistics, updated, rows_BL.sum(1))

    def _count_replay(self, hidden_BRd: Tensor, keys: int) -> None:
        B, R = hidden_BRd.shape[:2]
        queries, work = R if self.network.replays else keys, self.network.work
        self.ledger.forward(B * queries, B * work.replay(R, keys))
        if hidden_BRd.requires_grad:
            tokens, flops = B * queries, B * work.backward(R, keys)
            hidden_BRd.register_hook(lambda _: self.ledger.backward(tokens, flops))


class _Head:
    """Hidden rows waiting for the vocabulary head; counts the rows it runs on."""

    def __init__(self, denoiser: Denoiser, hidden_Nd: Tensor) -> None:
        self.denoiser = denoiser
        self.network, self.ledger = denoiser.network, denoiser.ledger
        self.hidden_Nd = hidden_Nd
        self.vocab_size = self.network.vocab_size

    def __len__(self) -> int:
        return self.hidden_Nd.shape[0]

    def pick(self, index_M: Tensor) -> _Head:
        return _Head(self.denoiser, self.hidden_Nd[index_M])

    def logits(self, rows: slice) -> Tensor:
        hidden_nd = self.hidden_Nd[rows]
        logits_nV = self.network.head(hidden_nd)
        flops = hidden_nd.shape[0] * self.network.work.head
        self.ledger.head(hidden_nd.shape[0], flops)
        if logits_nV.requires_grad:
            logits_nV.register_hook(lambda _: self.ledger.extra(flops))
        return logits_nV
