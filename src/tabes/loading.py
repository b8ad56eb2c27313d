"""`tabes.load`: a name, a folder or a model in memory becomes a Denoiser."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tabes import bundled
from tabes.denoiser import Denoiser
from tabes.errors import ModelError, UnknownNameError, UsageError
from tabes.models.cards import card_of
from tabes.models.wheels import find_wheel, wheels

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from tabes.models.cards import Card, Token
    from tabes.models.network import Network

__all__ = ["load"]


def load(
    name_or_path_or_model: str | Path | PreTrainedModel | Network,
    *,
    tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: Any = None,
    revision: str | None = None,
    mask_token_id: int | None = None,
) -> Denoiser:
    """A masked diffusion model ready to decode.

    Takes the name of a bundled model ("sudoku"), of a package with trained weights in it ("rxnmapper"; `tabes models`
    lists them), of a hub repository, a local folder, or a model already loaded (which is put into evaluation mode,
    frozen, and given our attention function). The mask, pad and end ids come from the tokenizer, else from the config,
    else from the family's card (`tabes models`); `mask_token_id` overrides.
    """
    network, found, stored = _opened(
        name_or_path_or_model, dtype=dtype, device=device, device_map=device_map, revision=revision
    )
    if isinstance(tokenizer, str | Path):
        from tabes.models.loading import open_tokenizer

        found = open_tokenizer(tokenizer)
    elif tokenizer is not None:
        found = tokenizer
    config = getattr(network, "config", None)
    name = str(name_or_path_or_model) if isinstance(name_or_path_or_model, str | Path) else network.name
    card = card_of(name, stored)
    known = card if card is not None and card.vocabulary == network.vocab_size else None
    mask_id = _mask_id(name, found, config, known, mask_token_id)
    return Denoiser(
        network=network,
        tokenizer=_with_mask(found, mask_id),
        mask_id=mask_id,
        pad_id=_id(found, config, "pad_token_id", None if known is None else known.pad),
        eos_ids=_end_ids(found, config, () if card is None else card.ends, known is not None),
        name=name,
        card=card,
    )


def _opened(source: Any, **options: Any) -> tuple[Network, Any, Mapping[str, Any]]:
    """The network, its tokenizer and its config. A name is first one of ours, then a folder's or a repository's."""
    from tabes.models.families.checkpoint import Checkpoint
    from tabes.models.loading import open_network

    wheel = find_wheel(source) if isinstance(source, str) else None
    if wheel is not None:
        from tabes.models.wheels.opening import open_wheel

        return *open_wheel(wheel, **options), {}
    if isinstance(source, str):
        source = bundled.folder(source) or _not_misspelled(source)
    network, tokenizer = open_network(source, **options)
    checkpoint = Checkpoint.find(str(source), options["revision"]) if isinstance(source, str | Path) else None
    return network, tokenizer, _in_memory(network) if checkpoint is None else checkpoint.config


def _in_memory(network: Network) -> Mapping[str, Any]:
    """What a config would say of a transformers model that came as an object."""
    model = getattr(getattr(network, "backbone", None), "model", None)
    return {} if model is None else {"architectures": [type(model).__name__]}


def _not_misspelled(name: str) -> str:
    """The name, unless it is nearly one of ours: asking the hub for it would take long and say little."""
    ours = {"bundled model": bundled.names(), "package with a model": tuple(wheel.name for wheel in wheels())}
    for kind, names in ours.items():
        if "/" not in name and not Path(name).exists() and get_close_matches(name, names, cutoff=0.8):
            raise UnknownNameError(kind, name, names)
    return name


def _mask_id(name: str, tokenizer: Any, config: Any, card: Card | None, given: int | None) -> int:
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int):
            raise UsageError(f"mask_token_id is {given!r}; give an integer id")
        return given
    mask_id = _id(tokenizer, config, "mask_token_id", None if card is None else card.mask)
    if mask_id is None:
        raise ModelError(f"{name} has no mask token in its tokenizer or config; pass mask_token_id=")
    _check_mask(name, mask_id, tokenizer, config)
    return mask_id


def _check_mask(name: str, mask_id: int, tokenizer: Any, config: Any) -> None:
    """A tokenizer of another model would have the wrong rows filled, without a word."""
    said = _id(None, config, "mask_token_id")
    if said is not None and said != mask_id:
        raise ModelError(
            f"the tokenizer says the mask of {name} is {mask_id}, its config says {said}: give the tokenizer that "
            "belongs to it, or pass mask_token_id="
        )
    for role in ("pad", "eos", "bos", "unk"):
        if getattr(tokenizer, f"{role}_token_id", None) == mask_id:
            raise ModelError(
                f"the tokenizer's {role} token has the id {mask_id}, which is the mask of {name}: give a tokenizer "
                "without it, or pass mask_token_id="
            )


def _with_mask(tokenizer: Any, mask_id: int) -> Any:
    """A tokenizer that can tell how the mask is written, if it has a token for it (LLaDA's does not say which).

    One whose ids end where the mask id begins (GPT-2's, for MDLM and SEDD) learns to write it [MASK].
    """
    if tokenizer is None or _id(tokenizer, None, "mask_token_id") is not None or len(tokenizer) < mask_id:
        return tokenizer
    written = {i: text for text, i in tokenizer.get_added_vocab().items()}.get(mask_id)
    if written is None and len(tokenizer) != mask_id:
        return tokenizer
    taught = deepcopy(tokenizer)
    taught.add_special_tokens({"mask_token": written or "[MASK]"})
    return taught if taught.mask_token_id == mask_id else tokenizer


def _id(tokenizer: Any, config: Any, name: str, otherwise: Token | None = None) -> int | None:
    for source in (tokenizer, config):
        value = getattr(source, name, None)
        if isinstance(value, int):
            return value
    return None if otherwise is None else otherwise.id


def _end_ids(tokenizer: Any, config: Any, ends: tuple[Token, ...], has_ids: bool) -> tuple[int, ...]:
    """What tokenizer and config call the end of a text, and what the family ends its texts with besides."""
    found: list[int] = []
    for source in (tokenizer, config):
        value = getattr(source, "eos_token_id", None)
        found += [value] if isinstance(value, int) else value if isinstance(value, list) else []
    written = {} if tokenizer is None or not ends else tokenizer.get_added_vocab()
    for end in ends:
        # A tokenizer knows best; without it ids hold for the published vocabulary only.
        found += [written[end.text]] if end.text in written else [end.id] if has_ids and not written else []
    return tuple(dict.fromkeys(found))
