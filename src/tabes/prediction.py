"""What the network says about some rows: statistics on demand, logits only where asked, the head run once.

Shapes: B batch rows, L canvas rows, N the predicted rows of all batch rows in order, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor

from tabes.errors import NumericsError, UnknownNameError, UsageError
from tabes.statistics import IMPOSSIBLE, STATISTICS, summarise

__all__ = ["LogitSource", "Prediction", "Reducer"]

# Logits of 126,464 words are half a megabyte a row: the head runs on about this many elements at a time.
_CHUNK_ELEMENTS = 1 << 23
# On a CPU everything after the head takes this many at a time: what one pass reads is in the cache for the next.
_CACHED_ELEMENTS = 1 << 19

Reducer = Callable[[Tensor, slice], dict[str, Tensor]]
"""(logits_nV in float32, which of the N rows they are) -> named tensors of shape (n, ...), each row by itself."""


class LogitSource(Protocol):
    """Hidden rows and the head that turns them into logits; guidance combines two of them."""

    @property
    def vocab_size(self) -> int: ...

    def __len__(self) -> int: ...

    def logits(self, rows: slice) -> Tensor: ...

    def pick(self, index_M: Tensor) -> LogitSource:
        """Some of the rows."""


class Prediction:
    """A distribution over tokens for every row in `rows_BL`, from one call of the network.

    Statistics (`confidence_BL`, `margin_BL`, `entropy_BL`, ...) are computed when first read. Declare those you will
    read (`statistics=`) and they are computed in the same pass over the logits; others cost another run of the head.
    Where nothing was predicted a statistic is 0. `impossible` are the ids that cannot come, the mask's among them;
    `computed_B` is how many rows the network computed for it.
    """

    def __init__(
        self,
        rows_BL: Tensor,
        source: LogitSource,
        impossible: tuple[int, ...],
        statistics: Iterable[str] = (),
        memory: Any = None,
        computed_B: Tensor | None = None,
    ) -> None:
        self.rows_BL = rows_BL
        self.computed_B = rows_BL.sum(1) if computed_B is None else computed_B
        self.source = source
        self.impossible = impossible
        self._memory = memory
        self._wanted = frozenset(statistics)
        self._found: dict[str, Tensor] = {}
        self._kept_NV: Tensor | None = None
        for name in self._wanted - STATISTICS:
            raise UnknownNameError("statistic", name, STATISTICS)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def remembered(self) -> bool:
        return self._memory is not None

    @property
    def memory(self) -> Any:
        """The Memory of the forward or replay behind this prediction."""
        if self._memory is None:
            raise UsageError("this prediction was not remembered; ask for it with remember=True")
        return self._memory

    @property
    def vocab_size(self) -> int:
        return self.source.vocab_size

    @property
    def wanted(self) -> frozenset[str]:
        """The statistics that were declared or read."""
        return self._wanted

    @property
    def kept(self) -> bool:
        """Whether all logits are at hand, so that another pass runs no head."""
        return self._kept_NV is not None

    @property
    def kept_B(self) -> Tensor:
        """Whether all logits of a batch row would be kept if it were alone: another pass then runs no head again."""
        return self.rows_BL.sum(1) <= _rows_at_once(self.vocab_size)

    @property
    def top_token_BL(self) -> Tensor:
        """The most probable token."""
        return self._statistic("top_token")

    @property
    def top_logit_BL(self) -> Tensor:
        """The logit of the most probable token."""
        return self._statistic("top_logit")

    @property
    def log_normaliser_BL(self) -> Tensor:
        """log of the sum of exp(logits): log p(v) is the logit of v minus this."""
        return self._statistic("log_normaliser")

    @property
    def confidence_BL(self) -> Tensor:
        """The probability of the most probable token."""
        return self._statistic("confidence")

    @property
    def margin_BL(self) -> Tensor:
        """The probability of the most probable token minus that of the second."""
        return self._statistic("margin")

    @property
    def entropy_BL(self) -> Tensor:
        """The entropy in nats."""
        return self._statistic("entropy")

    def logits_NV(self) -> Tensor:
        """All logits, float32, the impossible ids at -1e30: N x V numbers, so ask only if you need the distribution."""
        if len(self) == 0:
            return torch.zeros(0, self.vocab_size, device=self.rows_BL.device)
        return torch.cat([self._logits(rows) for rows in self._chunks()])

    def reduce(self, reducer: Reducer) -> dict[str, Tensor]:
        """Run `reducer` over the logits chunk by chunk, in the same pass as the declared statistics.

        The named (N, ...) tensors it returns come back as (B, L, ...).
        """
        pending = self._wanted - self._found.keys()
        results: list[dict[str, Tensor]] = []
        for rows in self._chunks():
            results += self._reduced(rows, pending, reducer)
        joined = {name: torch.cat([result[name] for result in results]) for name in (results[0] if results else ())}
        self._found |= {name: joined.pop(name) for name in pending & joined.keys()}
        self._check(self._found)
        return {name: self.spread(value_N) for name, value_N in joined.items()}

    def spread(self, value_N: Tensor, fill: float = 0.0) -> Tensor:
        """(N, ...) values at their places in (B, L, ...)."""
        out_BL = value_N.new_full((*self.rows_BL.shape, *value_N.shape[1:]), fill)
        return out_BL.index_put((self.rows_BL,), value_N)

    def at(self, rows_BL: Tensor) -> Prediction:
        """The same prediction at some of its rows; what is known of them already stays known."""
        kept_BL = rows_BL & self.rows_BL
        return self._picked(kept_BL, kept_BL[self.rows_BL], self._memory, self.computed_B)

    def select(self, batch: Tensor) -> Prediction:
        """The same prediction for the batch rows where the bool mask `batch` is set, memory included."""
        kept_BL = self.rows_BL & batch[:, None]
        memory = None if self._memory is None else self._memory.select(batch.nonzero().squeeze(1))
        return self._picked(self.rows_BL[batch], kept_BL[self.rows_BL], memory, self.computed_B[batch])

    def without(self, ids: tuple[int, ...]) -> Prediction:
        """A prediction in which these ids are impossible too."""
        impossible = tuple(dict.fromkeys((*self.impossible, *ids)))
        return Prediction(self.rows_BL, self.source, impossible, self._wanted, self._memory, self.computed_B)

    def forgetting(self) -> Prediction:
        """The same prediction without its Memory, for whoever keeps it beyond its step."""
        bare = Prediction(self.rows_BL, self.source, self.impossible, self._wanted, None, self.computed_B)
        bare._found, bare._kept_NV = self._found, self._kept_NV
        return bare

    def wanting(self, statistics: Iterable[str]) -> Prediction:
        """The same prediction, which will compute these statistics too in its next pass."""
        self._wanted |= frozenset(statistics)
        return self

    def _picked(self, rows_BL: Tensor, kept_N: Tensor, memory: Any, computed_B: Tensor) -> Prediction:
        index_M = kept_N.nonzero().squeeze(1)
        picked = Prediction(rows_BL, self.source.pick(index_M), self.impossible, self._wanted, memory, computed_B)
        picked._found = {name: value_N[index_M] for name, value_N in self._found.items()}
        picked._kept_NV = None if self._kept_NV is None else self._kept_NV[index_M]
        return picked

    def _statistic(self, name: str) -> Tensor:
        if len(self) == 0:
            dtype = torch.int64 if name == "top_token" else torch.float32
            return torch.zeros(self.rows_BL.shape, dtype=dtype, device=self.rows_BL.device)
        if name not in self._found:
            self._wanted |= {name}
            self.reduce(lambda logits_nV, rows: {})
        return self.spread(self._found[name])

    def _reduced(self, rows: slice, pending: frozenset[str], reducer: Reducer) -> list[dict[str, Tensor]]:
        """One chunk's results. Its logits end with this call, so the next chunk's can take their place."""
        logits_nV = self._logits(rows)
        cached = logits_nV.device.type == "cpu" and not logits_nV.requires_grad
        size = max(1, _CACHED_ELEMENTS // self.vocab_size) if cached else logits_nV.shape[0]
        results = []
        for start, piece_nV in zip(range(rows.start, rows.stop, size), logits_nV.split(size), strict=True):
            statistics = summarise(piece_nV, pending) if pending else {}
            results.append(statistics | reducer(piece_nV, slice(start, start + piece_nV.shape[0])))
        return results

    def _chunks(self) -> Iterable[slice]:
        size = _rows_at_once(self.vocab_size)
        for start in range(0, len(self), size):
            yield slice(start, min(start + size, len(self)))

    def _logits(self, rows: slice) -> Tensor:
        if self._kept_NV is not None:
            return self._kept_NV
        logits_nV = self._without_impossible(_at_least_float32(self.source.logits(rows)))
        if logits_nV.shape[0] == len(self):
            self._kept_NV = logits_nV
        return logits_nV

    def _without_impossible(self, logits_nV: Tensor) -> Tensor:
        ids = torch.tensor(self.impossible, device=logits_nV.device)
        if logits_nV.requires_grad:
            return logits_nV.index_fill(1, ids, IMPOSSIBLE)
        return logits_nV.index_fill_(1, ids, IMPOSSIBLE)

    def _check(self, found: dict[str, Tensor]) -> None:
        for name, value_N in found.items():
            if value_N.is_floating_point() and not bool(torch.isfinite(value_N).all()):
                bad_BL = self.spread(~torch.isfinite(value_N), fill=0)
                row, position = bad_BL.nonzero()[0].tolist()
                raise NumericsError(f"{name} is not finite", row, position)


def _rows_at_once(vocab_size: int) -> int:
    return max(1, _CHUNK_ELEMENTS // vocab_size)


def _at_least_float32(logits_nV: Tensor) -> Tensor:
    return logits_nV if logits_nV.dtype == torch.float64 else logits_nV.float()
