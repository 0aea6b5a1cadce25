"""The pages of the architecture are short, drawn and listed, name files that exist, and list the floors from the top."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import FLOORS

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "architecture.md"
PAGES = sorted((ROOT / "docs" / "architecture").glob("*.md"))
TEXT = "".join(path.read_text(encoding="utf-8") for path in (INDEX, *PAGES))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py|(?:streams|state)/[a-z_/]+)`", TEXT + CONTRIBUTING)))


def test_every_page_is_listed() -> None:
    listed = re.findall(r"\(architecture/([a-z]+\.md)\)", INDEX.read_text(encoding="utf-8"))
    assert sorted(listed) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", [INDEX, *PAGES], ids=lambda page: page.stem)
def test_a_page_is_short_and_drawn(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= 1_500
    assert "```text\n" in text


def test_the_floors_are_listed_from_the_top() -> None:
    floors = (ROOT / "docs" / "architecture" / "floors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`(?:streams|state)/.*)$", floors, re.MULTILINE)
    found = [FLOORS.index(place) for row in rows for place in re.findall(r"`((?:streams|state)/[a-z0-9_./]+)`", row)]
    # Files that the table names without their folder, or not at all (`python -m streams` is the command line).
    single = {"streams/wording.py", "streams/users_code.py", "streams/__main__.py"}
    assert found == sorted(found, reverse=True)
    assert {FLOORS[n] for n in found} | single == set(FLOORS)


@pytest.mark.parametrize("name", NAMED)
def test_a_named_file_or_folder_exists(name: str) -> None:
    places = [ROOT / name, ROOT / "streams" / name]
    beside = (
        [path for folder in ("streams", "state") for path in (ROOT / folder).rglob(name)] if "/" not in name else []
    )
    assert beside or any(path.exists() for path in places)
