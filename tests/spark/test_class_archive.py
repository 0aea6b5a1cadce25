"""The archive of Spark's classes: recorded once, used when it is whole, and never needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams.spark.java import archive, archive_options, is_whole

PROGRAM = """
from streams.spark.session import start_session
session = start_session("t", {"spark.master": "local[1]", "spark.ui.enabled": "false"}, sys.argv[1])
print(session.range(3).count(), session.sparkContext.getConf().get("spark.driver.extraJavaOptions"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are, in an environment of this test's own."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    archive().parent.mkdir(parents=True)
    return archive().parent


def write(size: int, noted: str) -> None:
    archive().write_bytes(bytes(size))
    archive().with_suffix(".size").write_text(noted)


def test_an_archive_counts_only_whole(folder: Path) -> None:
    assert archive_options() == ""
    for size, noted in ((10, "11"), (10, "")):
        write(size, noted)
        assert (is_whole(archive()), archive_options()) == (False, "")
    write(10, "10\n")
    assert archive_options() == (
        f" -XX:SharedArchiveFile={archive()} -XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0 -Xlog:disable"
    )


def test_another_java_has_another_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = archive()
    monkeypatch.setenv("JAVA_HOME", str(folder))
    assert archive() != before


@pytest.mark.slow
@pytest.mark.spark
def test_spark_starts_from_a_recorded_archive_and_without_a_fitting_one(folder: Path, tmp_path: Path) -> None:
    def run(program: str) -> str:
        command = [sys.executable, "-c", f"import sys; sys.prefix = {str(tmp_path)!r}; {program}", str(tmp_path)]
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    write(10, "10\n")  # no archive at all, though as large as noted: Java leaves it alone
    assert run(PROGRAM).startswith("3 ")
    archive().unlink()
    run("from streams.spark.record_classes import record; record()")
    assert is_whole(archive())
    assert sorted(path.name for path in folder.iterdir()) == [archive().name, archive().with_suffix(".size").name]
    assert str(archive()) in run(PROGRAM)
