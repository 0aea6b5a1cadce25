"""A plugin of pytest, `-p tests.whole_files`: a file of tests is imported by the process that runs it, and by no other one.

Each process of pytest-xdist by itself imports all files, whichever of them it will run: half a minute of CPU, and more where
none has been compiled yet. With this plugin a file is collected as a single item. A process that is given this item imports the
file, chooses among its tests as `-m` and `-k` say, and runs and reports each of them as always.

Only whole files and folders can be asked for. The progress that pytest prints would count files: `-o console_output_style=classic`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


class WholeFile(pytest.File):
    """A file that nobody has imported yet; its only item stands for all of its tests."""

    def collect(self) -> Iterator[pytest.Item]:
        yield AllTests.from_parent(self, name="all")


class AllTests(pytest.Item):
    """The tests of a file."""

    def runtest(self) -> None:
        raise NotImplementedError("the tests run in its place")

    def chosen(self) -> list[pytest.Item]:
        """Imports the file: the tests of it that the options ask for. An error of the import is reported as one."""
        file = self.parent
        assert file is not None
        module = pytest.Module.from_parent(file.parent, path=file.path)
        tests = list(self.session.genitems(module))
        self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=tests)
        return tests


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> WholeFile:
    """Instead of the module, which would be imported."""
    return WholeFile.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Options choose among tests, not among files."""
    files = [item for item in items if isinstance(item, AllTests)]
    items[:] = [item for item in items if not isinstance(item, AllTests)]
    yield
    items += files


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs the tests of a file, each by its own protocol."""
    if not isinstance(item, AllTests):
        return None
    session, tests = item.session, item.chosen()
    if not tests:
        # As behind a last test: what the next file does not share with this one ends.
        session._setupstate.teardown_exact(nextitem)
    place = session.items.index(item)
    for number, test in enumerate(tests, 1):
        following = tests[number] if number < len(tests) else nextitem
        session.items[place] = test  # pytest-xdist requires that a report is about the item that runs.
        item.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.shouldfail or session.shouldstop:
            break
    session.items[place] = item
    return True
