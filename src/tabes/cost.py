"""What decoding cost. `Ledger` is written where the network is called, so no rule can forget to count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from time import perf_counter

import torch

__all__ = ["Cost", "Ledger"]


@dataclass(frozen=True)
class Cost:
    """Counts of real work; adds up over steps.

    `*_tokens` are token rows through the transformer (batch x length for a full forward, batch x rows for a replay,
    doubled by guidance), padding included because it is computed. `head_rows` pass through the vocabulary head.
    `fallbacks` are batch rows whose steering failed in a step (NaN) and that were decoded by confidence.
    `flops` is the estimated work (layers, attention, head, backward) and `full_forward_flops` that of one plain
    forward of the whole batch with logits everywhere; their ratio is `forward_equivalents`.
    """

    forward_calls: int = 0
    forward_tokens: int = 0
    backward_calls: int = 0
    backward_tokens: int = 0
    head_rows: int = 0
    fallbacks: int = 0
    seconds: float = 0.0
    peak_bytes: int | None = None
    flops: float = 0.0
    full_forward_flops: float = 0.0

    @property
    def forward_equivalents(self) -> float:
        """Total work over that of one full forward."""
        return self.flops / self.full_forward_flops if self.full_forward_flops else 0.0

    def __add__(self, other: Cost) -> Cost:
        peaks = [cost.peak_bytes for cost in (self, other) if cost.peak_bytes is not None]
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Cost) if f.name not in _NO_SUM}
        unit = max(self.full_forward_flops, other.full_forward_flops)
        return Cost(**sums, peak_bytes=max(peaks, default=None), full_forward_flops=unit)

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON: every field and `forward_equivalents`."""
        return asdict(self) | {"forward_equivalents": self.forward_equivalents}


_NO_SUM = frozenset({"peak_bytes", "full_forward_flops"})


class Ledger:
    """The running total of one denoiser. Only the code that calls the network writes to it."""

    def __init__(self) -> None:
        self.forward_calls = self.forward_tokens = self.backward_calls = self.backward_tokens = self.head_rows = 0
        self.fallbacks = 0
        self.flops = 0.0

    def forward(self, tokens: int, flops: float) -> None:
        """One call of the layers on `tokens` token rows."""
        self.forward_calls += 1
        self.forward_tokens += tokens
        self.flops += flops

    def backward(self, tokens: int, flops: float) -> None:
        """One pass back through the layers over `tokens` token rows."""
        self.backward_calls += 1
        self.backward_tokens += tokens
        self.flops += flops

    def head(self, rows: int, flops: float) -> None:
        """`rows` hidden rows turned into logits."""
        self.head_rows += rows
        self.flops += flops

    def extra(self, flops: float) -> None:
        """Work that belongs to a call already counted (the head's share of a backward)."""
        self.flops += flops

    def fell_back(self, batch_rows: int) -> None:
        """A sampler could not use what it computed for so many batch rows."""
        self.fallbacks += batch_rows

    @contextmanager
    def measure(self, device: torch.device, full_forward_flops: float) -> Iterator[list[Cost]]:
        """Yields a list that holds, after the block, the one `Cost` of what happened inside."""
        costs: list[Cost] = []
        before = dict(vars(self))
        on_accelerator = device.type == "cuda"
        if on_accelerator:
            torch.cuda.reset_peak_memory_stats(device)
        start = perf_counter()
        yield costs
        if on_accelerator:
            torch.cuda.synchronize(device)
        counts = {name: value - before[name] for name, value in vars(self).items()}
        peak = torch.cuda.max_memory_allocated(device) if on_accelerator else None
        seconds = perf_counter() - start
        costs.append(Cost(**counts, seconds=seconds, peak_bytes=peak, full_forward_flops=full_forward_flops))
