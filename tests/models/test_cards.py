"""Cards: they fit the checkpoints they are for, their settings work, their ids count where files are silent."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import tabes
from tabes.bench.specs import parse_parameters
from tabes.cli._cards import as_dict, options_of
from tabes.errors import ModelError, UnknownNameError
from tabes.models import Card, card_named, card_of, cards
from tabes.models.cards import Token
from tabes.models.families import family_of
from tabes.models.wheels import wheels
from tests.models.published import GOLDEN

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(folder for folder in GOLDEN.iterdir() if (folder / "config.json").is_file())


def config_of(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "config.json").read_text())
    assert isinstance(found, dict)
    return found


def one(card: Card | None) -> Card:
    assert card is not None
    return card


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_config_finds_the_card_of_the_module_that_opens_it(folder: Path) -> None:
    config = config_of(folder)
    family, card = family_of(config), one(card_of(str(folder), config))
    assert family is not None
    assert family.__name__.rpartition(".")[2] == card.name  # type: ignore[attr-defined]
    assert [each for each in cards() if each.fits(config)] == [card]
    named = config.get("architectures")
    assert named is None or named[0] in {each.name for each in card.architectures}


def test_what_no_card_is_for() -> None:
    assert card_of("x", {}) is None
    assert card_of("x", {"model_type": "llada2_moe", "num_hidden_layers": 2}) is None
    assert card_of("x", {"model_type": "llada", "num_experts": 8, "num_hidden_layers": 2}) is None
    assert card_of("x", {"architectures": None, "model_type": "t5"}) is None


def test_names_of_ours_go_before_configs() -> None:
    bert = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}
    assert one(card_of("sudoku", bert)).name == "sudoku"
    assert one(card_of("./sudoku", bert)).name == "masked-lm"
    # A folder called like a repository may hold something else.
    assert one(card_of("GSAI-ML/LLaDA-8B-Base", bert)).name == "masked-lm"
    for wheel in wheels():
        card = one(card_of(wheel.name, {}))
        assert card.licence == wheel.licence


def test_every_name_finds_its_card() -> None:
    for card in cards():
        for name in (card.name, card.name.upper(), *card.repositories):
            assert card_named(name) is card, name
    cache = "/home/me/.cache/hub/models--GSAI-ML--LLaDA-1.5/snapshots/0123abc"
    for name in ("LLaDA-1.5", "./checkpoints/llada-1.5/", cache, "gsai-ml/LLaDA-1.5"):
        assert card_named(name).repository(name) == "GSAI-ML/LLaDA-1.5"
    for other in ("./LLaDA-1.5-mine", "runs/LLaDA-1.5/checkpoint-500"):
        assert card_named("llada").repository(other) is None
    with pytest.raises(UnknownNameError, match="unknown family of models 'lada'; did you mean llada"):
        card_named("lada")


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
def test_cards_are_whole(card: Card) -> None:
    assert set(card.chats) <= set(card.repositories)
    assert card.note and card.licence and card.end_of_text
    assert bool(card.template) == bool(card.chats)
    tokens = [*card.ends, *filter(None, (card.mask, card.pad))]
    assert not tokens or card.vocabulary
    assert all(token.id < (card.vocabulary or 0) for token in tokens)
    assert all(setting.task and setting.max_new_tokens <= (card.context or 0) for setting in card.settings)
    short = {name.rpartition("/")[2] for name in card.repositories}
    assert {setting.checkpoint for setting in card.settings} <= {"", *short}
    assert json.loads(json.dumps(as_dict(card)))["name"] == card.name


@pytest.mark.parametrize(
    ("name", "mask", "ends", "pad", "context", "shifted"),
    [
        ("llada", 126336, (126081, 126348), 126081, 4096, False),
        ("dream", 151666, (151643, 151645), 151643, 2048, True),
        ("mdlm", 50257, (50256,), None, 1024, False),
        ("sedd", 50257, (50256,), None, 1024, False),
    ],
)
def test_published_ids(
    name: str, mask: int, ends: tuple[int, ...], pad: int | None, context: int, shifted: bool
) -> None:
    card = card_named(name)
    assert card.mask is not None
    assert (card.mask.id, tuple(end.id for end in card.ends), card.pad and card.pad.id) == (mask, ends, pad)
    assert (card.context, card.shifted) == (context, shifted)


@pytest.mark.parametrize("setting", [each for card in cards() for each in card.settings], ids=lambda each: each.task)
def test_settings_are_samplers_and_options_say_the_same(setting: Any) -> None:
    rule = tabes.sampler(setting.sampler, **setting.parameters)
    words = shlex.split(options_of(setting))
    given = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    steps = {"num_steps": int(words[words.index("--num-steps") + 1])} if "--num-steps" in words else {}
    assert tabes.sampler(words[1], **(steps | parse_parameters(given, "--set"))) == rule


SIZED = Card(
    *("tiny", "a family", "MIT", "nothing", "nothing", "here"),
    vocabulary=67,
    mask=Token("<hole>", 60),
    ends=(Token("w61", 61), Token("<|end|>", 62)),
    pad=Token("w63", 63),
)


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint without a tokenizer whose config names no id, of a family with a card."""
    golden = GOLDEN.parent / "samplers" / "denoiser"
    folder = Path(shutil.copytree(golden, tmp_path / "silent"))
    for path in folder.glob("*token*"):
        path.unlink()
    config = {name: value for name, value in config_of(folder).items() if not name.endswith("token_id")}
    (folder / "config.json").write_text(json.dumps(config | {"pad_token_id": None}))
    monkeypatch.setattr("tabes.loading.card_of", lambda name, config: SIZED)
    return folder


