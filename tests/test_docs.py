"""Every Python snippet of the README and the docs runs, page by page, and every page that is linked exists."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tabes.catalogue  # noqa: F401 - registers the parts before a snippet adds one
from tabes.parts import RANKINGS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)], ids=lambda page: page.stem)
def test_snippets_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RANKINGS, "_classes", dict(RANKINGS._classes))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for snippet in snippets(page):
        exec(compile(snippet, str(page), "exec", dont_inherit=True), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target
