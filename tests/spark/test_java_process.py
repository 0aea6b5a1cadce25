"""Java without Spark's scripts: for whom, the same command line as theirs, its end. Java runs once, and no Spark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from streams.driver.launch import java_process
from streams.driver.launch.java_process import JavaProcess, command_for
from streams.driver.launch.java_process import java_process as process_for
from streams.driver.launch.settings import pyspark_folder, pyspark_version, session_settings

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which nobody has set anything of Spark's."""
    for name in [*os.environ]:
        if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_")):
            monkeypatch.delenv(name)


def settings(**more: str) -> dict[str, str]:
    given = {"spark.master": "local[2]", **{name.replace("_", "."): value for name, value in more.items()}}
    return session_settings("app", given, "/checkpoint")


@pytest.fixture
def launched(tmp_path: Path) -> Callable[[dict[str, str]], list[str]]:
    """What Spark's own launcher says for settings."""

    def run(given: dict[str, str]) -> list[str]:
        names = ("spark.driver.memory", "spark.driver.extraJavaOptions")
        options = [word for name in names for word in ("--conf", f"{name}={given[name]}")]
        main = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", *options, "pyspark-shell"]
        home = os.path.realpath(pyspark_folder())
        done = subprocess.run(
            ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/jars/*", *main],
            env={**os.environ, "SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13"},
            capture_output=True,
            check=True,
            timeout=WAIT_S,
        )
        return [word.strip() for word in done.stdout.decode().split("\0") if word.strip()]

    return run


def test_the_command_line_is_the_one_of_spark_s_own_launcher(launched: Callable[[dict[str, str]], list[str]]) -> None:
    given = settings(spark_driver_memory="700m")
    own, theirs = command_for(given), launched(given)
    assert own is not None
    end = theirs.index("org.apache.spark.deploy.SparkSubmit")
    assert (own[1:-1], Path(own[0]).name) == (theirs[1:end], Path(theirs[0]).name)
    assert "-Xmx700m" in own


def test_the_version_is_the_package_s() -> None:
    assert pyspark_version() == pyspark.__version__
    assert Path(pyspark.__file__).parent == pyspark_folder()


@pytest.mark.parametrize(
    "more",
    [
        {"spark_master": "spark://host:7077"},
        {"spark_master": "local-cluster[1,1,1024]"},
        {"spark_jars_packages": "a:b:1"},
        {"spark_jars": "a.jar"},
        {"spark_files": "a.txt"},
        {"spark_submit_pyFiles": "a.zip"},
        {"spark_hadoop_fs.defaultFS": "hdfs://host"},
        {"spark_driver_extraClassPath": "/jars"},
        {"spark_driver_defaultJavaOptions": "-Da=b"},
        {"spark_driver_extraJavaOptions": '-Da="b c"'},
        {"spark_something_new": "x"},
    ],
)
def test_what_spark_s_scripts_look_at_is_left_to_them(more: dict[str, str]) -> None:
    assert command_for(settings(**more)) is None


@pytest.mark.parametrize(
    "name", ["SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_NEW", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"]
)
def test_variables_that_spark_s_scripts_look_at_are_left_to_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_for(settings()) is not None
    monkeypatch.setenv(name, "x")
    assert command_for(settings()) is None


def test_another_spark_is_started_by_its_own_scripts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(pyspark_folder()))
    assert command_for(settings()) is not None
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert command_for(settings()) is None
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setattr(java_process, "pyspark_version", lambda: "4.3.0")
    assert command_for(settings()) is None


def test_a_java_that_is_there_for_nobody_ends_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(java_process, "command_for", lambda settings: ["sh", "-c", "read line"])
    with java_process.java_ahead({}):
        (one,) = java_process._ahead
        assert list(tmp_path.iterdir())
    assert one.process.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_the_java_that_was_started_ahead_is_taken_once_and_only_by_the_same_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(java_process, "command_for", lambda settings: ["sh", "-c", settings["a"]])
    with java_process.java_ahead({"a": "read line"}):
        (ahead,) = java_process._ahead
        other, taken = process_for({"a": "read other"}), process_for({"a": "read line"})
        assert taken is ahead
        assert other is not ahead
        assert other is not None
        assert not java_process._ahead
    assert ahead.process.poll() is None, "who has taken it ends it"
    for one in (ahead, other):
        one.end()


def test_without_java_spark_s_scripts_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = JavaProcess([str(tmp_path / "java")])
    assert found.connection() is None
    assert re.search(rb"not found|No such file", os.read(found.errors, 1000))
    found.end()


@pytest.mark.slow
def test_java_answers_at_its_port_and_leaves_signals_of_the_group_to_the_driver() -> None:
    command = command_for(settings())
    assert command is not None
    java = JavaProcess(command)
    try:
        found = java.connection()
        assert found is not None
        port, secret = found
        assert port > 0
        assert len(secret) >= 32
        for number in (signal.SIGTERM, signal.SIGINT):
            java.process.send_signal(number)
        time.sleep(0.5)
        assert java.process.poll() is None
        assert java.process.stdin is not None
        java.process.stdin.close()
        assert java.process.wait(WAIT_S) == 0, "it ends with its driver"
    finally:
        java.end()


def test_a_driver_that_ends_meanwhile_leaves_no_java(tmp_path: Path) -> None:
    """It would wait for calls forever, if the folder for its answer is gone."""
    program = (
        "import tempfile; from streams.driver.launch.java_process import JavaProcess;"
        f"tempfile.tempdir = {str(tmp_path)!r}; print(JavaProcess(['sleep', '60']).process.pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=WAIT_S, text=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
    assert not list(tmp_path.iterdir())
