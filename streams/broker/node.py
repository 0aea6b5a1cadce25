"""One node of the cluster: its folder, its storage, its Java process, its log.

node-1/server.properties   settings of the last start
node-1/server.log          the broker's log
node-1/jvm.log             the output of Java itself
node-1/data/               Kafka's own logs: topics and metadata
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state.tables.private_folder import make_private, write_private
from streams.broker.errors import BrokerStartError
from streams.broker.jars import class_path
from streams.broker.java import find_java
from streams.broker.ports import HOST
from streams.broker.processes import ProcessId, started_at
from streams.broker.properties import log4j_configuration, render, server_properties
from streams.broker.record import ClusterRecord, NodeRecord
from streams.broker.secure.security import Security, first_users

DEFAULT_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Suitable for one small broker beside Spark on few cores: less memory and compilation instead of peak throughput."""

_FORMAT_TIMEOUT_S = 120.0
_TAIL_LINES = 15
_TAIL_BYTES = 64 * 1024

# Java processes that this Python process has started, by id. Each must be waited for, or it would remain as a zombie.
_children: dict[int, "subprocess.Popen[bytes]"] = {}


@dataclass(frozen=True, slots=True)
class JavaSettings:
    """How Java runs a node.

    Attributes:
        heap: The maximum heap size in Java's notation, such as "512m".
        options: Further options of the Java command.
    """

    heap: str = "512m"
    options: tuple[str, ...] = DEFAULT_JVM_OPTIONS


class NodeFolder:
    """The folder of one node, with the operations on it."""

    def __init__(self, data_dir: Path, node_id: int) -> None:
        self.path = data_dir / f"node-{node_id}"
        self.log_dir = self.path / "data"
        self._node_id = node_id
        self._server_log = self.path / "server.log"
        self._jvm_log = self.path / "jvm.log"
        self._settings = self.path / "server.properties"
        self._log_starts = {self._server_log: 0, self._jvm_log: 0}

    def launch(self, cluster: ClusterRecord, node: NodeRecord, java: JavaSettings) -> ProcessId:
        """Formats the storage at the first start, and starts the node, without waiting until it is ready.

        Raises:
            JavaError: There is no usable Java.
            JarsMissingError: The jars were not fetched.
            BrokerStartError: The storage could not be formatted.
        """
        make_private(self.path)
        log4j = self.path / "log4j2.properties"
        log4j.write_text(log4j_configuration(self._server_log))
        security = Security.of(self.path.parent) if cluster.secured else None
        secure = security.server_properties(node.port, node.controller_port, HOST) if security is not None else {}
        write_private(self._settings, render(server_properties(cluster, node, self.log_dir, secure)).encode())
        command = [
            str(find_java()),
            f"-Xmx{java.heap}",
            *java.options,
            f"-Dlog4j2.configurationFile={log4j}",
            *("-cp", class_path()),
        ]
        self._remember_log_ends()
        if not (self.log_dir / "meta.properties").exists():
            self._format(command, cluster.cluster_id, security)
        with self._jvm_log.open("ab") as output:
            process = subprocess.Popen(
                [*command, "kafka.Kafka", str(self._settings)],
                cwd=self.path,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _children[process.pid] = process
        return ProcessId(process.pid, started_at(process.pid) or "ended at once")

    def _format(self, command: Sequence[str], cluster_id: str, security: Security | None) -> None:
        arguments = ("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self._settings))
        with first_users(security) as users:
            done = subprocess.run(
                [*command, *arguments, *users], capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S, check=False
            )
        if done.returncode != 0:
            output = _without_frames((done.stdout + done.stderr).splitlines())[-_TAIL_LINES:]
            raise BrokerStartError(
                f"The storage of Kafka node {self._node_id} in {self.log_dir} could not be formatted:\n"
                + "\n".join(output)
            )

    def remove_data(self) -> None:
        """Removes the node's topics and metadata, so that the next start formats the storage again."""
        shutil.rmtree(self.log_dir, ignore_errors=True)

    def log_tail(self) -> str:
        """Returns the log lines that explain a failed start: the first error, or else the last lines."""
        lines = _without_frames([line for log in self._log_starts for line in self._new_lines(log)])
        first_error = next(
            (i for i, line in enumerate(lines) if re.search(r" (ERROR|FATAL) |Exception|^Error", line)), None
        )
        shown = lines[-_TAIL_LINES:] if first_error is None else lines[first_error : first_error + _TAIL_LINES]
        return "\n".join([*shown, f"(whole log: {self._server_log})"])

    def _remember_log_ends(self) -> None:
        for log in self._log_starts:
            self._log_starts[log] = log.stat().st_size if log.exists() else 0

    def _new_lines(self, log: Path) -> list[str]:
        if not log.exists():
            return []
        size = log.stat().st_size
        start = self._log_starts[log]
        with log.open("rb") as file:
            # A log that is shorter than before was rolled over; a very long one is read from near its end.
            file.seek(max(start if start <= size else 0, size - _TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()


def _without_frames(lines: Sequence[str]) -> list[str]:
    """Drops the frames of Java's stack traces, but not the exceptions and their causes."""
    return [line for line in lines if not re.match(r"\s+(at |\.\.\. )", line)]


def reap(pid: int) -> None:
    """Waits for an ended Java process of this Python process, so that it does not remain as a zombie."""
    child = _children.pop(pid, None)
    if child is not None:
        child.wait()
