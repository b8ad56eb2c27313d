"""Our local rules and budgets in diffusers' `LLaDA2Pipeline`: `BlockScheduler` in place of BlockRefinementScheduler.

    pipe = LLaDA2Pipeline(model=model, tokenizer=tokenizer, scheduler=BlockScheduler("margin"))

The pipeline runs the network and hands over the logits of one block, so only rules that need no more than these work
here. It is duck-typed: diffusers need not be installed. Shapes: B batch rows, L rows of a block, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tabes.canvas import Canvas
from tabes.errors import TabesError, UsageError
from tabes.interop.blocks import BlockStep, canvas_of, local_rule, told
from tabes.interop.given import GivenLogits
from tabes.parts import BUDGETS
from tabes.presets import preset_of
from tabes.presets import sampler as make_sampler
from tabes.randomness import Randomness
from tabes.revisers import Edit
from tabes.sampling import PartSampler
from tabes.view import View

__all__ = ["BlockScheduler", "BlockStep"]

# The pipeline counts the steps that only edit.
_AS_LONG_AS_ASKED = 1 << 30
_PATIENCE = 10_000


@dataclass
class _Block:
    """One block being filled."""

    rule: PartSampler
    state: Any
    randomness: Randomness
    editing: bool
    steps: int = 0
    idle: int = 0
    left_B: Tensor | None = None


class BlockScheduler:
    """A sampler by name, with its parameters, for one block after the other.

    What the pipeline is called with stays what it means there: `temperature`, `top_p`, `top_k`, `num_inference_steps`
    (of a block), `editing_threshold`, and `threshold` for budgets that have one. A parameter given here wins.
    """

    order = 1

    def __init__(
        self, sampler: str = "quota", *, block_length: int = 32, num_inference_steps: int = 32, **parameters: Any
    ) -> None:
        self.config = SimpleNamespace(
            sampler=sampler, block_length=block_length, num_inference_steps=num_inference_steps, **parameters
        )
        self._name, self._parameters = sampler, parameters
        self._budget = parameters.get("budget") or preset_of(sampler).budget
        self._block: _Block | None = None
        self.set_timesteps(num_inference_steps, block_length=block_length)
        self._rule({}, None)

    @classmethod
    def from_config(cls, config: Any, sampler: str = "quota", **parameters: Any) -> BlockScheduler:
        """With the block length and the steps of another scheduler's config."""
        found = config if isinstance(config, Mapping) else vars(config)
        sizes = {name: found[name] for name in ("block_length", "num_inference_steps") if name in found}
        return cls(sampler, **{**sizes, **parameters})

    def set_timesteps(
        self, num_inference_steps: int, device: str | torch.device | None = None, block_length: int | None = None
    ) -> None:
        """So many steps for every block."""
        for name, value in (("num_inference_steps", num_inference_steps), ("block_length", block_length or 1)):
            if value < 1:
                raise UsageError(f"{name} is {value}; it must be 1 or more")
        self.num_inference_steps = num_inference_steps
        self.timesteps = torch.arange(num_inference_steps - 1, -1, -1, device=device)
        self._block = None

    @torch.no_grad()
    def step(
        self,
        model_output: Tensor,
        timestep: int | Tensor,
        sample: Tensor,
        *,
        mask_token_id: int | None = None,
        temperature: float = 0.0,
        top_p: float | None = None,
        top_k: int | None = None,
        sampling_method: str = "auto",
        threshold: float | None = None,
        editing_threshold: float | None = None,
        minimal_topk: int | None = None,
        prompt_mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        return_dict: bool = True,
    ) -> BlockStep | tuple[Tensor, ...]:
        """The block (B, L) after one step. `timestep` 0 starts a new block; `prompt_mask` (L,) is what was given."""
        if mask_token_id is None:
            raise UsageError("mask_token_id is None: models that replace tokens instead of masks are not decoded here")
        given = GivenLogits(model_output, sample, mask_token_id)
        canvas = canvas_of(sample, mask_token_id, prompt_mask)
        if self._block is None or (int(timestep) == 0 and bool(canvas.masked_BL.any())):
            draws = temperature > 0 and sampling_method != "greedy"
            asked: dict[str, Any] = {"temperature": temperature, "top_p": top_p, "top_k": top_k} if draws else {}
            rule = self._rule(asked | {"threshold": threshold}, editing_threshold)
            seeds = Randomness.create(_seed(generator), len(sample), sample.device)
            self._block = _Block(rule, rule.init(canvas), seeds, rule.revises)
        done = self._stepped(self._block, canvas, given)
        return done if return_dict else tuple(vars(done).values())

    def check_block_should_continue(
        self,
        step_idx: int,
        masks_remaining: bool,
        editing_enabled: bool,
        editing_transfer_index: Tensor,
        post_steps: int,
        max_post_steps: int,
        finished: Tensor,
    ) -> bool:
        """Until no mask is left in rows that are not finished; then while tokens are edited, `max_post_steps` at most.

        A budget that needs more steps than `num_inference_steps` gets them: no mask is left behind.
        """
        if bool(finished.all()) or self._block is None:
            return False
        left_B = self._block.left_B
        if left_B is not None and bool((left_B & ~finished).any()):
            return True
        if not editing_enabled or not self._block.editing or post_steps >= max_post_steps:
            return False
        return bool(masks_remaining) or bool((editing_transfer_index & ~finished[:, None]).any())

    @staticmethod
    def check_eos_finished(
        cur_x: Tensor,
        sampled_tokens: Tensor,
        final_transfer: Tensor,
        finished: Tensor,
        eos_token_id: int,
        mask_token_id: int,
        prompt_length: int,
    ) -> Tensor:
        """(B,): also finished are rows that wrote an end token now and have one with no mask before it."""
        new_BL = cur_x[:, prompt_length:]
        wrote_B = (final_transfer & (sampled_tokens == eos_token_id)).any(1)
        stands_BL = (new_BL == eos_token_id) & ((new_BL == mask_token_id).cumsum(1) == 0)
        return finished | (wrote_B & stands_BL.any(1))

    def _rule(self, asked: Mapping[str, Any], editing_threshold: float | None) -> PartSampler:
        own, knows = self._parameters, BUDGETS.parameters(self._budget) if isinstance(self._budget, str) else {}
        found = {name: value for name, value in asked.items() if value is not None}
        if "threshold" not in knows:
            found.pop("threshold", None)
        if "num_steps" in knows and "tokens_per_step" not in own:
            found["num_steps"] = self.num_inference_steps
        if editing_threshold is not None and editing_threshold > 0:
            found["reviser"] = Edit(editing_threshold, _AS_LONG_AS_ASKED)
        return local_rule(self._name, make_sampler(self._name, **{**found, **own}))

    def _stepped(self, block: _Block, canvas: Canvas, given: GivenLogits) -> BlockStep:
        view = View(canvas, given, block.steps, block.randomness)
        move, block.state = block.rule.step(view, block.state)
        after = canvas.apply(move)
        block.steps += 1
        block.left_B = after.masked_BL.any(1)
        block.idle = 0 if bool((after.tokens_BL != canvas.tokens_BL).any()) else block.idle + 1
        if block.idle > _PATIENCE:
            raise TabesError(f"the sampler '{self._name}' changed nothing in {block.idle} steps")
        return told(canvas, after, move, view, given)


def _seed(generator: torch.Generator | None) -> int:
    """From the caller's generator, or from torch's own, so that its seed repeats what is drawn."""
    device = None if generator is None else generator.device
    return int(torch.randint(1 << 62, (1,), generator=generator, device=device))
