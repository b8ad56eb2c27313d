"""SMILES, the line notation of chemistry, cut into tokens: for counting and masking, and for a model to read.

Both ways use one expression. Atoms in brackets (with charge, isotope, chirality) are one token, and so are atoms of two
letters, ring numbers of two digits and the arrow `>>` between reactants and products; anything else is one character.
The expression is the one in common use since Schwaller et al., "Molecular Transformer" (1811.02633).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tabes.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["MASK", "is_special", "read_vocabulary", "smiles_tokenizer", "smiles_tokens"]

MASK: Final = "[MASK]"  # looks like an atom in brackets, so a hole in a text is one token like any other

_TOKEN: Final = r"\[[^\[\]]+\]|Br?|Cl?|[NOSPFIbcnosp]|%[0-9]{2}|>>?|[0-9().=#\-+\\/:~@?*$]"
_SPECIAL: Final = {
    "mask_token": MASK,
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}


def smiles_tokens(text: str) -> tuple[str, ...]:
    """The tokens of a molecule or reaction; together they are the text again, or it is no SMILES."""
    tokens = tuple(re.findall(_TOKEN, text))
    if "".join(tokens) != text:
        raise UsageError(f"{text!r:.80} is no SMILES: it has characters that are no atom, bond, bracket or ring number")
    return tokens


def is_special(token: str) -> bool:
    """Whether a vocabulary's entry stands for no piece of a molecule: a mark of the model, or a place never used."""
    return token in _SPECIAL.values() or token.startswith("[unused")


def read_vocabulary(vocab_file: str | Path) -> dict[str, int]:
    """Ids by token from a file with one token a line, as BERT's `vocab.txt`."""
    try:
        lines = Path(vocab_file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the vocabulary {vocab_file} cannot be read ({error}); give a file of one token a line"
        ) from None
    vocabulary = {token: i for i, token in enumerate(lines)}
    missing = sorted(set(_SPECIAL.values()) - vocabulary.keys())
    if missing:
        raise UsageError(
            f"the vocabulary {vocab_file} lacks {', '.join(missing)}; give one with all the special tokens"
        )
    return vocabulary


def smiles_tokenizer(vocab_file: str | Path, max_length: int = 512) -> PreTrainedTokenizerFast:
    """A tokenizer that writes `[CLS] reaction [SEP]`, one id per token of `smiles_tokens`.

    Made from the parts because `BertTokenizer(vocab_file=...)` of transformers 5 ignores the file without a word. What
    the expression does not know becomes [UNK] rather than vanish. The decoder puts nothing between the tokens, so that
    a decoded text is SMILES again and can be compared token by token.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = read_vocabulary(vocab_file)
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_TOKEN), "isolated")
    tokenizer.decoder = decoders.Fuse()
    around = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=max_length, **_SPECIAL
    )
