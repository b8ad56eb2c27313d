"""Loading takes hardly more memory than the weights: measured on some 300 MB, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.decoders import Decoder

_MEASURE = """
import json, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
import torch
from tabes.models.loading import open_network
from tests.decoders import Decoder

def now(name):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith(name))

with TemporaryDirectory() as small:  # what the first checkpoint of a process costs besides its weights
    Decoder(sys.argv[3]).save(Path(small), torch.bfloat16)
    open_network(small)
Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
before, start = now("VmRSS"), time.perf_counter()
network, _ = open_network(sys.argv[1], dtype=sys.argv[2])
seconds = time.perf_counter() - start
weights = sum(part.numel() * part.element_size() for part in network.backbone.model.parameters())
print(json.dumps({"peak": (now("VmHWM") - before) * 1024 / weights, "bytes": weights, "seconds": seconds}))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    ("kind", "stored", "dtype"),
    [
        ("llada", "bfloat16", "bfloat16"),
        ("llada", "bfloat16", "float32"),
        ("llada", "float32", "bfloat16"),
        ("dream", "bfloat16", "auto"),
        ("dream", "float32", "float32"),
    ],
)
def test_peak_memory(kind: str, stored: str, dtype: str, tmp_path: Path) -> None:
    width = 1024 if "float32" in (dtype, stored) and dtype != "bfloat16" else 1408
    sizes = {"width": width, "layers": 6, "heads": 16, "key_heads": 8, "mlp": 3 * width, "vocab": 8000, "length": 512}
    decoder = Decoder(kind, sizes)
    decoder.save(tmp_path, getattr(torch, stored), shards=4)
    command = [sys.executable, "-c", _MEASURE, str(tmp_path), dtype, kind]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(kind, stored, dtype, found)  # noqa: T201 (pytest -s shows it)
    assert found["bytes"] > 250e6
    assert 0.9 < found["peak"] < 1.2
