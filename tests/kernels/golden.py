"""The recorded transition distributions, and a kernel's own for the same state."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

import tabes
from tabes.canvas import Canvas
from tabes.kernels import DFM, MDLM, ForwardBackward, ReMDM, ReMDMLoop
from tabes.kernels.base import Kernel, Now, transition
from tabes.kernels.remdm import WhenRevealed
from tests.conftest import GOLDEN, MASK

KERNELS: dict[str, tuple[type[Kernel], dict[str, Any]]] = {
    "mdlm_ancestral": (MDLM, {}),
    "mdlm_analytic": (MDLM, {}),
    "mdlm_nucleus": (MDLM, {}),
    "remdm_cap": (ReMDM, {"rate": "cap"}),
    "remdm_rescale": (ReMDM, {"rate": "rescale"}),
    "remdm_conf": (ReMDM, {"rate": "conf"}),
    "remdm_loop": (ReMDMLoop, {}),
    "forward_backward": (ForwardBackward, {}),
    "dfm": (DFM, {}),
}


@dataclass(frozen=True)
class Record:
    """One state of one case, and the reference's distribution of the next."""

    case: dict[str, Any]
    facts: dict[str, Any]
    tensors: dict[str, Tensor]

    def __str__(self) -> str:
        return f"{self.case['sampler']}-{self.case['case']}-{self.facts['step_index']}"

    @property
    def canvas(self) -> Canvas:
        """The state, all of it writable."""
        empty = Canvas.create(torch.full((1, self.case["length"]), MASK), mask_id=MASK)
        return empty.with_tokens(self.tensors["x_t"][None])

    @property
    def transition_LV(self) -> Tensor:
        return self.tensors["transition"]

    def now(self) -> Now:
        masked_BL = self.canvas.masked_BL
        times = (torch.tensor([self.facts[name]], dtype=torch.float64) for name in ("t", "s"))
        return Now(masked_BL, ~masked_BL, *times)


def cases(sampler: str) -> list[Path]:
    return sorted((GOLDEN / sampler).glob("*.json"))


def records(path: Path) -> list[Record]:
    case = json.loads(path.read_text())
    tensors = load_file(path.with_suffix(".safetensors"))
    return [
        Record(case, facts, {key.split(".")[1]: value for key, value in tensors.items() if key.startswith(f"{at}.")})
        for at, facts in enumerate(case["records"])
    ]


def kernel_of(case: dict[str, Any], **changes: Any) -> Kernel:
    """Our kernel with the parameters of a case."""
    kind, fixed = KERNELS[case["sampler"]]
    theirs = case["params"]
    same = {name: theirs[name] for name in ("eta", "t_on", "t_off", "alpha_on") if name in theirs}
    drawn = {"num_steps": theirs["T"], "top_p": theirs.get("nucleus_p"), "nucleus": "drop"}
    return kind(**{**drawn, **fixed, **same, **changes})


def memory_of(record: Record) -> WhenRevealed | None:
    """The reference keeps minus the probability, -inf at masks."""
    if "conf" not in record.tensors:
        return None
    return WhenRevealed(record.tensors["conf"].neg().nan_to_num(posinf=0.0)[None])


def log_p(model: tabes.Denoiser, canvas: Canvas) -> Tensor:
    """(L, V): what the golden denoiser says of every row that is masked, -1e30 where there is nothing to say."""
    prediction = model.predict(canvas, canvas.masked_BL)
    logits_LV = prediction.spread(prediction.logits_NV(), fill=-1e30)[0]
    return torch.where(canvas.masked_BL[0, :, None], logits_LV.log_softmax(-1), -1e30)


def ours(kernel: Kernel, record: Record, log_p_LV: Tensor, memory: Any = None) -> Tensor:
    """(L, V): our distribution of the next token."""
    now, canvas = record.now(), record.canvas
    weights_LV = kernel.weights(log_p_LV)
    p_LV = weights_LV / weights_LV.sum(-1, keepdim=True)
    memory = kernel.begin(canvas) if memory is None else memory
    return transition(kernel.chances(now, memory), now.masked_BL, canvas.tokens_BL, p_LV[None], MASK)[0]
