"""`docs/inventory.md` names tests, cases and public names: all of them exist."""

import ast
import re
from pathlib import Path

import pytest

import streams
from tests.conformance.case import read_cases

TESTS = Path(__file__).parents[1]
TEXT = (TESTS.parent / "docs" / "inventory.md").read_text(encoding="utf-8")
ROWS = [
    line
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| Kafka Streams ", "| what its "))
]


def functions(file: Path) -> set[str]:
    """Names of the functions of a file, without importing it: some need Spark."""
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.slow
def test_every_test_exists():
    named = re.findall(r"`([a-z_/]+\.py)::(test_\w+)`", TEXT)
    assert len(named) > 80
    assert [f"{file}::{name}" for file, name in named if name not in functions(TESTS / file)] == []


def test_every_case_exists():
    known = {case.name for case in read_cases([TESTS / "conformance" / "cases"])}
    named = set(re.findall(r"`([a-z_]+/[a-z_0-9]+)`", TEXT)) - {"family/case"}
    assert len(named) > 15
    assert named <= known


def test_every_public_name_exists():
    here = " ".join(row.split(" | ")[1] for row in ROWS if row.count(" | ") == 2)
    named = re.findall(r"`([A-Z]\w+)(?:\.(\w+))?", here)
    assert len(named) > 50
    assert [name for name, _ in named if not hasattr(streams, name) and name != "TopologyError"] == []
    assert [(name, method) for name, method in named if method and not hasattr(getattr(streams, name), method)] == []


def test_every_row_shows_something_or_says_why_not():
    shown, missing = (part.splitlines() for part in TEXT.split("## Not here"))
    for row in shown:
        if row in ROWS:
            assert "::test_" in row or re.search(r"`[a-z_]+/[a-z_0-9]+`", row.split(" | ")[2]), row
    assert sum(row.startswith("| ") for row in missing) <= 8  # seven rows and their heading
