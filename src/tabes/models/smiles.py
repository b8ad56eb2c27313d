"""SMILES, the line notation of chemistry, cut into tokens: for counting and masking, and for a model to read.

Both ways use one expression. Atoms in brackets (with charge, isotope, chirality) are one token, and so are atoms of two
letters, ring numbers of two digits and the arrow `>>` between reactants and products; anything else is one character.
The expression is the one in common use since Schwaller et al., "Molecular Transformer" (1811.02633).
"""

from __future__ import annotations

import re
from typing import Final

from tabes.errors import UsageError

__all__ = ["MASK", "SMILES", "smiles_tokens"]

MASK: Final = "[MASK]"  # looks like an atom in brackets, so a hole in a text is one token like any other
SMILES: Final = r"\[[^\[\]]+\]|Br?|Cl?|[NOSPFIbcnosp]|%[0-9]{2}|>>?|[0-9().=#\-+\\/:~@?*$]"


def smiles_tokens(text: str) -> tuple[str, ...]:
    """The tokens of a molecule or reaction; together they are the text again, or it is no SMILES."""
    tokens = tuple(re.findall(SMILES, text))
    if "".join(tokens) != text:
        raise UsageError(f"{text!r:.80} is no SMILES: it has characters that are no atom, bond, bracket or ring number")
    return tokens
