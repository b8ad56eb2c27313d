"""Everything that changes while training, and how it survives a kill."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tabes.errors import NumericsError, UsageError
from tabes.training.recipe import Recipe

__all__ = ["TrainingState"]


class TrainingState:
    """Weights, their running average, the optimizers, the step.

    Matrices inside the network take Muon steps, everything else AdamW: in trials of two minutes on Sudoku grids Muon
    came to .71 nats per cell where AdamW alone (one rate tried, 2e-3) was at .99.
    """

    def __init__(self, model: nn.Module, recipe: Recipe) -> None:
        self.recipe = recipe
        self.weights = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.average = {name: value.detach().clone() for name, value in self.weights.items()}
        matrices, others = _split(model)
        self.optimizers: tuple[tuple[torch.optim.Optimizer, float], ...] = (
            (torch.optim.Muon(matrices, lr=recipe.matrix_rate, weight_decay=0.0), recipe.matrix_rate),
            (torch.optim.AdamW(others, lr=recipe.other_rate, betas=(0.9, 0.99), weight_decay=0.0), recipe.other_rate),
        )
        self.step, self.seconds = 0, 0.0
        self.losses: list[float] = []  # since the last line of the log

    def advance(self, loss: Tensor) -> None:
        """One optimizer step from `loss`; a loss that is not a number raises before it can spoil the weights."""
        self.losses.append(float(loss.detach()))
        if not math.isfinite(self.losses[-1]):
            raise NumericsError(f"the training loss is {self.losses[-1]} in step {self.step}; lower the learning rates")
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights.values(), self.recipe.clip)
        for optimizer, rate in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * self.recipe.rate(self.step)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        keep = min(self.recipe.ema_decay, 1 - 1 / (1 + 0.1 * self.step))  # a short memory while everything moves
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.values()), list(self.weights.values()), 1 - keep)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """While inside, the model holds the averaged weights."""
        current = {name: value.detach().clone() for name, value in self.weights.items()}
        _copy(self.average, self.weights)
        try:
            yield
        finally:
            _copy(current, self.weights)

    def keep_average(self) -> None:
        """Leave the averaged weights in the model, for good."""
        _copy(self.average, self.weights)

    def save(self, path: Path) -> None:
        """Written beside and moved into place: a kill leaves the old checkpoint or the new one, never half of one."""
        saved = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "seconds": self.seconds,
            "losses": self.losses,
            "weights": {name: value.detach() for name, value in self.weights.items()},
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer, _ in self.optimizers],
        }
        beside = path.with_suffix(".tmp")
        torch.save(saved, beside)
        beside.replace(path)

    def load(self, path: Path) -> None:
        """Go on where `save` left off."""
        saved: dict[str, Any] = torch.load(path, weights_only=True)
        if not self.recipe.agrees_with(saved["recipe"]):
            raise UsageError(f"{path} is of another recipe; use another folder, or start over without resuming")
        if saved["weights"].keys() != self.weights.keys():
            raise UsageError(f"{path} is of another architecture; use another folder, or start over without resuming")
        self.step, self.seconds, self.losses = saved["step"], saved["seconds"], saved["losses"]
        _copy(saved["weights"], self.weights)
        _copy(saved["average"], self.average)
        for (optimizer, _), state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)


def _split(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Muon's parameters (the weights of linear maps between hidden states) and AdamW's (all others)."""
    find_head = getattr(model, "get_output_embeddings", None)
    head = find_head() if callable(find_head) else None
    inner = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear) and module is not head}
    trained = [value for value in model.parameters() if value.requires_grad]
    return [value for value in trained if id(value) in inner], [value for value in trained if id(value) not in inner]


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in target.items():
            value.copy_(source[name])
