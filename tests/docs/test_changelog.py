"""The fragments of the changelog have names that towncrier understands, and say something."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".changelog"
KINDS = set(
    re.findall(r"^\[tool\.towncrier\.fragment\.(\w+)\]$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M)
)


def test_fragments_are_named_by_their_kind_and_have_a_text_without_a_bullet() -> None:
    assert sorted(KINDS) == ["added", "changed", "fixed", "removed"]
    fragments = [path for path in FOLDER.iterdir() if path.name != "README.md"]
    wrong = [
        path.name
        for path in fragments
        if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", path.name)
        or not re.match(r"[^\s*-]", path.read_text(encoding="utf-8"))
    ]
    assert wrong == []
