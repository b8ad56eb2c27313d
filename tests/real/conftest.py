"""Models that others trained and published. Their absence is a failure: a skipped test would say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tabes
from tabes.models.wheels import Wheel, find_wheel
from tabes.models.wheels.places import downloaded, unpacked, wheel_folder
from tabes.tasks import Item, ReactionTask

REACTIONS = Path(__file__).parent / "reactions.csv"
SPECIAL = 15  # in the vocabulary of reactions everything below is a mark or unused


def known(name: str) -> Wheel:
    """The downloaded wheel of this name."""
    wheel = find_wheel(name)
    assert wheel is not None
    assert downloaded(wheel), f"{wheel.filename} is not in {wheel_folder()}: run `make wheels` (or `make test`) once"
    return wheel


@contextmanager
def published(name: str) -> Iterator[Path]:
    """The model's folder as its authors packed it."""
    wheel = known(name)
    with unpacked(wheel) as root:
        yield root / wheel.folder


@pytest.fixture(scope="session")
def reaction_model() -> tabes.Denoiser:
    known("rxnmapper")
    return tabes.load("rxnmapper")


@pytest.fixture(scope="session", params=["rxnmapper", "rxnfp"])
def either_model(request: pytest.FixtureRequest) -> tabes.Denoiser:
    """In float64, where what should be exact is."""
    known(request.param)
    return tabes.load(request.param, dtype="float64")


@pytest.fixture(scope="session")
def items() -> tuple[Item, ...]:
    """Reactions with 70 % of the product's tokens masked."""
    return ReactionTask(REACTIONS, split="all").items(50, seed=0)


@pytest.fixture(scope="session")
def reactions() -> list[str]:
    return REACTIONS.read_text().split()[1:]
