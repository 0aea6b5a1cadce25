"""A cluster for the benchmarks' smoke runs: the tests' own broker."""

import pytest

from benchmarks.harness.cluster import Cluster
from streams.broker import EmbeddedBroker


@pytest.fixture
def cluster(broker: EmbeddedBroker) -> Cluster:
    return Cluster(broker.bootstrap_servers, broker.data_dir, broker)
