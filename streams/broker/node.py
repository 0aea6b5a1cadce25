"""One node of the cluster: its settings, its folder, its storage, its Java process, its log.

node-1/server.properties   settings of the last start
node-1/server.log          the broker's log
node-1/jvm.log             the output of Java itself
node-1/data/               Kafka's own logs: topics and metadata

The settings make a small, fast Kafka that never deletes records by age.
A cluster for tests and drills differs from a production cluster in three ways. First, a quick start with few resources
(one partition per internal topic, few threads). Second, background work within a second instead of minutes (abort of
timed-out transactions, retention, compaction). Third, no retention by time: event time in tests and replays is years away
from now, and Kafka's 7 days would delete such records as soon as they arrive.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from state.tables.files import make_private, write_private
from streams.broker.class_archive import archive_in, options_for
from streams.broker.cluster import ClusterRecord, NodeRecord
from streams.broker.jars import class_path, find_java, jar_dir
from streams.broker.processes import HOST, ProcessId, started_at
from streams.broker.secure import ClusterSecrets, first_users
from streams.errors import BrokerStartError

_LONG_MAX = str(2**63 - 1)

_QUICK_AND_SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.max.timeout.ms": str(15 * 60 * 1000),
}

# A killed node can only return when its old session has expired, by default 9 s after its death.
_BACK_SOON = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
}

# All nodes of an embedded cluster stop together. The last nodes would wait for minutes, in vain, for a majority of controllers to
# take over their partitions.
_STOP_TOGETHER = {"controlled.shutdown.enable": "false"}

# Three nodes share one disk, on which a durable write sometimes takes two seconds. With the default timeouts (2 s and 1 s), the
# controllers would then elect each other in turn for minutes, and no node could start.
_PATIENT_CONTROLLERS = {
    "controller.quorum.fetch.timeout.ms": "5000",
    "controller.quorum.election.timeout.ms": "3000",
}

_KEEP_WHAT_IS_GIVEN = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.message.timestamp.before.max.ms": _LONG_MAX,
    "log.message.timestamp.after.max.ms": _LONG_MAX,
}


def server_properties(
    cluster: ClusterRecord, node: NodeRecord, log_dir: Path, security: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    count = len(cluster.nodes)
    in_sync = "2" if count > 1 else "1"
    voters = ",".join(f"{other.node_id}@{HOST}:{other.controller_port}" for other in cluster.nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(log_dir),
        "default.replication.factor": str(count),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(count),
        "transaction.state.log.replication.factor": str(count),
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": str(count),
        "share.coordinator.state.topic.min.isr": in_sync,
        **_QUICK_AND_SMALL,
        **_BACK_SOON,
        **(_STOP_TOGETHER | _PATIENT_CONTROLLERS if count > 1 else {}),
        **_KEEP_WHAT_IS_GIVEN,
        **security,
        **cluster.properties,
    }


def render(properties: Mapping[str, str]) -> str:
    """Renders settings as a Java properties file; backslashes and line ends in values are escaped."""
    lines = (f"{key}={_escaped(value)}" for key, value in sorted(properties.items()))
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # Leading blanks would be removed when the file is read.
    return "\\" + text if text.startswith(" ") else text


def log4j_configuration(log_file: Path) -> str:
    """A log4j2 configuration that keeps the broker's log in one file of bounded size (and three older ones)."""
    return f"""\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log_file}
appender.file.filePattern = {log_file}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %m (%c{{1}})%n
appender.file.policy.type = SizeBasedTriggeringPolicy
appender.file.policy.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
"""


DEFAULT_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a small broker that shares few cores with Spark: it uses less memory and compiles less, but its peak throughput is lower."""

_FORMAT_TIMEOUT_S = 120.0
_TAIL_LINES = 15
_TAIL_BYTES = 64 * 1024

# Java processes that this Python process has started, by id. Each must be waited for, or it would remain as a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


def class_archive() -> Path:
    """The path of the archive of the broker's classes, whether it exists or not."""
    return archive_in(jar_dir(), "classes")


@dataclass(frozen=True, slots=True)
class JavaSettings:
    """How Java runs a node.

    Attributes:
        heap: The maximum heap size in Java's notation, such as "512m".
    """

    heap: str = "512m"
    options: tuple[str, ...] = DEFAULT_JVM_OPTIONS


class NodeFolder:
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
        security = ClusterSecrets.of(self.path.parent) if cluster.secured else None
        secure = security.server_properties(node.port, node.controller_port, HOST) if security is not None else {}
        write_private(self._settings, render(server_properties(cluster, node, self.log_dir, secure)).encode())
        command = [
            str(find_java()),
            f"-Xmx{java.heap}",
            *options_for(class_archive()),
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

    def _format(self, command: Sequence[str], cluster_id: str, security: ClusterSecrets | None) -> None:
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
        """The log lines that explain a failed start: the first error, or else the last lines."""
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
            # A log that is shorter than before was rolled over. A very long log is read from near its end.
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
