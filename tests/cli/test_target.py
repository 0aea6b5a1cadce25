"""Which topology a command is about: files and modules, named or found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams.cli.target import TopologyTarget

HEAD = "from streams import StreamsBuilder, Topology\n"
TWO = """
def first() -> Topology: ...
def second() -> StreamsBuilder: ...
"""
FUNCTION = """
def topology() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    return builder.build()

def helper(number: int) -> Topology: ...
"""
BUILDER = """
builder = StreamsBuilder()
builder.stream("in").to("out")
"""

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file of the program, below the working directory; its modules are forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + text)
        return path

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("target_"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "text",
    [
        FUNCTION,
        BUILDER,
        BUILDER + "made = builder.build()\n",
        BUILDER + "def build():\n    return builder.build()\n",
        BUILDER + "def build():\n    return builder\n",
    ],
    ids=["a function", "a builder", "a builder and its topology", "build", "build gives a builder"],
)
@pytest.mark.parametrize("target", ["target_app.py", "./target_app.py", "target_app"])
def test_a_topology_is_found_by_itself(streams, write: Write, text: str, target: str) -> None:
    write("target_app.py", text)
    result = streams("describe", target)
    assert (result.exit_code, "topics: [in]" in result.output) == (0, True), result.output


def test_a_name_in_a_file_is_taken(streams, write: Write) -> None:
    write("target_named.py", FUNCTION)
    assert "topics: [in]" in streams("describe", "target_named.py:topology").output


def test_several_candidates_are_listed(streams, write: Write) -> None:
    write("target_two.py", TWO)
    result = streams("describe", "target_two.py")
    assert result.exit_code == 1
    assert "which of them? Write target_two.py:first or target_two.py:second" in result.output


def test_a_module_without_a_topology_is_reported(streams, write: Write) -> None:
    write("target_none.py", "x = 1\n")
    assert "there is no topology in it" in streams("describe", "target_none.py").output


def test_a_file_in_a_package_is_imported_by_its_whole_name(streams, write: Write) -> None:
    write("target_shop/__init__.py", "")
    write("target_shop/names.py", "NAME = 'orders'\n")
    write("target_shop/app.py", "from target_shop.names import NAME\n" + FUNCTION.replace('"in"', "NAME"))
    assert "topics: [orders]" in streams("describe", "target_shop/app.py").output


@pytest.mark.parametrize(
    ("target", "name"),
    [("target_id.py", "target-id-topology"), ("target_id", "target-id-topology"), ("target_id:x", "target-id-x")],
)
def test_a_file_and_its_module_have_one_application_id(streams, write: Write, target: str, name: str) -> None:
    write("target_id.py", FUNCTION)
    assert f'application_id = "{name}"' in streams("config", target, "--explain").output


@pytest.mark.slow
def test_workers_find_the_module_of_a_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of the program must be importable where its values are read."""
    write("sub/target_workers.py", "class Order: ...\n")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.chdir(tmp_path)
    TopologyTarget.parse("sub/target_workers.py").share_with_workers()
    subprocess.run([sys.executable, "-c", "import target_workers"], check=True)


def test_a_misspelt_file_is_asked_about(streams, write: Write) -> None:
    write("target_orders.py", FUNCTION)
    assert "Did you mean 'target_orders.py'?" in streams("describe", "target_order.py").output


def test_a_file_that_another_module_hides_is_refused(streams, write: Write) -> None:
    write("sub/json.py", FUNCTION)
    result = streams("describe", "sub/json.py")
    assert (result.exit_code, "the name 'json' imports another module" in result.output) == (1, True), result.output


def test_the_id_of_an_application_is_known_before_its_program_is_imported(write: Write) -> None:
    """Java starts with that name, while the program is imported."""
    file = write("never_imported.py", "raise SystemExit('imported')\n\n\ndef build():\n    ...\n")
    assert TopologyTarget.parse(str(file)).application_id() == "never-imported-build"
