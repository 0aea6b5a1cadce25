"""docs/operations.md: every error that a user can meet stands there, every link leads somewhere, every command exists."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import state
import streams
from state.errors import StreamsError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


def named_errors() -> set[str]:
    """All errors below `StreamsError` that the engine can raise, of all modules that can be imported here."""
    for package in (state, streams):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(("streams.testing", "streams.spark.startup")):
                importlib.import_module(module.name)
    found, waiting = set(), [StreamsError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(("state", "streams")):
            found.add(kind.__name__)
    return found - {"StreamsError"}


def test_every_error_has_a_cause_and_a_cure():
    told = {name for row in ROWS for name in re.findall(r"`(\w+Error)`", row.split("|")[1])}
    assert named_errors() - told == set()
    assert told - named_errors() == set()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z-]+)", PAGE))))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