def test_the_card_names_what_files_do_not(silent: Path) -> None:
    model = tabes.load(silent)
    assert (model.mask_id, model.eos_ids, model.pad_id) == (60, (61, 62), 63)
    assert model.card is SIZED
    assert tabes.load(silent, mask_token_id=5).mask_id == 5


def test_ids_of_another_vocabulary_do_not_count(silent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    other = replace(SIZED, vocabulary=68)
    monkeypatch.setattr("tabes.loading.card_of", lambda name, config: other)
    with pytest.raises(ModelError, match="no mask token in its tokenizer or config; pass mask_token_id="):
        tabes.load(silent)
    model = tabes.load(silent, mask_token_id=5)
    assert (model.eos_ids, model.pad_id) == ((), None)


def test_a_tokenizer_knows_best(silent: Path, words: PreTrainedTokenizerFast) -> None:
    words = PreTrainedTokenizerFast(tokenizer_object=words.backend_tokenizer, mask_token="[MASK]", eos_token="w64")
    words.add_special_tokens({"additional_special_tokens": ["w61"]})
    model = tabes.load(silent, tokenizer=words)
    # The end the tokenizer names, and of the card's those it can write.
    assert (model.mask_id, model.eos_ids) == (66, (64, 61))


def test_end_of_turn_ends_a_text_of_llada(tmp_path: Path) -> None:
    """The published tokenizer and config name <|endoftext|> alone."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = Path(shutil.copytree(GOLDEN / "llada", tmp_path / "LLaDA-8B-Instruct"))
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(140)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")
    fast.add_special_tokens({"additional_special_tokens": [f"<|reserved_{i}|>" for i in range(7)] + ["<|eot_id|>"]})
    assert fast.convert_tokens_to_ids(["<|endoftext|>", "<|eot_id|>"]) == [140, 148]
    fast.save_pretrained(folder)
    model = tabes.load(folder)
    assert (model.mask_id, model.eos_ids, model.pad_id) == (150, (140, 148), 140)
    assert one(model.card).repository(model.name) == "GSAI-ML/LLaDA-8B-Instruct"


def test_models_in_memory_have_cards_too() -> None:
    from tests.tiny import FAMILIES

    assert one(tabes.load(FAMILIES["bert"].build(), mask_token_id=1).card).name == "masked-lm"
    assert one(tabes.load(FAMILIES["llama"].build(), mask_token_id=1).card).name == "decoder"


@pytest.mark.parametrize("card", cards(), ids=lambda card: card.name)
def test_pages_exist(card: Card) -> None:
    assert (ROOT / card.page).is_file(), card.page
