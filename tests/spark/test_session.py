"""What is said of a Spark session, the user's own too; no Spark is started."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.spark import runner
from streams.spark.runner import StreamsApplication
from streams.spark.session import MEMORY_ENVIRONMENT, check_session, session_settings

GOOD = {"spark.master": "local[2,4]", "spark.python.daemon.module": "streams.spark.daemon"}


def session(**changed: str) -> Any:
    conf = {**GOOD, **{key.replace("_", "."): value for key, value in changed.items()}}
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


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
