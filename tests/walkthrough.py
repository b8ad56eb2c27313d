"""Folders as they are published, with every name, id and layer of the 7B and 8B models, and little else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tests.decoders import Decoder

LLADA = Decoder(
    "llada",
    {"width": 64, "layers": 32, "heads": 4, "key_heads": 4, "mlp": 96, "vocab": 126464, "length": 4096},
    {"mask": 126336, "end": 126081},
)
DREAM = Decoder(
    "dream",
    {"width": 56, "layers": 28, "heads": 4, "key_heads": 2, "mlp": 96, "vocab": 152064, "length": 131072},
    {"mask": 151666, "end": 151643},
)
_LLADA_ADDED = {
    126080: "<|startoftext|>",
    126081: "<|endoftext|>",
    126336: "<|mdm_mask|>",
    126346: "<|start_header_id|>",
    126347: "<|end_header_id|>",
    126348: "<|eot_id|>",
}
_DREAM_ADDED = {
    151643: "<|endoftext|>",
    151644: "<|im_start|>",
    151645: "<|im_end|>",
    151665: "<|beginoftext|>",
    151666: "<|mask|>",
}


def llada_folder(folder: Path) -> Path:
    """The mask is a special token among others; no field of the tokenizer names it."""
    LLADA.save(folder, torch.bfloat16, shards=6)
    tokenizer = Tokenizer(models.BPE(vocab=_pieces(126080), merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([_LLADA_ADDED.get(i, f"<|reserved_token_{i}|>") for i in range(126080, 126349)])
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    _write(folder / "special_tokens_map.json", special)
    _write(
        folder / "tokenizer_config.json",
        {
            **special,
            "add_bos_token": False,
            "add_eos_token": False,
            "clean_up_tokenization_spaces": False,
            "fast_tokenizer": True,
            "model_max_length": 1000000000000000019884624838656,
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )
    return folder


def dream_folder(folder: Path) -> Path:
    """Its tokenizer's class is in a file of its own, which nobody runs."""
    DREAM.save(folder, torch.bfloat16, shards=4)
    _write(folder / "vocab.json", _pieces(151643))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    added = {i: _DREAM_ADDED.get(i, f"<|extra_{i}|>") for i in range(151643, 151667)}
    kind = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    special = {
        "bos_token": "<|beginoftext|>",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "mask_token": "<|mask|>",
    }
    _write(folder / "added_tokens.json", {text: i for i, text in added.items()})
    _write(folder / "special_tokens_map.json", special)
    _write(
        folder / "tokenizer_config.json",
        {
            **special,
            "added_tokens_decoder": {str(i): {"content": text, **kind} for i, text in added.items()},
            "additional_special_tokens": ["<|beginoftext|>", "<|mask|>"],
            "add_prefix_space": False,
            "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
            "errors": "replace",
            "model_max_length": 131072,
            "tokenizer_class": "DreamTokenizer",
            "unk_token": None,
        },
    )
    _write(folder / "generation_config.json", {"_from_model_config": True, "eos_token_id": 151643})
    (folder / "tokenization_dream.py").write_text('raise RuntimeError("remote code was run")\n')
    (folder / "modeling_dream.py").write_text('raise RuntimeError("remote code was run")\n')
    (folder / "configuration_dream.py").write_text('raise RuntimeError("remote code was run")\n')
    return folder


def _pieces(count: int) -> dict[str, int]:
    """All bytes, then pieces that no text has."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    return {piece: i for i, piece in enumerate([*letters, *(f"piece{i}" for i in range(len(letters), count))])}


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
