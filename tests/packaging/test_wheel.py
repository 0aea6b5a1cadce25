"""The wheel, and its environment: what is in it, and what is not."""

import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from streams.cli.project import try_out
from streams.errors import ConfigError
from tests.docs.console import play
from tests.packaging.conftest import ROOT, run

pytestmark = pytest.mark.slow

PROGRAM = """
from streams import JsonSerde, StreamsBuilder, StringSerde
from streams.testing import TopologyTestDriver

builder = StreamsBuilder()
builder.stream("words").group_by(lambda word: word["word"]).count().to_stream().map_values(str).to("counts")
with TopologyTestDriver(builder.build()) as driver:
    words = driver.create_input_topic("words")
    words.pipe_input("k", {"word": "a"})
    words.pipe_input("k", {"word": "a"})
    print([record.value for record in driver.create_output_topic("counts").read_records_to_list()])
"""


def test_the_wheel_holds_the_engine_its_types_and_its_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"streams", "streams_on_spark"}
    assert {"streams/py.typed", "streams/_state/errors.py"} <= set(names)
    templates = {
        f"streams/cli/templates/{name}" for name in ("shared/streams.toml", "shared/gitignore", "joins/app.py")
    }
    assert templates <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_an_error_is_explained_from_the_wheel(python: Path, tmp_path: Path) -> None:
    said = run(tmp_path, python.parent / "streams", "errors", "OffsetsLostError").stdout
    assert said.startswith("OffsetsLostError\n\nKind: data\n")
    assert "Is anything lost? For one of your topics, yes" in said


def test_pytest_finds_the_fixtures(python: Path, tmp_path: Path) -> None:
    test = "def test_it(topology_test_driver):\n    assert callable(topology_test_driver)\n"
    (tmp_path / "test_app.py").write_text(test)
    done = run(tmp_path, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_type_checker_finds_the_types(python: Path, tmp_path: Path) -> None:
    said = run(tmp_path, python.parent / "streams", "init", "shop", "--template", "typed")
    assert said.returncode == 0, said.stderr
    folder = tmp_path / "shop"
    program = (folder / "app.py").read_text()
    (folder / "wrong.py").write_text(program.replace("lambda order: order.customer", "lambda order: order.client"))
    # Strict, but the packages below the engine are not read: that is twice the CPU. The cache is by content, not by path.
    check = ("mypy", "--config-file", ROOT / "tests" / "typing" / "mypy.ini", "--python-executable", python)
    cache = ("--cache-dir", ROOT / ".mypy_cache" / "wheel")
    checked = run(folder, sys.executable, "-m", *check, *cache, "app.py", "wrong.py")
    found = checked.stdout.splitlines()
    assert '"Order" has no attribute "client"' in found[0], checked.stdout + checked.stderr
    assert {line.partition(":")[0] for line in found[:-1]} == {"wrong.py"}, checked.stdout


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long  # `make test` plays it from the repository, whose kernels are compiled
def test_the_tutorial_works_from_the_wheel(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command prints what docs/tutorial.md says; the quick start of the README is a part of it (tests/docs)."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    where = "$ python -c 'import streams; print(streams.__file__)'\n" + str(python.parents[1])
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    play(f"```console\n{where}\n```\n{tutorial}", tmp_path, python)


def test_a_packed_environment_needs_no_activation_for_its_python(python: Path, wheel: Path, tmp_path: Path) -> None:
    """As docs/deployment.md says: by `bin/python -m streams` as it is, by `streams` once it is activated."""
    packed, there = tmp_path / "environment.tar.gz", tmp_path / "opt"
    environment = python.parents[1]
    # venv-pack refuses an environment with packages elsewhere.
    (dependencies,) = environment.rglob("dependencies.pth")
    dependencies.rename(tmp_path / "dependencies.pth")
    pytest.importorskip("venv_pack").pack(prefix=str(environment), output=str(packed))
    shutil.unpack_archive(packed, there)
    shutil.copy(tmp_path / "dependencies.pth", there / dependencies.relative_to(environment))
    (tmp_path / "dependencies.pth").rename(dependencies)
    said = f"streams-on-spark {wheel.name.split('-')[1]}\n"
    assert run(tmp_path, there / "bin" / "python", "-m", "streams", "--version").stdout == said
    assert run(tmp_path, "bash", "-c", f". {there}/bin/activate && streams --version").stdout == said
    # `streams package` tries a program with an archive, wherever that was made.
    (tmp_path / "app.py").write_text(PROGRAM)
    with pytest.raises(
        ConfigError, match=r"(?s)environment.tar.gz lacks something that .*app.py needs.*No module named"
    ):
        try_out(packed, str(tmp_path / "app.py"))
    try_out(Path(shutil.make_archive(str(tmp_path / "whole"), "gztar", there)), str(tmp_path / "app.py"))


def test_an_environment_that_cannot_be_packed_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    said = run(tmp_path, sys.executable, "-m", "streams", "package", "app.py").stderr
    assert "streams-on-spark is installed as editable" in said
    assert not (tmp_path / "environment.tar.gz").exists()


def test_the_wheel_does_not_bring_the_examples(python: Path, tmp_path: Path) -> None:
    assert "No module named 'topologies'" in run(tmp_path, python, "-c", "import streams, topologies").stderr


def test_the_version_is_the_same_everywhere(python: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert run(tmp_path, python, "-c", "import streams; print(streams.__version__)").stdout == f"{version}\n"
    assert run(tmp_path, python.parent / "streams", "--version").stdout == f"streams-on-spark {version}\n"


@pytest.mark.parametrize("hiding", ["state.py", "state/__init__.py"])
def test_a_topology_runs_from_the_wheel_also_beside_a_module_called_state(
    python: Path, tmp_path: Path, hiding: str
) -> None:
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("def text(value): return str(value)\n")
    (tmp_path / "app.py").write_text(
        "from state import text\n" + PROGRAM.replace("map_values(str)", "map_values(text)")
    )
    done = run(tmp_path, python, "app.py")
    assert (done.stdout, done.stderr) == ("['1', '2']\n", "")


def test_beside_an_editable_installation_a_module_of_the_user_that_hides_the_engines_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.py").touch()
    (tmp_path / "app.py").write_text("import streams\n")
    message = run(tmp_path, sys.executable, "app.py").stderr
    assert "ImportError: streams-on-spark consists of the packages `streams` and `state`" in message
    assert str(tmp_path / "state.py") in message


def test_errors_of_the_disk_below_local_state_are_told_from_others(python: Path, tmp_path: Path) -> None:
    """The installed engine lies where other installed packages lie."""
    program = """
from pathlib import Path
from streams._state.tables.files import make_private
from streams.users_code import is_of_state
for call in (make_private, Path.mkdir):
    try:
        call(Path("/dev/null/state"))
    except OSError as error:
        print(is_of_state(error))
"""
    assert run(tmp_path, python, "-c", program).stdout == "True\nFalse\n"
