"""A real Apache Kafka for development, tests and fault drills, run from Python: no Docker, no Maven, only Java.

A data folder belongs to one cluster of one or three KRaft nodes (broker and controller in one JVM each). The folder
contains everything: logs, settings, and `broker.json` with ports and process ids, by which any later process finds,
checks and stops the cluster. The cluster survives a stop, a kill and a restart on the same ports.

    with EmbeddedBroker(Path(".kafka")) as broker:
        print(broker.bootstrap_servers)
"""

from streams.broker.cluster import BrokerStatus, NodeStatus
from streams.broker.embedded import EmbeddedBroker
from streams.broker.jars import KAFKA_VERSION, fetch_jars
from streams.errors import (
    BrokerError,
    BrokerStartError,
    DataFolderError,
    JarFetchError,
    JarsMissingError,
    JavaError,
)

__all__ = [
    "KAFKA_VERSION",
    "BrokerError",
    "BrokerStartError",
    "BrokerStatus",
    "DataFolderError",
    "EmbeddedBroker",
    "JarFetchError",
    "JarsMissingError",
    "JavaError",
    "NodeStatus",
    "fetch_jars",
]
