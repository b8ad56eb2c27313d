"""A model of antibodies (97 MB, so only `make test-all` fetches it): another vocabulary, another field."""

from __future__ import annotations

import pytest

import tabes
from tests.real.conftest import known

pytestmark = pytest.mark.large

# The variable part of trastuzumab's heavy chain, as published.
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRY"
    "ADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
)
FRAMEWORK = range(25)  # the first part of it, nearly the same in all antibodies of this kind


@pytest.fixture(scope="module")
def model() -> tabes.Denoiser:
    known("antiberty")
    return tabes.load("antiberty")


def test_every_residue_is_a_token(model: tabes.Denoiser) -> None:
    tokenizer = model.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode(HEAVY[:3] + "[MASK]" + "X")
    assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", *HEAVY[:3], "[MASK]", "[UNK]", "[SEP]"]
    assert tokenizer.decode(tokenizer.encode(HEAVY), skip_special_tokens=True) == HEAVY


@pytest.mark.parametrize("sampler", ["confidence", "boe", "lookahead"])
def test_what_antibodies_share_is_filled_in(model: tabes.Denoiser, sampler: str) -> None:
    prompt = "".join("[MASK]" if at in FRAMEWORK and at % 2 else residue for at, residue in enumerate(HEAVY))
    (text,) = tabes.generate(model, prompt, sampler=sampler).texts or ()
    holes = [at for at in FRAMEWORK if at % 2]
    assert len(text) == len(HEAVY)
    assert sum(text[at] == HEAVY[at] for at in holes) >= len(holes) - 2
