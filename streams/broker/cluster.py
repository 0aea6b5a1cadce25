"""A data folder's cluster: as recorded in `broker.json`, as seen from outside, and as requested by the caller of a start.

By `broker.json`, any process can find, check and stop the cluster.
The file is replaced atomically by a rename; ports, cluster id and properties are valid for the life of the folder,
process ids for one run.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from state.tables.files import write_private
from streams.broker.jars import KAFKA_VERSION
from streams.broker.processes import HOST, ProcessId, free_ports
from streams.errors import DataFolderError

FILE_NAME = "broker.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node: its id from 1, its ports, and its process while it runs."""

    node_id: int
    port: int
    controller_port: int
    process: ProcessId | None = None

    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive()


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """One cluster, as recorded in the data folder.

    Attributes:
        secured: Whether clients need TLS, a user and rights (`streams.broker.secure`).
    """

    cluster_id: str
    kafka_version: str
    nodes: tuple[NodeRecord, ...]
    properties: dict[str, str]
    secured: bool = False

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def with_process(self, node_id: int, process: ProcessId | None) -> ClusterRecord:
        nodes = tuple(replace(node, process=process) if node.node_id == node_id else node for node in self.nodes)
        return replace(self, nodes=nodes)

    def save(self, data_dir: Path) -> None:
        write_private(data_dir / FILE_NAME, (json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n").encode())

    @classmethod
    def load(cls, data_dir: Path) -> ClusterRecord | None:
        """The record of a data folder; None if the folder has no cluster."""
        path = data_dir / FILE_NAME
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}, expected {_FORMAT}")
            nodes = tuple(
                NodeRecord(**{**node, "process": node["process"] and ProcessId(**node["process"])})
                for node in content["nodes"]
            )
            secured = content.get("secured", False)
            return cls(content["cluster_id"], content["kafka_version"], nodes, content["properties"], secured)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataFolderError(
                f"{path} cannot be read ({type(error).__name__}: {error}). If you do not need its data, delete the folder; "
                "otherwise use another one (--data-dir)."
            ) from error


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """The state of one node, as seen from outside.

    Attributes:
        pid: The process id while it runs, else None.
        answers: Whether a process listens on its port.
    """

    node_id: int
    port: int
    pid: int | None
    answers: bool


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """The state of a cluster, as seen from outside; `nodes` is empty for a folder without a cluster.

    Attributes:
        secured: Whether clients need TLS, a user and rights.
        client_files: The client properties files of the users of a secured cluster.
    """

    data_dir: Path
    bootstrap_servers: str
    cluster_id: str
    kafka_version: str
    nodes: tuple[NodeStatus, ...]
    secured: bool = False
    client_files: tuple[Path, ...] = ()

    @property
    def running(self) -> bool:
        """Whether every node's process runs and listens."""
        return bool(self.nodes) and all(node.pid is not None and node.answers for node in self.nodes)


@dataclass(frozen=True, slots=True)
class RequestedCluster:
    """The cluster that a caller wants. If an attribute is None, the cluster's value stays; a new cluster gets the default.

    Attributes:
        nodes: 1 or 3; default: as many as `ports`, or 1.

    Raises:
        ValueError: A cluster cannot have this number of nodes, or the number of ports differs from it.
    """

    ports: Sequence[int] | None = None
    nodes: int | None = None
    properties: Mapping[str, str] | None = None
    secured: bool | None = None
    preferred_port: int | None = None

    def __post_init__(self) -> None:
        if self.nodes not in (None, 1, 3):
            raise ValueError(
                f"nodes is {self.nodes}, but a cluster has 1 node or 3 (2 cannot elect a leader when one dies)"
            )
        if self.ports is not None and self.nodes is not None and len(self.ports) != self.nodes:
            raise ValueError(f"{len(self.ports)} ports for {self.nodes} nodes: give one port for each node")

    def new(self) -> ClusterRecord:
        """A new cluster; each call chooses free ports again."""
        count = self.nodes or (len(self.ports) if self.ports else 1)
        ports = list(self.ports) if self.ports else free_ports(count, preferred=self.preferred_port)
        controllers = free_ports(count, taken=frozenset(ports))
        nodes = tuple(NodeRecord(i + 1, ports[i], controllers[i]) for i in range(count))
        # Kafka's format of an id: 16 bytes in URL-safe Base64, unpadded; a leading "-" would look like an option.
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        return ClusterRecord(cluster_id, KAFKA_VERSION, nodes, dict(self.properties or {}), bool(self.secured))

    def applied_to(self, cluster: ClusterRecord, data_dir: Path) -> ClusterRecord:
        """The cluster found in a data folder, with the requested ports and properties unless some of its nodes run."""
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
