"""Which packages hold a model, at which version, and what is in them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

__all__ = ["Wheel", "find_wheel", "wheels"]


@dataclass(frozen=True)
class Wheel:
    """A package with trained weights in it.

    Attributes:
        name: Of the package; `tabes.load` takes it.
        version: The one whose model is known.
        sha256: Of the published file.
        megabytes: To download.
        licence: Of the package, weights included.
        architecture: The transformers class that the weights are of.
        folder: Where in the package the config and the weights are.
        vocabulary: Where in the package the list of tokens is.
        reads: How a text is cut into them.
        note: What it was trained on.
    """

    name: str
    version: str
    sha256: str
    megabytes: int
    licence: str
    architecture: str
    folder: str
    vocabulary: str
    reads: Literal["smiles", "residues"]
    note: str

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.name}=={self.version}"

    @property
    def filename(self) -> str:
        """Of the published file."""
        return f"{self.name}-{self.version}-py3-none-any.whl"

    @property
    def files(self) -> tuple[str, ...]:
        """What is read of the package, nothing else."""
        return f"{self.folder}/config.json", f"{self.folder}/pytorch_model.bin", self.vocabulary

    @property
    def remedy(self) -> str:
        """How to get it; ends a sentence."""
        return f"get it ({self.megabytes} MB, {self.licence}) with `tabes models --fetch {self.name}`"


@cache
def wheels() -> tuple[Wheel, ...]:
    """All of them, in the order of the file."""
    text = files("tabes.models.wheels").joinpath("wheels.toml").read_text(encoding="utf-8")
    return tuple(Wheel(**entry) for entry in tomllib.loads(text)["wheel"])


def find_wheel(name: str) -> Wheel | None:
    """The package of this name, None for any other name."""
    return next((wheel for wheel in wheels() if wheel.name == name), None)
