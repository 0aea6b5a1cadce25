"""Waits until a newly started cluster is ready: all nodes listen, and the metadata lists all of them."""

import re
import time
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams.broker.errors import BrokerStartError, PortInUseError
from streams.broker.node import NodeFolder
from streams.broker.ports import HOST, is_listening
from streams.broker.record import ClusterRecord

_POLL_S = 0.1
_REQUEST_TIMEOUT_S = 2.0


def await_ready(
    cluster: ClusterRecord, folders: Sequence[NodeFolder], deadline: float, client: Mapping[str, str]
) -> None:
    """Returns once every node listens and the cluster's metadata lists all of them (none is fenced any more).

    Raises:
        BrokerStartError: A node ended, or time is up; with the tail of its log.
    """
    # A client retries a closed port at growing intervals, so it is created only once all nodes listen.
    while not all(is_listening(node.port) for node in cluster.nodes):
        _check(cluster, folders, deadline)
        time.sleep(_POLL_S)
    admin = AdminClient({**client, "log_level": "0"})
    while not _is_complete(admin, cluster):
        _check(cluster, folders, deadline)
        time.sleep(_POLL_S)


def _is_complete(admin: AdminClient, cluster: ClusterRecord) -> bool:
    try:
        metadata = admin.list_topics(timeout=_REQUEST_TIMEOUT_S)
    except KafkaException:
        return False
    # The cluster id is compared, because another Kafka may have taken the port first.
    return metadata.cluster_id == cluster.cluster_id and len(metadata.brokers) == len(cluster.nodes)


def _check(cluster: ClusterRecord, folders: Sequence[NodeFolder], deadline: float) -> None:
    for node, folder in zip(cluster.nodes, folders, strict=True):
        if not node.is_running():
            if taken := re.search(r"bind to (\S+:\d+): Address already in use", folder.log_tail()):
                raise PortInUseError(
                    f"{taken[1]} is already in use by another process, so Kafka node {node.node_id} cannot start there: end that "
                    "process, or choose another port (streams broker start --port)"
                )
            raise BrokerStartError(
                f"Kafka node {node.node_id} ({HOST}:{node.port}) ended while it was starting. Its log:\n"
                f"{folder.log_tail()}"
            )
    if time.monotonic() > deadline:
        raise BrokerStartError(
            f"Kafka at {cluster.bootstrap_servers} was not ready in time. The log of node {cluster.nodes[0].node_id}:\n"
            f"{folders[0].log_tail()}"
        )
