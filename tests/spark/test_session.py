"""What is said of a Spark session, the user's own too; no Spark is started."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf

from streams.broker.jars import DELTA_JARS, write_manifest
from streams.cli.target import TopologyTarget
from streams.config import StreamsConfig
from streams.driver import runner
from streams.driver.delta import CATALOG, EXTENSION, PACKAGE, check_delta, delta_settings
from streams.driver.launch.settings import MEMORY_ENVIRONMENT, session_settings
from streams.driver.queries import did_not_start, readable
from streams.driver.runner import StreamsApplication
from streams.driver.session import check_session
from streams.engine.spark.shuffle import shuffle_keys, spark_hash
from streams.errors import ConfigError, DeltaMissingError

GOOD = {"spark.master": "local[2,4]", "spark.python.daemon.module": "streams.engine.spark.daemon"}


def session(**changed: str) -> Any:
    conf = {**GOOD, **{key.replace("_", "."): value for key, value in changed.items()}}
    return SimpleNamespace(sparkContext=SimpleNamespace(_conf=conf), version="4.2.0")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"spark_master": "spark://host:7077"}, None),
        ({"spark_master": "local[2]"}, r"tries a task only once .*e\.g\. local\[2,4\]"),
        ({"spark_master": "local"}, "tries a task only once"),
        ({"spark_master": "yarn", "spark_task_maxFailures": "1"}, r"only once .*spark\.task\.maxFailures=4"),
        ({"spark_python_daemon_module": "pyspark.daemon"}, "each micro-batch will be slower"),
    ],
)
def test_what_is_said_of_a_session(changed: dict[str, str], said: str | None) -> None:
    told: list[str] = []
    check_session(session(**changed), told.append)
    assert len(told) == (said is not None)
    if said is not None:
        with pytest.raises(AssertionError, match=said):
            raise AssertionError(told[0])


def test_the_user_s_own_session_is_looked_at_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    # Before anything is made in Kafka.
    monkeypatch.setattr(runner, "KafkaAdmin", lambda client: pytest.fail("Kafka was asked"))
    config = StreamsConfig(application_id="a", bootstrap_servers="host:1", base_dir=tmp_path)
    application = StreamsApplication(None, config)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"spark\.speculation=true is refused"):
        application.run(session(spark_speculation="true"))
    with pytest.raises(ConfigError, match=r"spark\.speculation=true is refused"):
        session_settings("a", {"spark.speculation": "true"}, "/checkpoint")


@pytest.mark.parametrize("version", ["4.1.2", "4.4.0", "5.0.0-preview1"])
def test_another_version_of_spark_is_refused(version: str) -> None:
    given = session()
    given.version = version
    with pytest.raises(ConfigError, match=f"This is Spark {version}, and streams-on-spark needs Spark 4.2 or 4.3: "):
        check_session(given, pytest.fail)


def test_executors_of_a_cluster_allocate_memory_as_local_processes_do() -> None:
    given = {"spark.master": "spark://host:7077", "spark.executorEnv.MALLOC_ARENA_MAX": "8"}
    settings = session_settings("app", given, "hdfs:///checkpoint")
    there = {
        name.removeprefix("spark.executorEnv."): value for name, value in settings.items() if "executorEnv" in name
    }
    assert there == {**MEMORY_ENVIRONMENT, "MALLOC_ARENA_MAX": "8"}, "the user's own values take precedence"
    assert not any(
        "executorEnv" in name for name in session_settings("app", {"spark.master": "local[2]"}, "/checkpoint")
    )


def test_javas_code_cache_has_room_for_queries_with_delta() -> None:
    """The default of 48 MB with one compiler was full after minutes, and Java switched its compiler off."""
    options = session_settings("app", {"spark.master": "local[2,4]"}, "/checkpoint")["spark.driver.extraJavaOptions"]
    assert "-XX:ReservedCodeCacheSize=128m" in options.split()


# --- A session with Delta Lake: the settings it starts with, and what is said of one without it. No Spark is started.


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark session that other tests run in this process would give its settings to new ones."""
    monkeypatch.setattr("pyspark.SparkConf", lambda: SparkConf(loadDefaults=False))


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A set of jars in the cache folder, as the setting `spark.jars` names it, and the Spark that they are made for."""
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path))
    DELTA_JARS.folder.mkdir(parents=True)
    (DELTA_JARS.folder / "delta-spark_4.2_2.13-4.4.0.jar").write_bytes(b"a jar")
    (DELTA_JARS.folder / "delta-storage-4.4.0.jar").write_bytes(b"another")
    write_manifest(DELTA_JARS.folder)
    monkeypatch.setattr("pyspark.__version__", "4.2.0")
    return f"{DELTA_JARS.folder}/delta-spark_4.2_2.13-4.4.0.jar,{DELTA_JARS.folder}/delta-storage-4.4.0.jar"


def test_a_session_with_delta_has_its_jars_extension_and_catalog(jars: str) -> None:
    found = session_settings("app", {"spark.master": "local[2]"}, "/checkpoint", delta=True)
    assert found["spark.jars"] == jars
    assert found["spark.sql.extensions"] == EXTENSION
    assert found["spark.sql.catalog.spark_catalog"] == CATALOG
    assert found["spark.driver.memory"] == "1g"


def test_a_session_without_delta_is_as_before() -> None:
    found = session_settings("app", {"spark.master": "local[2]"}, "/checkpoint")
    assert found["spark.driver.memory"] == "512m"
    assert not {"spark.jars", "spark.sql.extensions", "spark.sql.catalog.spark_catalog"} & found.keys()


def test_the_user_s_jars_extensions_and_catalog_stay(jars: str) -> None:
    user = {"spark.jars": "mine.jar", "spark.sql.extensions": "Mine", "spark.sql.catalog.spark_catalog": "My"}
    found = delta_settings(user)
    assert found["spark.jars"] == f"mine.jar,{jars}"
    assert found["spark.sql.extensions"] == f"Mine,{EXTENSION}"
    assert found["spark.sql.catalog.spark_catalog"] == "My"


@pytest.mark.parametrize("setting", ["spark.jars.packages", "spark.jars"])
def test_delta_s_jars_that_the_user_names_are_the_only_ones(setting: str) -> None:
    found = delta_settings({setting: "io.delta:delta-spark_4.2_2.13:4.4.9"})
    assert found[setting] == "io.delta:delta-spark_4.2_2.13:4.4.9"
    assert len({"spark.jars", "spark.jars.packages"} & found.keys()) == 1


def test_delta_s_jars_are_refused_by_another_spark(jars: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.3.0")
    with pytest.raises(DeltaMissingError, match=r"made for Spark 4\.2, and this is Spark 4\.3\.0"):
        delta_settings({})
    assert delta_settings({"spark.jars.packages": "io.delta:delta-spark_4.3_2.13:4.5.0"})


def test_java_that_runs_already_gets_no_jars() -> None:
    assert "spark.jars" not in delta_settings({}, running=True)


class _NoClassError(Py4JJavaError):
    def __init__(self) -> None:
        Exception.__init__(self, "ClassNotFoundException")


def _session(*, has_jars: bool, **conf: str) -> Any:
    def load(name: str) -> None:
        if not has_jars:
            raise _NoClassError

    thread = SimpleNamespace(getContextClassLoader=lambda: SimpleNamespace(loadClass=load))
    lang = SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
    java = SimpleNamespace(java=SimpleNamespace(lang=lang))
    context = SimpleNamespace(
        _jvm=java, _conf={"spark.master": "local[2,4]", "spark.python.daemon.module": "streams.engine.spark.daemon"}
    )
    return SimpleNamespace(
        sparkContext=context, version="4.2.0", conf={name.replace("_", "."): value for name, value in conf.items()}
    )


def test_a_session_that_has_all_of_delta_is_taken() -> None:
    session = _session(has_jars=True, spark_sql_extensions=f"Mine,{EXTENSION}")
    session.conf["spark.sql.catalog.spark_catalog"] = CATALOG
    check_delta(session)


@pytest.mark.parametrize(
    ("has_jars", "extensions", "lacks"),
    [(False, EXTENSION, "Delta's jars, "), (True, "Mine", f"spark.sql.extensions={EXTENSION}")],
)
def test_a_session_that_lacks_a_part_of_delta_is_told_how_to_start(
    has_jars: bool, extensions: str, lacks: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Before anything is made in Kafka.
    monkeypatch.setattr(runner, "KafkaAdmin", lambda client: pytest.fail("Kafka was asked"))
    config = StreamsConfig(application_id="a", bootstrap_servers="host:1", base_dir=tmp_path)
    topology: Any = SimpleNamespace(needs_delta=True)
    with pytest.raises(DeltaMissingError, match=f"(?s)lacks {lacks}.*--packages {PACKAGE}"):
        StreamsApplication(topology, config).run(_session(has_jars=has_jars, spark_sql_extensions=extensions))


@pytest.mark.parametrize(("call", "needs"), [('.to_delta("t")', True), ('.to("t")', False)])
def test_a_program_that_names_delta_tables_starts_java_with_them(call: str, needs: bool, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"builder.stream('in'){call}")
    assert TopologyTarget.parse(str(tmp_path / "app.py")).mentions_delta() is needs


def test_a_module_whose_file_is_elsewhere_is_not_searched() -> None:
    assert TopologyTarget.parse("no.such.module").mentions_delta() is False


# --- What is told of a failed query: one sentence out of Spark's pages.

SPARK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Lost task 0.3:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "task_function.py", line 3, in _run
ValueError: 10 // 0

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "nodes.py", line 3, in receive
{error}

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:9)
java.lang.RuntimeException: something of Java's
=== Streaming Query ===
Identifier: app/source [id = 1]"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "streams.engine.graph.handlers.RecordFailedError: record at in-0 offset 1",
            "RecordFailedError: record at in-0 offset 1",
        ),
        ("ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("pyspark.errors.PySparkRuntimeError: [X] y", "ValueError: 10 // 0"),
    ],
)
def test_the_innermost_error_of_python_is_reported(line: str, told: str) -> None:
    assert str(readable(Exception(SPARK.format(error=line)))) == told


def test_sparks_own_words_without_the_plan() -> None:
    text = "No space left on device\n=== Streaming Query ===\nIdentifier: app/source"
    assert str(readable(Exception(text))) == "No space left on device"
    text = "Job aborted\n\tat a.b.C\nCaused by: java.io.IOException: No space left on device\n\tat a.b.C"
    assert str(readable(Exception(text))) == "IOException: No space left on device"


def test_a_failure_of_java_within_a_call_from_java() -> None:
    text = (
        "An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "a.py", line 1, in call\n'
        "py4j.protocol.Py4JJavaError: An error occurred while calling o123.collectToPython.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: cannot rollback the ResultStage\n\tat a.b.C"
    )
    assert (
        str(readable(Exception(text)))
        == "SparkException: Job aborted due to stage failure: cannot rollback the ResultStage"
    )


def test_a_sentence_of_several_lines_is_told_to_its_end() -> None:
    text = "[DELTA_X] Error getting change data as it was not\nrecorded for version [3].\n\n\tat a.b.C\n=== Streaming Query ==="
    assert (
        str(readable(Exception(text))) == "[DELTA_X] Error getting change data as it was not recorded for version [3]."
    )
    assert str(readable(Exception("Job aborted\n\tat a.b.C\n\tat a.b.D"))) == "Job aborted"


def test_a_worker_that_died() -> None:
    text = (
        "SparkException: x\nCaused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed): "
    )
    told = str(readable(Exception(text + "Fatal Python error: Segmentation fault\n\tat a.b.C")))
    assert "Fatal Python error: Segmentation fault" in told
    assert "\n" not in told


def test_a_process_that_did_not_start() -> None:
    failure = Exception("Python worker failed to connect back.\n=== Streaming Query ===")
    assert did_not_start(failure)
    assert not did_not_start(None)
    assert "start again" in str(readable(failure))


# --- Group keys put each task on its own shuffle partition, by Spark's own hash.


def test_spark_hash_equals_sparks() -> None:
    # SELECT hash(0), hash(1), hash(42)
    assert [spark_hash(value) for value in (0, 1, 42)] == [933211791, -559580957, 29417773]


@pytest.mark.parametrize("tasks", [1, 2, 3, 16, 200])
def test_each_task_has_its_own_partition(tasks: int) -> None:
    assert [spark_hash(key) % tasks for key in shuffle_keys(tasks)] == list(range(tasks))
