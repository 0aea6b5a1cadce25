"""The wheel in an environment of its own: dependencies there, the repository not."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = (
    *("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    "docs/errors.md",
)
_OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "STREAMS_TRACEBACK")
"""Variables of this process's own environment, some of which a Spark session of another test has set."""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as an index would offer both."""
    folder = tmp_path_factory.mktemp("distributions")
    clone = folder / "clone"
    for name in ("streams", "state", "topologies", "tests/packaging"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    (clone / "docs").mkdir()
    for file in BUILT_FROM:
        shutil.copy(ROOT / file, clone / file)
    sdist = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)]
    subprocess.run(sdist, cwd=clone, check=True, capture_output=True)
    (packed,) = folder.glob("*.tar.gz")
    build = ["pip", "wheel", str(packed), "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", *build], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
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
    # The archive of Spark's classes belongs to these dependencies; without it, each start of Java takes twice the CPU.
    (folder / "share").symlink_to(Path(sys.prefix) / "share")
    install = ["pip", "--python", str(found), "install", "--no-deps", "--no-index", "--quiet", str(wheel)]
    subprocess.run([sys.executable, "-m", *install], check=True, capture_output=True)
    return found


def run(folder: Path, *command: object) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, with no path to the repository."""
    environment = {name: value for name, value in os.environ.items() if name not in _OURS}
    return subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
