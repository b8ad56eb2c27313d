"""The training objective: the negative ELBO of a masked diffusion model (the paper's eq. 5), in two equal forms.

A schedule alpha(t) falls from 1 to 0; at time t each token is masked on its own with probability 1 - alpha(t). Then

    NELBO = E_t [ w(t) * sum over masked rows of -log p(x_row | what is seen) ],   w(t) = -alpha'(t) / (1 - alpha(t)).

`mask_by_time` is that definition. Its variance is poor: near t = 0 a rare mask meets a huge weight. Given how many of L
tokens are masked, their positions are uniform, and integrating w(t) over t leaves the weight 1 / n for n masked
tokens *whatever the schedule*. So `mask_by_count` draws n uniformly from 1..L and weighs by L / n: the same mean,
a fraction of the noise. A test holds the two against each other.

Legend: B batch, L rows of the canvas, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tabes.schedules import Schedule

__all__ = ["Masking", "mask_by_count", "mask_by_time", "nelbo", "paired_error"]


@dataclass(frozen=True)
class Masking:
    """Which rows are hidden, (B, L) bool, and what a masked row's cross-entropy counts for, (B,)."""

    hidden: Tensor
    weight: Tensor


def mask_by_count(tokens_BL: Tensor, generator: torch.Generator) -> Masking:
    """Draw the *number* of masks uniformly from 1..L, spread evenly over the batch, and the rows at random."""
    batch, length = tokens_BL.shape
    spread_B = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
    count_B = 1 + (spread_B * length).long().clamp(max=length - 1)
    rank_BL = torch.rand(batch, length, generator=generator).argsort(1).argsort(1)
    return Masking(rank_BL < count_B[:, None], length / count_B)


def mask_by_time(tokens_BL: Tensor, schedule: Schedule, generator: torch.Generator) -> Masking:
    """The definition: a time for each sequence, then each row on its own. For tests and for other schedules."""
    batch, length = tokens_BL.shape
    t_B = ((torch.arange(batch) + torch.rand(batch, generator=generator, dtype=torch.float64)) / batch).clamp_min(1e-9)
    hidden_BL = torch.rand(batch, length, generator=generator, dtype=torch.float64) >= schedule.alpha(t_B)[:, None]
    return Masking(hidden_BL, schedule.weight(t_B))


def nelbo(logits_BLV: Tensor, tokens_BL: Tensor, masking: Masking) -> Tensor:
    """One estimate of the negative ELBO of each sequence in nats, (B,); divide by L for nats per token."""
    flat = functional.cross_entropy(logits_BLV.float().flatten(0, 1), tokens_BL.flatten(), reduction="none")
    return (flat.view_as(tokens_BL) * masking.hidden).sum(1) * masking.weight


def paired_error(losses_N: Tensor) -> float:
    """The standard error of the mean of losses drawn by `mask_by_count` in their order.

    The counts rise steadily through a batch, so neighbours share theirs: their differences hold the noise that is left
    after stratifying, where the plain standard deviation would also hold the spread *between* counts.
    """
    pairs = losses_N[: len(losses_N) // 2 * 2].double().view(-1, 2)
    return float((pairs[:, 0] - pairs[:, 1]).square().sum().sqrt() / pairs.numel())
