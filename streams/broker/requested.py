"""`RequestedCluster`: what the caller of a start wants, as a new cluster or applied to the one that the data folder has."""

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streams.broker.errors import DataFolderError
from streams.broker.jars import KAFKA_VERSION
from streams.broker.ports import free_ports
from streams.broker.record import ClusterRecord, NodeRecord


@dataclass(frozen=True, slots=True)
class RequestedCluster:
    """The cluster that a caller wants; whatever is None stays as it is, or gets a default.

    Attributes:
        ports: The nodes' ports for clients; default: free ones.
        nodes: 1 or 3; default: as many as ports, or 1.
        properties: Broker settings that override the embedded ones; default: none.
        secured: Whether clients need TLS, a user and rights; default: not.

    Raises:
        ValueError: The number of nodes is no cluster, or does not fit the ports.
    """

    ports: Sequence[int] | None = None
    nodes: int | None = None
    properties: Mapping[str, str] | None = None
    secured: bool | None = None

    def __post_init__(self) -> None:
        if self.nodes not in (None, 1, 3):
            raise ValueError(
                f"nodes is {self.nodes}, but a cluster has 1 node or 3 (2 cannot elect a leader when one dies)"
            )
        if self.ports is not None and self.nodes is not None and len(self.ports) != self.nodes:
            raise ValueError(f"{len(self.ports)} ports for {self.nodes} nodes: give one port for each node")

    def new(self) -> ClusterRecord:
        """A new cluster; each call chooses the free ports anew."""
        count = self.nodes or (len(self.ports) if self.ports else 1)
        ports = list(self.ports) if self.ports else free_ports(count)
        controllers = free_ports(count, taken=frozenset(ports))
        nodes = tuple(NodeRecord(i + 1, ports[i], controllers[i]) for i in range(count))
        # Kafka's format of an id: 16 bytes in URL-safe Base64, unpadded; a leading "-" would look like an option.
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        return ClusterRecord(cluster_id, KAFKA_VERSION, nodes, dict(self.properties or {}), bool(self.secured))

    def applied_to(self, cluster: ClusterRecord, data_dir: Path) -> ClusterRecord:
        """The cluster found in a data folder, with the requested ports and properties unless some of its nodes run.

        Raises:
            DataFolderError: The cluster differs in what a start cannot change.
        """
        self._check(cluster, data_dir)
        if any(node.is_running() for node in cluster.nodes):
            return cluster
        nodes = cluster.nodes
        if self.ports is not None:
            if len(self.ports) != len(nodes):
                raise DataFolderError(f"{data_dir} holds {len(nodes)} node(s), but {len(self.ports)} port(s) are given")
            nodes = tuple(replace(node, port=port) for node, port in zip(nodes, self.ports, strict=True))
        properties = cluster.properties if self.properties is None else dict(self.properties)
        return replace(cluster, nodes=nodes, properties=properties)

    def _check(self, cluster: ClusterRecord, data_dir: Path) -> None:
        if cluster.kafka_version != KAFKA_VERSION:
            raise DataFolderError(
                f"{data_dir} was made with Kafka {cluster.kafka_version}, this is {KAFKA_VERSION}. Use another "
                "folder, or remove the cluster with: streams broker stop --delete"
            )
        if self.nodes is not None and self.nodes != len(cluster.nodes):
            raise DataFolderError(
                f"{data_dir} holds a cluster with {len(cluster.nodes)} node(s), not {self.nodes}. Use another "
                "folder, or remove the cluster with: streams broker stop --delete"
            )
        if self.secured is not None and self.secured != cluster.secured:
            raise DataFolderError(
                f"{data_dir} holds a cluster {'with' if cluster.secured else 'without'} security, and a start cannot "
                "change that. Use another folder, or remove the cluster with: streams broker stop --delete"
            )
