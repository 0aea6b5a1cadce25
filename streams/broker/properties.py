"""The broker's settings: a small, fast Kafka that never deletes records by age.

A cluster for tests and drills differs from a production cluster in three ways. First, a quick start with few resources
(one partition per internal topic, few threads). Second, background work within a second instead of minutes (abort of
timed-out transactions, retention, compaction). Third, no retention by time: event time in tests and replays is years away
from now, and Kafka's 7 days would delete such records as soon as they arrive.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from streams.broker.ports import HOST
from streams.broker.record import ClusterRecord, NodeRecord

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

# All nodes of an embedded cluster stop together. The last ones would wait, in vain and for minutes, for a majority
# of controllers to take over what they lead.
_STOP_TOGETHER = {"controlled.shutdown.enable": "false"}

# Three nodes share one disk, which now and then takes two seconds to write durably: by default (2 s and 1 s) controllers would then
# elect each other in turn, for minutes, and no node could start meanwhile.
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
    """Returns the settings of one node."""
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
    """Returns a log4j2 configuration that keeps the broker's log in one file of bounded size (and three older ones)."""
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
