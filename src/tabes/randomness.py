"""Randomness belongs to the batch row: a stream for each, so that a row of a batch draws what it would alone.

Every number is a hash of (row's seed, step, purpose, position): no state, no order of calls, the same on every device.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.errors import UsageError

__all__ = ["Randomness"]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


# The constants of the splitmix64 finaliser, as the signed integers torch has.
_STRIDE, _FIRST, _SECOND = (_signed(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _times_stride(value: int) -> int:
    """`value * _STRIDE` modulo 2^64: Python's integers do not wrap, torch's scalars must fit."""
    return _signed(value * _STRIDE % (1 << 64))


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift: torch's is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


@dataclass(frozen=True)
class Randomness(Batched):
    """One stream per batch row. `uniform` may be called any number of times, for any purpose, in any order."""

    seeds_B: Tensor

    @classmethod
    def create(cls, seed: int | Sequence[int] | None, batch: int, device: torch.device) -> Randomness:
        """Row b gets `seed + b`, or its own entry of a sequence of seeds; None draws a seed from the system."""
        first = secrets.randbits(62) if seed is None else seed
        seeds = [first + b for b in range(batch)] if isinstance(first, int) else list(first)
        if len(seeds) != batch or not all(isinstance(s, int) for s in seeds):
            raise UsageError(f"seed is {seed!r}; give one integer, or one for each of the {batch} batch rows")
        wrapped = [_signed(s % (1 << 64)) for s in seeds]
        return cls(torch.tensor(wrapped, dtype=torch.int64, device=device))

    def uniform(self, purpose: str, step: int, positions_BL: Tensor) -> Tensor:
        """float64 in (0, 1), one for every canvas row."""
        key_B = _mix(_mix(self.seeds_B + _STRIDE) + _times_stride(crc32(purpose.encode())))
        key_B = _mix(key_B + _times_stride(step + 1))
        bits_BL = _mix(key_B[:, None] + (positions_BL + 1) * _STRIDE)
        return (_shift(bits_BL, 11).double() + 0.5) * 2.0**-53
