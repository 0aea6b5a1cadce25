"""The user's file and line in errors about the topology: that of the call that is wrong, wherever the engine finds out."""

from __future__ import annotations

import pickle
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from streams import Materialized, Named, StreamsBuilder, TimeWindows, TopologyError

PROGRAMS: dict[str, str] = {
    "a method of a stream": "builder.stream('in').filter(7)",
    "the constructor of an option": "Materialized(name='no good')",
    "windows, whose constructor a decorator makes": "TimeWindows(0, 1, 0)",
    "the end of the program": "StreamsBuilder().build()",
    "a name that does not exist": "builder.stream('in').mapValues(len)",
}


@pytest.fixture
def run_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TopologyError]:
    """Runs a program from a file `app.py` of the working directory and gives the error that it ends with."""
    monkeypatch.chdir(tmp_path)

    def run(last_line: str) -> TopologyError:
        app = tmp_path / "app.py"
        app.write_text(f"from streams import *\nbuilder = StreamsBuilder()\n\n{last_line}\n")
        with pytest.raises(TopologyError) as caught:
            exec(compile(app.read_text(), str(app), "exec"), {"__name__": "app", "__file__": str(app)})
        return caught.value

    return run


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_line_of_the_call_ends_the_message(run_program: Callable[[str], TopologyError], program: str) -> None:
    assert str(run_program(program)).endswith(" (app.py, line 4)")


def test_a_file_outside_the_working_directory_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopologyError) as caught:
        Named("no good")
    assert f"({__file__}, line " in str(caught.value)


def test_the_innermost_function_of_the_user_counts() -> None:
    def declare(builder: StreamsBuilder) -> None:
        builder.stream("no good")

    with pytest.raises(TopologyError) as caught:
        declare(StreamsBuilder())
    assert caught.value.line is not None
    assert caught.value.line.endswith(f", line {declare.__code__.co_firstlineno + 1}")


def test_the_line_survives_the_way_between_processes() -> None:
    with pytest.raises(TopologyError) as caught:
        TimeWindows.of_size_with_no_grace(-1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_text_alone_is_the_first_argument() -> None:
    with pytest.raises(TopologyError) as caught:
        Materialized(name="no good")
    assert "line" not in caught.value.args[0]


def test_a_command_that_runs_no_code_of_the_user_s_names_no_line(tmp_path: Path) -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / "streams"), "describe", "nowhere:topology"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "TopologyError" in ran.stderr
    assert ", line " not in ran.stderr
