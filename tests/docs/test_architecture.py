"""`docs/architecture.md` lists the floors of the code from the top; files that it or CONTRIBUTING names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import FLOORS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py|(?:streams|state)/[a-z_/]+)`", TEXT + CONTRIBUTING)))


def test_the_floors_are_listed_from_the_top() -> None:
    rows = re.findall(r"^\| (`(?:streams|state)/.*)$", TEXT, re.MULTILINE)
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
