"""docs/errors.md has an entry for every error that a user can meet, which the error names; commands of docs/operations.md exist."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import state.errors
import streams.errors
from state.errors import StreamsError
from streams.cli.inspection.errors import entries
from streams.cli.main import app
from streams.errors import more_about

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
ERRORS_PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def named_errors() -> set[str]:
    """All errors below `StreamsError` that the engine can raise, of all modules that can be imported here."""
    for package in (state, streams):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith(("streams.testing", "streams.engine.spark.startup")):
                importlib.import_module(module.name)
    found, waiting = set(), [StreamsError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith(("state", "streams")):
            found.add(kind.__name__)
    return found - {"StreamsError"}


def error_class(name):
    return next(getattr(home, name) for home in (streams.errors, state.errors) if hasattr(home, name))


ERRORS = sorted(named_errors())


def test_the_page_of_errors_has_an_entry_for_each_error_and_no_others():
    assert sorted(entries()) == ERRORS
    assert len(re.findall(r"^### ", ERRORS_PAGE, re.MULTILINE)) == len(ERRORS)


@pytest.mark.parametrize("name", ERRORS)
def test_an_entry_says_who_can_resolve_the_error_why_it_came_what_to_do_and_what_is_lost(name):
    kind, cause, cure, lost = entries()[name].split("\n\n")
    assert kind.startswith(f"Kind: {error_class(name).kind.value}")
    assert cause.startswith("Cause: ")
    assert cure.startswith("What to do: ")
    assert lost.startswith("Is anything lost? ")


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_printed_with_an_error_prints_its_entry(name):
    error = error_class(name).__new__(error_class(name))
    command, *arguments = more_about(error).split()
    assert command == "streams"
    assert CliRunner().invoke(app, arguments).output == f"{name}\n\n{entries()[name]}\n"


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([a-z-]+)", PAGE))))
def test_make_targets_exist(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
