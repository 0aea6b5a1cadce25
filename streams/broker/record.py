"""`broker.json`: the record of a data folder's cluster, by which any process can find, check and stop it.

The file is replaced atomically by a rename; ports, cluster id and properties are valid for the life of the folder,
process ids for one run.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from state.tables.private_folder import write_private
from streams.broker.errors import DataFolderError
from streams.broker.ports import HOST
from streams.broker.processes import ProcessId

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
        """Whether the node's process is still running."""
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
        """The nodes' addresses for Kafka clients, comma separated."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def with_process(self, node_id: int, process: ProcessId | None) -> "ClusterRecord":
        """Returns a copy in which the node has this process."""
        nodes = tuple(replace(node, process=process) if node.node_id == node_id else node for node in self.nodes)
        return replace(self, nodes=nodes)

    def save(self, data_dir: Path) -> None:
        """Writes the record into the data folder, atomically."""
        write_private(data_dir / FILE_NAME, (json.dumps({"format": _FORMAT, **asdict(self)}, indent=2) + "\n").encode())

    @classmethod
    def load(cls, data_dir: Path) -> "ClusterRecord | None":
        """The record of a data folder; None if the folder has no cluster.

        Raises:
            DataFolderError: The file cannot be read or was written by another version.
        """
        path = data_dir / FILE_NAME
        try:
            content: dict[str, Any] = json.loads(path.read_text())
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}, expected {_FORMAT}")
            nodes = tuple(_node(node) for node in content["nodes"])
            secured = content.get("secured", False)
            return cls(content["cluster_id"], content["kafka_version"], nodes, content["properties"], secured)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataFolderError(
                f"{path} cannot be read ({type(error).__name__}: {error}). If its data may go, remove the folder; "
                "otherwise use another one (--data-dir)."
            ) from error


def _node(content: dict[str, Any]) -> NodeRecord:
    process = content["process"]
    return NodeRecord(
        content["node_id"], content["port"], content["controller_port"], ProcessId(**process) if process else None
    )


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
        """True when every node's process runs and listens."""
        return bool(self.nodes) and all(node.pid is not None and node.answers for node in self.nodes)
