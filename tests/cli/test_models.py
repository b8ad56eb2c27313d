"""`tabes models`: the families in one line each, and one whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tabes.cli._cards import as_dict
from tabes.models import card_named, cards
from tests.cli.conftest import Outcome
from tests.models.published import GOLDEN

Command = Callable[..., Outcome]


def test_all_about_one(command: Command) -> None:
    text = command("models", "llada").out
    words = ("126336", "126348", "GSAI-ML/LLaDA-1.5", "MIT", "4096", "--block-length 8", "--suppress 126081")
    assert all(word in text for word in words)
    assert command("models", "Dream-org/Dream-v0-Instruct-7B").out.startswith("dream\n")
    assert command("models", GOLDEN / "sedd_absorb").out.startswith("sedd\n")


def test_machines_get_the_template_and_the_options_too(command: Command) -> None:
    found = command("models", "llada", "--json").json
    assert found == json.loads(json.dumps(as_dict(card_named("llada"))))
    assert "<|start_header_id|>" in found["template"]
    assert found["settings"][0]["options"].startswith("-s confidence -n 128")
    assert found["mask"] == {"id": 126336, "text": "<|mdm_mask|>"}
    assert found in command("models", "--json").json["families"]


def test_every_family_has_a_line(command: Command) -> None:
    text = command("models").out
    assert all(f"\n  {card.name} " in text for card in cards())


def test_what_it_does_not_know(command: Command, tmp_path: Path) -> None:
    assert command("models", "lada").is_refusal("unknown family of models 'lada'", "llada")
    for config in ("[]", "{}", "{"):
        (tmp_path / "config.json").write_text(config)
        assert command("models", tmp_path).is_refusal("is of no family with a card")
    assert command("models", "llada", "--fetch", "rxnmapper").is_refusal("--fetch takes the name itself")
