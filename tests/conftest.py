"""Fixtures for all tests: one real Kafka broker for the session, and topics of their own for each test.

Nothing here starts before a test asks for it. Tests that use the broker or Spark are marked `kafka` or `spark` by their
fixtures, so that `pytest -m "not kafka"` needs no Java.
"""

import gc
import itertools
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import is_hypothesis_test

from state import secrets
from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker, fetch_jars
from tests import budget

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MARKERS_OF_FIXTURES = {"broker": "kafka", "spark": "spark"}
_ON_BROKERS = "kafka or spark"
_NAMES_ONE = re.compile(
    r"\bmark\.(?:kafka|spark)\b|\bdef \w+\([^)]*\b(?:broker|spark|harness)\b|\bdef test_\w+\([^)]*\btopic\b[,:)]"
)
"""A file with a test that has a broker or Spark marks it, or names a fixture that has them."""
_START_TIMEOUT_S = 240.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long` is what `make test-long` gives."""
    parser.addoption(
        "--long", action="store_true", help="run the tests marked `long`, and properties with all examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Decides how much properties search, which they ask when they are collected."""
    if config.getoption("--long"):
        budget.search_all()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where only tests on brokers and Spark are asked for, other files are not imported: all of them take half a minute of CPU."""
    if config.option.markexpr != _ON_BROKERS or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return None if _names_one(collection_path) else True


@cache
def _names_one(file: Path) -> bool:
    return _NAMES_ONE.search(file.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test by the fixtures it uses, directly or through others; leaves out the long ones, or all but these.

    Properties are in both, for a longer run searches more.
    """
    for item in items:
        for fixture, marker in _MARKERS_OF_FIXTURES.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        if any(map(item.get_closest_marker, _MARKERS_OF_FIXTURES.values())) and not _names_one(item.path):
            raise pytest.UsageError(
                f"{item.path} has a test on a broker or Spark, and names no fixture: see _NAMES_ONE"
            )
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        is_long = item.get_closest_marker("long") is not None
        is_property = is_hypothesis_test(getattr(item, "obj", None))
        wanted = is_long or is_property if config.getoption("--long") else not is_long
        (chosen if wanted else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def pytest_collection_finish() -> None:
    """What is imported by now lives as long as the process: it is not searched for garbage again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A single-node Kafka for all tests of the session; use `broker.bootstrap_servers`.

    Its data goes with the session, its process goes with this one even if that is killed. Tests that stop or kill a
    broker start one of their own.
    """
    fetch_jars()
    # It is never killed, and so need not be missed soon; but a busy machine may keep it from telling that it lives.
    properties = {"broker.session.timeout.ms": "60000"}
    broker = EmbeddedBroker(
        tmp_path_factory.mktemp("kafka"),
        properties=properties,
        die_with_parent=True,
        start_timeout_s=_START_TIMEOUT_S,
    )
    try:
        broker.start()
        yield broker
    finally:
        broker.stop(delete=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One Spark session for all tests of the session, started with the engine's own settings, and with Delta if it fits."""
    from streams.driver.delta import jars_fit
    from streams.driver.launch.ahead import start_session

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.master": "local[2,4]",
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
        # Spark and Delta split what they shuffle, and the list of a table's files, into 200 and 50 parts: tests have a few rows.
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    session = start_session("tests", settings, str(folder), delta=jars_fit())
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that one test notes is masked in that test only."""
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_pattern", [])


@pytest.fixture(autouse=True, scope="module")
def _no_readers_of_other_files() -> Iterator[None]:
    """Steps that run in the tests' own process leave readers open for the next step, as in a worker: five threads each."""
    yield
    if (readers := sys.modules.get("state.kafka.reader")) is not None:
        readers.close_shared_readers()


class TopicFactory(Protocol):
    """Makes a topic with a name that no other test has."""

    def __call__(self, partitions: int = 1, *, name: str = "", **config: str | int) -> str:
        """Creates a topic and returns its name once it can be used.

        Args:
            partitions: how many.
            name: a word to start the name with; default: the test's name.
            config: topic settings with `_` for `.`, such as `cleanup_policy="compact"`.
        """


@pytest.fixture(scope="session")
def _kafka_admin(broker: EmbeddedBroker) -> KafkaAdmin:
    return KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}, timeout_s=60)


@pytest.fixture(scope="session")
def _topic_numbers() -> Callable[[], int]:
    return itertools.count(1).__next__


@pytest.fixture
def topic(_kafka_admin: KafkaAdmin, _topic_numbers: Callable[[], int], request: pytest.FixtureRequest) -> TopicFactory:
    """A factory of topics: `topic()`, `topic(4)`, `topic(2, cleanup_policy="compact")` -> the new topic's name.

    Records are kept whatever their timestamp (`retention.ms=-1`), unless the test sets something else.
    """

    def make(partitions: int = 1, *, name: str = "", **config: str | int) -> str:
        word = re.sub(r"[^a-zA-Z0-9._-]+", "-", name or request.node.name).strip("-")[:100]
        unique = f"{word}-{_topic_numbers()}"
        given = {"retention.ms": "-1"} | {key.replace("_", "."): str(value) for key, value in config.items()}
        _kafka_admin.create_topics([TopicSpec(unique, partitions, given, 1)])
        return unique

    return make
