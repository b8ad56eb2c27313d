"""The published masked language model of chemical reactions, turned into a folder that `tabes.load` takes.

The weights are rxnmapper's (MIT): an ALBERT, trained on reactions written as SMILES. Its folder was saved by a
transformers of years ago: an old config, and a vocabulary without a tokenizer that reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from tabes.errors import ModelError
from tabes.models.guard import check_complete, check_folder, explained, quiet
from tabes.tasks.smiles import is_special, read_vocabulary, smiles_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = ["reaction_model"]

# Far below any real logit, its softmax exactly 0 in float32, and still finite in float16.
_NEVER: Final = -1e4


def reaction_model(weights: str | Path, out: str | Path) -> Path:
    """Convert a folder with `config.json`, weights and `vocab.txt`; returns `out`.

    The model was never taught not to write marks ([CLS], [SEP], [PAD], ...) and unused places of its vocabulary where
    an atom belongs. The output bias of these tokens is set to -1e4 in the converted weights, so that whatever decodes
    the model gives them probability 0; every other logit is the published one, and the inputs are untouched.
    """
    source, folder = Path(weights), Path(out)
    vocabulary = read_vocabulary(source / "vocab.txt")
    model = _open(source)
    if len(vocabulary) != model.config.vocab_size:
        raise ModelError(f"{source} has {len(vocabulary)} tokens but its model scores {model.config.vocab_size}")
    _forbid(model, [i for token, i in vocabulary.items() if is_special(token)])
    with quiet():
        smiles_tokenizer(source / "vocab.txt", model.config.max_position_embeddings).save_pretrained(folder)
        model.save_pretrained(folder)
    return folder


def _open(source: Path) -> PreTrainedModel:
    from transformers import AutoModelForMaskedLM

    check_folder(source)
    with quiet(), explained(str(source)):
        loaded: Any = AutoModelForMaskedLM.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    model: PreTrainedModel = loaded[0]
    check_complete(model, loaded[1], str(source))
    # The old config gives a start and an end id that mean other tokens in this vocabulary.
    model.config.bos_token_id = model.config.eos_token_id = None
    return model


def _forbid(model: PreTrainedModel, ids: list[int]) -> None:
    bias_V = getattr(model.get_output_embeddings(), "bias", None)  # type: ignore[no-untyped-call]
    if not isinstance(bias_V, torch.Tensor):
        raise ModelError(f"{type(model).__name__} has no output bias, which is where special tokens are forbidden")
    with torch.no_grad():
        bias_V[ids] = _NEVER
