"""The published reaction model (rxnmapper, MIT), fetched from the package index by name and made ready to decode.

python -m benchmarks.reaction_model FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from tabes.tasks.reaction_model import reaction_model

__all__ = ["PACKAGE", "fetch"]

PACKAGE = "rxnmapper==0.4.3"
_WEIGHTS = "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"


def fetch(folder: Path) -> Path:
    """A folder for `tabes.load`: `folder` as it is if it holds a model, else downloaded (3 MB) and converted there.

    The package is only unpacked, never installed or imported: it asks for a transformers this library does not run on.
    The model appears in one move, so a run that was killed leaves nothing that looks like one.
    """
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as name:
        scratch = Path(name)
        with ZipFile(_download(scratch)) as wheel:
            wheel.extractall(scratch / "package", [file for file in wheel.namelist() if file.startswith(_WEIGHTS)])
        reaction_model(scratch / "package" / _WEIGHTS, scratch / "model").rename(folder)
    return folder


def _download(into: Path) -> Path:
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, "--dest", str(into), PACKAGE], check=True)
    (wheel,) = into.glob("*.whl")
    return wheel


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
