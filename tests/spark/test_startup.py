"""What Spark's Python processes import, and from where; no Spark is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

import streams.spark.session

PACKAGE = Path(pyspark.__file__).parent
STARTUP = Path(streams.spark.session.__file__).parent / "startup"
ARCHIVES = [*sorted((PACKAGE / "python" / "lib").glob("*.zip")), *sorted((PACKAGE / "jars").glob("spark-core_*.jar"))]
PROGRAM = "import sys, pyspark; print(pyspark.__file__); print([e for e in sys.path if e.endswith(('.zip', '.jar'))])"


def run(*path: Path, program: str = PROGRAM) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()


def test_pyspark_comes_from_the_installed_package(tmp_path: Path) -> None:
    assert len(ARCHIVES) == 3
    foreign = tmp_path / "users.zip"
    foreign.touch()
    assert run(*ARCHIVES)[0].startswith(str(ARCHIVES[1]))
    file, archives = run(*ARCHIVES, foreign, STARTUP)
    assert file == str(PACKAGE / "__init__.py")
    assert str(foreign) in archives
    assert not any(str(archive) in archives for archive in ARCHIVES)


def test_the_daemon_of_a_cluster_s_executor_needs_no_sitecustomize_for_that(tmp_path: Path) -> None:
    other = tmp_path / "pyspark.zip"
    other.write_bytes(ARCHIVES[1].read_bytes())
    program = f"from streams.spark.daemon import drop_archives; drop_archives(); {PROGRAM}"
    file, archives = run(*ARCHIVES, program=program)
    assert file == str(PACKAGE / "__init__.py")
    assert not any(str(archive) in archives for archive in ARCHIVES)
    assert run(other, ARCHIVES[0], program=program)[0].startswith(str(other)), "of another Spark"


def test_another_spark_s_archives_stay(tmp_path: Path) -> None:
    other = tmp_path / "pyspark.zip"
    other.write_bytes(ARCHIVES[1].read_bytes())
    assert run(other, ARCHIVES[0], STARTUP)[0].startswith(str(other))


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    assert run(*ARCHIVES, STARTUP, tmp_path)[:2] == ["theirs", str(PACKAGE / "__init__.py")]
