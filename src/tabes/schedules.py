"""Noise schedules: how much of a sequence is still seen at time t, which falls from 1 (all masked) to 0 while decoding.

sigma(t) = -log alpha(t)   (SEDD's total noise),       w(t) = -alpha'(t) / (1 - alpha(t))   (the ELBO's weight)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from tabes.errors import UnknownNameError

__all__ = [
    "SCHEDULES",
    "CosineSchedule",
    "LinearSchedule",
    "LogLinearSchedule",
    "PolynomialSchedule",
    "Schedule",
    "schedule_of",
]


class Schedule(ABC):
    """alpha falls from 1 at t = 0 to (about) 0 at t = 1."""

    @abstractmethod
    def alpha(self, t: Tensor) -> Tensor:
        """The chance that a token is seen."""

    @abstractmethod
    def slope(self, t: Tensor) -> Tensor:
        """-alpha'(t)."""

    def weight(self, t: Tensor) -> Tensor:
        """w(t)."""
        return self.slope(t) / (1 - self.alpha(t))

    def sigma(self, t: Tensor) -> Tensor:
        """The total noise."""
        return -self.alpha(t).log()

    def rate(self, t: Tensor) -> Tensor:
        """sigma'(t)."""
        return self.slope(t) / self.alpha(t)


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """alpha = 1 - t, so w = 1 / t: LLaDA's and MDLM's choice."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - t

    def slope(self, t: Tensor) -> Tensor:
        return torch.ones_like(t)

    def weight(self, t: Tensor) -> Tensor:
        return 1 / t


@dataclass(frozen=True)
class LogLinearSchedule(Schedule):
    """alpha = 1 - (1 - eps) t, so that the noise stays finite (SEDD 2310.16834, MDLM 2406.07524); linear for eps 0."""

    eps: float = 1e-3

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - (1 - self.eps) * t

    def slope(self, t: Tensor) -> Tensor:
        return torch.full_like(t, 1 - self.eps)


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """alpha = 1 - sin(pi t / 2), so w = (pi / 2) / tan(pi t / 2): more time spent with few masks."""

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - torch.sin(math.pi / 2 * t)

    def slope(self, t: Tensor) -> Tensor:
        return math.pi / 2 * torch.cos(math.pi / 2 * t)

    def weight(self, t: Tensor) -> Tensor:
        return math.pi / 2 / torch.tan(math.pi / 2 * t)


@dataclass(frozen=True)
class PolynomialSchedule(Schedule):
    """alpha = 1 - t^power; linear for power 1."""

    power: float = 2.0

    def alpha(self, t: Tensor) -> Tensor:
        return 1 - t**self.power

    def slope(self, t: Tensor) -> Tensor:
        return self.power * t ** (self.power - 1)


SCHEDULES: dict[str, Schedule] = {
    "cosine": CosineSchedule(),
    "linear": LinearSchedule(),
    "loglinear": LogLinearSchedule(),
    "polynomial": PolynomialSchedule(),
}


def schedule_of(schedule: str | Schedule) -> Schedule:
    """A schedule by name, or one made by the caller."""
    if isinstance(schedule, Schedule):
        return schedule
    if schedule not in SCHEDULES:
        raise UnknownNameError("schedule", schedule, SCHEDULES)
    return SCHEDULES[schedule]
