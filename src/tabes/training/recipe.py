"""What decides a training run, and the lines it leaves in its log."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["LogRow", "Recipe", "read_log", "write_log"]


@dataclass(frozen=True)
class Recipe:
    """What decides a run, besides the model's first weights and the data. Two runs of one recipe are equal."""

    steps: int
    batch_size: int = 64
    seed: int = 0
    matrix_rate: float = 0.015  # Muon, whose updates have unit size
    other_rate: float = 1.5e-3  # AdamW, for embeddings, norms, biases and the head
    warmup: float = 0.02  # share of the steps; the rate then falls linearly to zero
    ema_decay: float = 0.998
    clip: float = 1.0
    bfloat16: bool = True  # autocast of the forward pass; weights and optimizers stay float32
    validate_every: int = 500
    checkpoint_seconds: float = 60.0

    def rate(self, step: int) -> float:
        """The factor on both learning rates at `step`: linear up, then linear down to zero."""
        rise = max(1.0, self.warmup * self.steps)
        return min((step + 1) / rise, (self.steps - step) / max(1.0, self.steps - rise))

    def agrees_with(self, saved: dict[str, object]) -> bool:
        """Whether a checkpoint of `saved` may go on under this recipe; how often it is saved changes no number."""
        mine = asdict(self)
        return all(mine[name] == saved.get(name) for name in mine if name != "checkpoint_seconds")


@dataclass(frozen=True)
class LogRow:
    """One line of the log. Losses are nats per token; `train` is the mean since the line before."""

    step: int
    train: float
    validation: float
    validation_error: float
    seconds: float


def read_log(path: Path, up_to: int) -> list[LogRow]:
    """The lines of the log up to a step; a killed run may have logged more than its checkpoint knows."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [row for row in (LogRow(**json.loads(line)) for line in lines) if row.step <= up_to]


def write_log(path: Path, log: list[LogRow]) -> None:
    """One JSON object per line, moved into place whole."""
    beside = path.with_suffix(".tmp")
    beside.write_text("".join(json.dumps(asdict(row)) + "\n" for row in log), encoding="utf-8")
    beside.replace(path)
