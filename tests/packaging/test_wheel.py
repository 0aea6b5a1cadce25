"""The wheel in an environment of its own: dependencies there, the repository not."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    skip = shutil.ignore_patterns("__pycache__")
    for name in ("streams", "state", "topologies", "tests/packaging"):
        shutil.copytree(ROOT / name, source / name, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    build = ["pip", "wheel", str(source), "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(out)]
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the wheel, and the dependencies from where these tests have them."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    found = folder / "bin" / "python"
    packages = subprocess.run(
        [found, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # A .pth file that is found by way of another one is not read: so the repository stays out.
    Path(packages, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["pip", "--python", str(found), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    return found


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, with no path to the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "STREAMS_TRACEBACK")}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_the_engine_its_types_and_its_licence_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"streams", "state", "streams_on_spark"}
    assert {"streams/py.typed", "state/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_a_topology_runs_from_the_wheel(python: Path, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PROGRAM)
    done = run(tmp_path, python, "app.py")
    assert (done.stdout, done.stderr) == ("['1', '2']\n", "")


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


def test_the_wheel_does_not_bring_the_examples(python: Path, tmp_path: Path) -> None:
    assert "No module named 'topologies'" in run(tmp_path, python, "-c", "import streams, topologies").stderr


def test_the_version_is_the_same_everywhere(python: Path, wheel: Path, tmp_path: Path) -> None:
    version = wheel.name.split("-")[1]
    assert run(tmp_path, python, "-c", "import streams; print(streams.__version__)").stdout == f"{version}\n"
    assert run(tmp_path, python.parent / "streams", "--version").stdout == f"streams-on-spark {version}\n"


@pytest.mark.parametrize("hiding", ["state.py", "state/__init__.py"])
def test_a_module_of_the_user_that_hides_the_engines_is_named(python: Path, tmp_path: Path, hiding: str) -> None:
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("")
    (tmp_path / "app.py").write_text("import streams\n")
    message = run(tmp_path, python, "app.py").stderr
    assert "ImportError: streams-on-spark consists of the packages `streams` and `state`" in message
    assert str(tmp_path / hiding) in message
