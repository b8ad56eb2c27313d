"""The canvas: what is given, what may be written, what is still masked. Immutable; a `Move` makes the next one.

Shapes: B batch rows, L canvas rows (positions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tabes.batched import Batched
from tabes.errors import UsageError

__all__ = ["Canvas", "Move"]

_NO_BLOCK = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Move:
    """What a sampler wants to change. Writing on a masked row fills it, on a written row rewrites it.

    `done_B` None means the usual: a row is done when nothing is masked. A sampler with a clock of its own says it here.
    """

    write_BL: Tensor
    tokens_BL: Tensor
    remask_BL: Tensor | None = None
    scores_BL: Tensor | None = None
    done_B: Tensor | None = None


@dataclass(frozen=True)
class Canvas(Batched):
    """B sequences of L rows. Given tokens never change; only `writable_BL` rows may be written or masked again."""

    tokens_BL: Tensor
    writable_BL: Tensor
    padding_BL: Tensor
    positions_BL: Tensor
    block_BL: Tensor
    mask_id: int

    @classmethod
    def create(
        cls,
        input_ids: Tensor,
        *,
        mask_id: int,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        max_new_tokens: int = 0,
        block_length: int | None = None,
    ) -> Canvas:
        """Prompt (mask ids inside it are holes) followed by `max_new_tokens` holes.

        Padding is where `attention_mask` is 0; by default positions count the other rows only, so that padding
        changes nothing. `block_length` rows, counted from the first hole, are filled before the next ones.
        """
        prompt_BP = _checked_ids(input_ids)
        if max_new_tokens < 0:
            raise UsageError(f"max_new_tokens is {max_new_tokens}; it must be 0 or more")
        holes = prompt_BP.new_full((prompt_BP.shape[0], max_new_tokens), mask_id)
        tokens_BL = torch.cat([prompt_BP, holes], 1)
        if tokens_BL.shape[1] == 0:
            raise UsageError("the prompt is empty and max_new_tokens is 0; give a prompt or ask for new tokens")
        padding_BL = _padding(attention_mask, prompt_BP, max_new_tokens)
        writable_BL = (tokens_BL == mask_id) & ~padding_BL
        positions_BL = ((~padding_BL).cumsum(1) - 1).clamp(min=0) if position_ids is None else position_ids
        if positions_BL.shape != tokens_BL.shape:
            shapes = f"{tuple(positions_BL.shape)}, the canvas {tuple(tokens_BL.shape)}"
            raise UsageError(f"position_ids have the shape {shapes}; they must agree")
        block_BL = _blocks(writable_BL, positions_BL, block_length)
        return cls(tokens_BL, writable_BL, padding_BL, positions_BL, block_BL, mask_id)

    @property
    def masked_BL(self) -> Tensor:
        """Rows still to be filled."""
        return self.writable_BL & (self.tokens_BL == self.mask_id)

    @property
    def time_B(self) -> Tensor:
        """Falls from 1 (nothing written yet) to 0 (nothing masked): the share of the writable rows still masked."""
        return self.time_with(self.masked_BL.sum(1))

    def time_with(self, masks_B: Tensor) -> Tensor:
        """The time at which so many rows are masked."""
        return masks_B / self.writable_BL.sum(1).clamp(min=1)

    @property
    def block_B(self) -> Tensor:
        """The block each batch row is working on: the first with a mask (a huge number when there is none)."""
        return torch.where(self.masked_BL, self.block_BL, _NO_BLOCK).amin(1)

    @property
    def open_BL(self) -> Tensor:
        """Masked rows of the current block: what may be written now."""
        return self.masked_BL & (self.block_BL == self.block_B[:, None])

    def map(self, function: Callable[[Tensor], Tensor]) -> Canvas:
        """The same canvas with a function applied to every (B, L) tensor."""
        tensors: dict[str, Any] = {
            name: function(value) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **tensors)

    def with_tokens(self, tokens_BL: Tensor) -> Canvas:
        """The same canvas holding other tokens (no checks: for denoiser wrappers)."""
        return replace(self, tokens_BL=tokens_BL)

    def to(self, device: torch.device) -> Canvas:
        """The same canvas on another device."""
        return self.map(lambda value_BL: value_BL.to(device))

    def apply(self, move: Move) -> Canvas:
        """The canvas after `move`, or an error that says which rule the move broke."""
        remask_BL = torch.zeros_like(move.write_BL) if move.remask_BL is None else move.remask_BL
        self._check(move, remask_BL)
        tokens_BL = torch.where(move.write_BL, move.tokens_BL, self.tokens_BL)
        return self.with_tokens(torch.where(remask_BL, self.mask_id, tokens_BL))

    def _check(self, move: Move, remask_BL: Tensor) -> None:
        later_BL = self.block_BL > self.block_B[:, None]
        wrong = (
            ("wrote a given or padding row", move.write_BL & ~self.writable_BL),
            ("wrote the mask id", move.write_BL & (move.tokens_BL == self.mask_id)),
            ("wrote in a later block", move.write_BL & later_BL),
            ("masked a row that is given or masked already", remask_BL & (~self.writable_BL | self.masked_BL)),
            ("wrote and masked the same row", move.write_BL & remask_BL),
        )
        broken = torch.stack([bad_BL for _, bad_BL in wrong]).flatten(1).any(1).tolist()
        for (message, bad_BL), is_broken in zip(wrong, broken, strict=True):
            if is_broken:
                row, position = bad_BL.nonzero()[0].tolist()
                raise UsageError(f"the sampler {message} (batch row {row}, position {position})")


def _checked_ids(input_ids: Tensor) -> Tensor:
    not_ids = input_ids.dtype.is_floating_point or input_ids.dtype == torch.bool
    if input_ids.dim() != 2 or (not_ids and input_ids.numel()):
        what = f"a {input_ids.dtype} tensor of shape {tuple(input_ids.shape)}"
        raise UsageError(f"input_ids is {what}; it must be integer ids of shape (batch, length)")
    return input_ids.long()


def _padding(attention_mask: Tensor | None, prompt_BP: Tensor, new: int) -> Tensor:
    if attention_mask is None:
        attention_mask = torch.ones_like(prompt_BP)
    if attention_mask.shape != prompt_BP.shape:
        shapes = f"{tuple(attention_mask.shape)}, input_ids {tuple(prompt_BP.shape)}"
        raise UsageError(f"attention_mask has the shape {shapes}; they must agree")
    padding_BP = attention_mask.to(prompt_BP.device) == 0
    return torch.cat([padding_BP, padding_BP.new_zeros(prompt_BP.shape[0], new)], 1)


def _blocks(writable_BL: Tensor, positions_BL: Tensor, block_length: int | None) -> Tensor:
    whole = isinstance(block_length, int) and not isinstance(block_length, bool)
    if block_length is not None and (not whole or block_length < 1):
        raise UsageError(f"block_length is {block_length!r}; it must be a whole number, 1 or more")
    if block_length is None:
        return torch.zeros_like(positions_BL)
    first_B1 = torch.where(writable_BL, positions_BL, _NO_BLOCK).amin(1, keepdim=True)
    return torch.where(writable_BL, (positions_BL - first_B1) // block_length, -1)
