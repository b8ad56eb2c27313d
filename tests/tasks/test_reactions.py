"""Reaction completion: which reactions, which masks, what counts. The reactions are made up, their SMILES valid."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tabes.errors import UsageError
from tabes.models.smiles import MASK, smiles_tokens
from tabes.tasks import TASKS, Item, ReactionTask, Task

RINGS = (
    "CCO",
    "c1ccccc1",
    "C%12CCCCC%12",
    "[O-][N+](=O)c1ccccc1",
    "ClCCBr",
    "C/C=C\\C",
    "F[C@@H](Cl)Br",
    "[Na+].[Cl-]",
)
REACTIONS = [f"{a}.{b}>>{a}{'C' * length}O" for a, b, length in product(RINGS, RINGS, (1, 2, 3, 4, 5))]  # 320


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, REACTIONS)


def write(folder: Path, reactions: list[str], column: str = "rxn") -> Path:
    path = folder / "reactions.csv"
    path.write_text("\n".join([f",{column}", *(f"{i},{text}" for i, text in enumerate(reactions))]))
    return path


def filled(item: Item) -> str:
    return item.prompt.partition(">>")[0] + ">>" + item.answer


def holes(item: Item) -> list[int]:
    tokens = smiles_tokens(item.prompt.partition(">>")[2])
    return [at for at, token in enumerate(tokens) if token == MASK]


def test_tokens_are_atoms_bonds_and_rings() -> None:
    assert smiles_tokens("ClCBr") == ("Cl", "C", "Br")
    assert smiles_tokens("C%12[C@@H]1>>[MASK]c") == ("C", "%12", "[C@@H]", "1", ">>", "[MASK]", "c")
    assert all("".join(smiles_tokens(reaction)) == reaction for reaction in REACTIONS)


@pytest.mark.parametrize("text", ["C C", "Xe", "C[", "C%1", "[C[N]]"])
def test_what_is_no_smiles_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no SMILES"):
        smiles_tokens(text)


def test_the_task_is_built_by_name(path: Path) -> None:
    task: Task = TASKS.build("reactions", path=path, share=0.5)
    assert task == ReactionTask(path, share=0.5)
    with pytest.raises(UsageError, match="path"):
        TASKS.build("reactions")


def test_splits_share_no_reaction_whatever_the_seed(path: Path) -> None:
    tuning, reporting, every = (
        [filled(item) for item in ReactionTask(path, split=split).items(count, seed=3)]
        for split, count in (("tuning", 246), ("reporting", 74), ("all", 320))
    )
    assert not set(tuning) & set(reporting)
    assert tuning + reporting == every and sorted(every) == sorted(REACTIONS)
    assert every != REACTIONS
    assert [filled(item) for item in ReactionTask(path, split="tuning").items(246, seed=4)] == tuning


def test_masks_hang_on_seed_and_draw(path: Path) -> None:
    first = ReactionTask(path).items(74, seed=0)
    assert ReactionTask(path).items(74, seed=0) == first
    assert ReactionTask(path).items(5, seed=0) == first[:5]
    assert ReactionTask(path, split="all").items(320, seed=0)[246:] == first
    for other in (ReactionTask(path).items(74, seed=1), ReactionTask(path, draw=1).items(74, seed=0)):
        assert [item.answer for item in other] == [item.answer for item in first]
        assert sum(a.prompt != b.prompt for a, b in zip(first, other, strict=True)) > 50


def test_several_draws_follow_each_other(path: Path) -> None:
    draws = ReactionTask(path, draw=2, draws=3).items(3 * 74 - 1, seed=0)
    parts = [ReactionTask(path, draw=draw).items(74, seed=0) for draw in (2, 3, 4)]
    assert draws == (*parts[0], *parts[1], *parts[2][:-1])


@pytest.mark.parametrize("share", [0.01, 0.3, 0.7, 1])
def test_the_share_is_of_the_products_tokens(path: Path, share: float) -> None:
    for item in ReactionTask(path, share=share).items(74, seed=0):
        assert len(holes(item)) == pytest.approx(max(1, share * len(smiles_tokens(item.answer))), abs=0.5001)
        assert MASK not in item.prompt.partition(">>")[0]
        shown = smiles_tokens(item.prompt.partition(">>")[2])
        assert all(a in (MASK, b) for a, b in zip(shown, smiles_tokens(item.answer), strict=True))


def test_a_larger_share_keeps_the_masks_of_a_smaller_one(path: Path) -> None:
    small, large = (ReactionTask(path, share=share).items(74, seed=0) for share in (0.3, 0.7))
    assert all(set(holes(a)) < set(holes(b)) for a, b in zip(small, large, strict=True))


def test_scores() -> None:
    task, item = ReactionTask("unused"), Item("Cl.CC>>[MASK]C[MASK][MASK]O[MASK]", "BrCCCOF")
    assert task.score(item, "Cl.CC>>BrCCCOF") == {"exact": 1.0, "tokens_right": 1.0}
    assert task.score(item, "Cl.CC>>BrCNCOCl") == {"exact": 0.0, "tokens_right": 0.5}
    assert task.score(item, "Cl.CC>>NCNNOCl") == {"exact": 0.0, "tokens_right": 0.0}
    assert tuple(task.score(item, "")) == task.metrics


@pytest.mark.parametrize("text", ["", "Cl.CC", "Cl.CC>>BrCCCO", "Cl.CC>>BrCCCOFF", "Cl.CC>>B CCCOF", "BrCCCOF"])
def test_texts_that_cannot_be_lined_up_are_wrong_everywhere(text: str) -> None:
    item = Item("Cl.CC>>[MASK]C[MASK][MASK]O[MASK]", "BrCCCOF")
    assert ReactionTask("unused").score(item, text) == {"exact": 0.0, "tokens_right": 0.0}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"split": "test"}, "'test'"),
        ({"share": 0}, "share is 0"),
        ({"share": 1.2}, "share is 1.2"),
        ({"share": "most"}, "share is 'most'"),
        ({"draw": -1}, "draw is -1"),
        ({"draws": 0}, "draws is 0"),
        ({"draws": 1.5}, "draws is 1.5"),
    ],
)
def test_parameters_nobody_can_mean_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        TASKS.build("reactions", path="unused", **parameters)


def test_more_items_than_there_are_is_said(path: Path) -> None:
    with pytest.raises(UsageError, match=r"75 items .* 'reporting' has 74 reactions"):
        ReactionTask(path).items(75, 0)
    assert len(ReactionTask(path, draws=2).items(75, 0)) == 75
    with pytest.raises(UsageError, match="has 0 reactions"):
        ReactionTask(write(path.parent, REACTIONS[:20])).items(1, 0)
    with pytest.raises(UsageError, match="seed is -1"):
        ReactionTask(path).items(1, -1)


def test_files_that_cannot_be_used_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.csv cannot be read"):
        ReactionTask(tmp_path / "nowhere.csv").items(1, 0)
    with pytest.raises(UsageError, match=r"no column 'smiles' but '', 'rxn'"):
        ReactionTask(path, column="smiles").items(1, 0)
    path.write_bytes(b"rxn\n\xff\xfe")
    with pytest.raises(UsageError, match="cannot be read"):
        ReactionTask(path).items(1, 0)


@pytest.mark.parametrize("row", ["", "CCO", "CCO>>", "C>>C>>C", "C>>[MASK]", "C>>C?!"])
def test_rows_that_are_no_reaction_are_named(row: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reaction 2 of"):
        ReactionTask(write(tmp_path, ["C>>CC", row]), split="all").items(1, 0)
