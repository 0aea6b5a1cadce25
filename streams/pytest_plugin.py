"""Fixtures for the tests of applications. pytest finds them wherever the package is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from streams.broker import EmbeddedBroker
    from streams.testing import TopologyTestDriver
    from streams.topology.topology import Topology


class MakeDriver(Protocol):
    """Makes a test driver of a topology, with the driver's own options."""

    def __call__(self, topology: Topology, **options: Any) -> TopologyTestDriver: ...


@pytest.fixture
def topology_test_driver() -> Iterator[MakeDriver]:
    """Returns a function that makes a `TopologyTestDriver`, which is closed at the end of the test."""
    from streams.testing import TopologyTestDriver

    with ExitStack() as drivers:
        yield lambda topology, **options: drivers.enter_context(TopologyTestDriver(topology, **options))


@pytest.fixture(scope="session")
def embedded_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A real Kafka broker for all tests of the session (`.bootstrap_servers`), which ends with the session. Needs Java."""
    from streams.broker import EmbeddedBroker, fetch_jars

    fetch_jars()
    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), die_with_parent=True) as broker:
        yield broker
