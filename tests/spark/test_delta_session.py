"""A session with Delta Lake: the settings it starts with, and what is said of one without it. No Spark is started."""

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
from streams.errors import DeltaMissingError
from streams.spark import runner
from streams.spark.delta import CATALOG, EXTENSION, PACKAGE, check_delta, delta_settings
from streams.spark.runner import StreamsApplication
from streams.spark.session import session_settings


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark session that other tests run in this process would give its settings to new ones."""
    monkeypatch.setattr("streams.spark.session.SparkConf", lambda: SparkConf(loadDefaults=False))


@pytest.fixture(autouse=True)
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A set of jars in the cache folder, as the setting `spark.jars` names it."""
    monkeypatch.setenv("STREAMS_CACHE_DIR", str(tmp_path))
    DELTA_JARS.folder.mkdir(parents=True)
    (DELTA_JARS.folder / "delta-spark_4.2_2.13-4.4.0.jar").write_bytes(b"a jar")
    (DELTA_JARS.folder / "delta-storage-4.4.0.jar").write_bytes(b"another")
    write_manifest(DELTA_JARS.folder)
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
        _jvm=java, getConf=lambda: {"spark.master": "local[2,4]", "spark.python.daemon.module": "streams.spark.daemon"}
    )
    return SimpleNamespace(sparkContext=context, conf={name.replace("_", "."): value for name, value in conf.items()})


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
