"""Tokenizers of models whose vocabulary is a plain list: one token a line, as BERT's `vocab.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from tabes.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["is_special", "list_tokenizer", "read_vocabulary"]

_SPECIAL: Final = {
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "unk_token": "[UNK]",
}


def is_special(token: str) -> bool:
    """Whether an entry stands for no piece of a text: a mark of the model, or a place never used."""
    return token in _SPECIAL.values() or token.startswith("[unused")


def read_vocabulary(vocab_file: str | Path) -> dict[str, int]:
    """Ids by token."""
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


def list_tokenizer(vocabulary: dict[str, int], pattern: str, max_length: int = 512) -> PreTrainedTokenizerFast:
    """A tokenizer that writes `[CLS] text [SEP]`, one id for each match of the expression `pattern`.

    Made from the parts because `BertTokenizer(vocab_file=...)` of transformers 5 ignores the file without a word. What
    the expression or the vocabulary does not know becomes [UNK] rather than vanish. The decoder puts nothing between
    the tokens, so that a decoded text can be compared with the original token by token.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    around = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=around)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=max_length, **_SPECIAL
    )
