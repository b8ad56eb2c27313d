"""Our decoding behind transformers' `generate`:

    from tabes.interop.transformers import generate
    ids = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=64, custom_generate=generate,
                         sampler="boe", num_steps=32)

transformers prepares ids, padding, lengths and end tokens; what it prepared that means nothing for a canvas filled in
any order is refused. Shapes: B batch rows, P prompt rows, L canvas rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.utils.generic import ModelOutput

import tabes
from tabes.attention import registered
from tabes.decoding import Step
from tabes.denoiser import Denoiser
from tabes.errors import UsageError
from tabes.interop.meaningless import check, check_positions
from tabes.presets import sampler as make_sampler
from tabes.sampling import Sampler
from tabes.stop import Stop, as_stop

__all__ = ["Generated", "generate"]

_KEPT = "_tabes_denoiser"


@dataclass
class Generated(ModelOutput):
    """What `generate` returns with return_dict_in_generate=True: the ids, every step, and what they cost."""

    sequences: Tensor | None = None
    steps: tuple[Step, ...] | None = None
    cost: Any = None


def generate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: Sequence[Any] = (),
    stopping_criteria: Sequence[Any] = (),
    generation_config: GenerationConfig | None = None,
    synced_gpus: bool = False,
    streamer: Any = None,
    *,
    sampler: str | Sampler = "boe",
    parameters: dict[str, Any] | None = None,
    num_steps: int | None = None,
    block_length: int | None = None,
    cfg_scale: float = 0.0,
    suppress: int | Literal["end"] | Iterable[int | Literal["end"]] | None = None,
    stop: Stop | int | Iterable[int] | None = None,
    seed: int | Sequence[int] | None = None,
    mask_token_id: int | None = None,
    stream_to: Any = None,
    **model_kwargs: Any,
) -> Tensor | Generated:
    """The ids (B, L): prompt, then `max_new_tokens` more, padding after the first end token.

    Our arguments are those of `tabes.generate`; `parameters` are further ones of a sampler given by name. With
    do_sample=True tokens are drawn by the config's temperature, top_p and top_k; without, the sampler decides.
    `stream_to` takes what `streamer` is elsewhere, which transformers does not hand on.
    """
    if generation_config is None:
        raise UsageError("generation_config is None: call model.generate(..., custom_generate=generate)")
    check(generation_config, logits_processor, stopping_criteria, synced_gpus, model_kwargs)
    attention_mask = model_kwargs.get("attention_mask")
    check_positions(input_ids, attention_mask, model_kwargs.get("position_ids"))
    drawn = _drawn(generation_config) | {"num_steps": num_steps}
    rule = _sampler(sampler, drawn, parameters or {})
    with _borrowed(model, generation_config, mask_token_id) as denoiser:
        output = tabes.generate(
            denoiser,
            input_ids=input_ids,
            attention_mask=attention_mask,
            sampler=rule,
            max_new_tokens=_length(generation_config) - input_ids.shape[1],
            block_length=block_length,
            cfg_scale=cfg_scale,
            suppress=suppress,
            stop=_stop(stop, denoiser.eos_ids),
            seed=_seed() if seed is None else seed,
            streamer=streamer if stream_to is None else stream_to,
        )
    new_from = input_ids.shape[1]
    sequences_BL = _ended(output.sequences, new_from, denoiser).to(input_ids.device)
    if not generation_config.return_dict_in_generate:
        return sequences_BL
    return Generated(sequences=sequences_BL, steps=output.steps, cost=output.cost)


@contextmanager
def _borrowed(model: PreTrainedModel, config: GenerationConfig, mask_token_id: int | None) -> Iterator[Denoiser]:
    """The model as we need it: in evaluation mode, frozen, with our attention; afterwards it is as it was."""
    attention = model.config._attn_implementation
    training = [part for part in model.modules() if part.training]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        yield _denoiser(model, config, mask_token_id)
    finally:
        for part in training:
            part.training = True
        for parameter in trained:
            parameter.requires_grad_(True)
        model.set_attn_implementation(attention)


def _denoiser(model: PreTrainedModel, config: GenerationConfig, mask_token_id: int | None) -> Denoiser:
    """Opened at the first call, where all weights are read to check them, and kept with the model."""
    mask_id = getattr(config, "mask_token_id", None) if mask_token_id is None else mask_token_id
    kept: Denoiser | None = model.__dict__.get(_KEPT)
    if kept is None or (mask_id is not None and mask_id != kept.mask_id):
        kept = tabes.load(model, mask_token_id=mask_id)
        model.__dict__[_KEPT] = kept
    model.train(False).requires_grad_(False)
    if kept.network.replays:
        model.set_attn_implementation(registered.NAME)
    end = config.eos_token_id
    ends = () if end is None else tuple(end) if isinstance(end, list | tuple) else (end,)
    return Denoiser(kept.network, None, kept.mask_id, config.pad_token_id, ends, kept.name)


def _drawn(config: GenerationConfig) -> dict[str, Any]:
    """How tokens are chosen. None leaves it to the sampler, which for most takes the most probable one."""
    if not config.do_sample:
        return {"temperature": None, "top_p": None, "top_k": None}
    return {
        "temperature": 1.0 if config.temperature is None else config.temperature,
        "top_p": config.top_p if config.top_p is not None and config.top_p < 1 else None,
        "top_k": config.top_k or None,
    }


def _sampler(sampler: str | Sampler, drawn: dict[str, Any], parameters: dict[str, Any]) -> Sampler:
    if isinstance(sampler, str):
        return make_sampler(sampler, **{**drawn, **parameters})
    given = {name: value for name, value in (drawn | parameters).items() if value is not None}
    for name, value in given.items():
        raise UsageError(f"{name}={value} was given besides a ready-made sampler; pass it to tabes.sampler(...)")
    return sampler


def _length(config: GenerationConfig) -> int:
    if not isinstance(config.max_length, int):
        raise UsageError("neither max_new_tokens nor max_length was given")
    return config.max_length


def _stop(stop: Stop | int | Iterable[int] | None, end_ids: tuple[int, ...]) -> Stop | None:
    """The end tokens stop a row, as everywhere in transformers, besides what was asked for."""
    found = as_stop(stop, None) or Stop()
    ids = tuple(dict.fromkeys((*found.ids, *end_ids)))
    return Stop(ids, found.strings, found.tokenizer) if ids or found.strings else None


def _ended(sequences_BL: Tensor, new_from: int, denoiser: Denoiser) -> Tensor:
    """Padding behind the first end token of what is new: there may be tokens that were written before it."""
    if not denoiser.eos_ids or denoiser.pad_id is None:
        return sequences_BL
    ends_BL = torch.isin(sequences_BL, torch.tensor(denoiser.eos_ids))
    ends_BL[:, :new_from] = False
    behind_BL = ends_BL.cumsum(1) - ends_BL.long() > 0
    return torch.where(behind_BL, denoiser.pad_id, sequences_BL)


def _seed() -> int:
    """From torch's own generator, so that `transformers.set_seed` repeats what is drawn."""
    return int(torch.randint(1 << 62, (1,)))
