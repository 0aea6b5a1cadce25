"""`EmbeddedBroker`: starts, stops, kills, restarts and inspects a cluster in a data folder."""

from __future__ import annotations

import logging
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.broker.class_archive import record
from streams.broker.cluster import FILE_NAME, BrokerStatus, ClusterRecord, NodeRecord, NodeStatus, RequestedCluster
from streams.broker.node import DEFAULT_JVM_OPTIONS, JavaSettings, NodeFolder, class_archive, reap
from streams.broker.processes import HOST, Watchdog, file_lock, is_listening
from streams.broker.secure import ADMIN, ClusterSecrets, write_clients
from streams.errors import BrokerStartError, DataFolderError, PortInUseError, StreamsError

_POLL_S = 0.1
_REQUEST_TIMEOUT_S = 2.0
_LOCK_NAME = "broker.lock"
_LOCK_TIMEOUT_S = 120.0
_KILL_TIMEOUT_S = 10.0
_PORT_ATTEMPTS = 3


class EmbeddedBroker:
    """A real Kafka cluster of one or three nodes on this machine, in a data folder of its own.

    `start` on the folder of an existing cluster restarts that cluster: same id, ports, topics and properties.
    Every method also works from another process than the one that started the cluster.

    Example:
        with EmbeddedBroker(Path(".kafka")) as broker:
            print(broker.bootstrap_servers)

    Args:
        data_dir: The data folder, created if missing.
        ports: The nodes' ports for clients; default: those of the folder's cluster, or free ones.
        nodes: 1 or 3; default: the number of nodes in the folder's cluster, or 1.
        properties: Broker settings that override the embedded ones; default: those of the folder's cluster.
        heap: Java's maximum heap size for each node.
        jvm_options: Further options of the Java command.
        die_with_parent: Whether the nodes end with this Python process, even after SIGKILL (for tests and drills).
        start_timeout_s: How long a start may take, in seconds.
        secured: Whether clients need TLS, a user and rights; default: as in the folder's cluster, else no.
        preferred_port: The port of a new cluster's first node, if it is free and `ports` is not given.
        users: Users of a secured cluster, besides `admin`: missing ones are made at the start, without any rights.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        ports: Sequence[int] | None = None,
        nodes: int | None = None,
        properties: Mapping[str, str] | None = None,
        heap: str = "512m",
        jvm_options: Sequence[str] = DEFAULT_JVM_OPTIONS,
        die_with_parent: bool = False,
        start_timeout_s: float = 90.0,
        secured: bool | None = None,
        users: Sequence[str] = (),
        preferred_port: int | None = None,
    ) -> None:
        if users and secured is False:
            raise ValueError("users need a secured cluster")
        self.data_dir = Path(data_dir).absolute()
        self._requested = RequestedCluster(
            None if ports is None else tuple(ports),
            nodes,
            None if properties is None else dict(properties),
            secured,
            preferred_port,
        )
        self._java = JavaSettings(heap, tuple(jvm_options))
        self._die_with_parent = die_with_parent
        self._start_timeout_s = start_timeout_s
        self._users = tuple(users)
        self._guard: Watchdog | None = None
        self._folders: dict[int, NodeFolder] = {}

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """The nodes' addresses for Kafka clients; `DataFolderError` if the folder has no cluster."""
        return self._cluster().bootstrap_servers

    def client(self, user: str = ADMIN) -> dict[str, str]:
        """The client properties with which a user reaches the cluster; without security, the addresses alone."""
        cluster = self._cluster()
        if not cluster.secured:
            return {"bootstrap.servers": cluster.bootstrap_servers}
        client = ClusterSecrets.of(self.data_dir).written_client(user)
        if client is None:
            raise DataFolderError(
                f"the cluster in {self.data_dir} has no user {user!r}: streams broker start --user {user}"
            )
        return client

    def start(self, *, node_id: int | None = None) -> None:
        """Starts every node that is not running, and returns once the cluster answers requests.

        Raises:
            JavaError: There is no usable Java.
            JarsMissingError: The broker's jars were not fetched.
            DataFolderError: The folder's cluster differs from the requested one.
            BrokerStartError: A node ended, or the cluster was not ready in time; all started nodes are ended.
        """
        with self._locked():
            existing = ClusterRecord.load(self.data_dir)
            if existing is not None:
                self._run(self._requested.applied_to(existing, self.data_dir), node_id)
            else:
                self._create()

    def stop(self, *, node_id: int | None = None, delete: bool = False, timeout_s: float = 30.0) -> None:
        """Stops one node or all gracefully; a node that does not end in time is killed. Does nothing if none is running."""
        if not self.data_dir.exists():
            return
        with self._locked():
            cluster = ClusterRecord.load(self.data_dir)
            if cluster is not None:
                self._end(cluster, signal.SIGTERM, timeout_s, _chosen(cluster, node_id))
            if node_id is None and self._guard is not None:
                self._guard.release()
                self._guard = None
            if delete:
                self._delete()
        if delete:
            self._remove_lock()

    def kill(self, node_id: int | None = None) -> None:
        """Kills one node or all, as a power cut would; `start` restarts them. For drills.

        Raises:
            DataFolderError: The folder has no cluster.
        """
        with self._locked():
            cluster = self._cluster()
            self._end(cluster, signal.SIGKILL, _KILL_TIMEOUT_S, _chosen(cluster, node_id))

    def status(self) -> BrokerStatus:
        """The state of the cluster's processes and ports; changes nothing."""
        cluster = ClusterRecord.load(self.data_dir)
        if cluster is None:
            return BrokerStatus(self.data_dir, "", "", "", ())
        nodes = tuple(
            NodeStatus(
                node.node_id,
                node.port,
                node.process.pid if node.process is not None and node.is_running() else None,
                is_listening(node.port),
            )
            for node in cluster.nodes
        )
        files = ClusterSecrets.of(self.data_dir).files() if cluster.secured else ()
        return BrokerStatus(
            self.data_dir,
            cluster.bootstrap_servers,
            cluster.cluster_id,
            cluster.kafka_version,
            nodes,
            cluster.secured,
            tuple(files),
        )

    def _locked(self) -> AbstractContextManager[None]:
        return file_lock(self.data_dir / _LOCK_NAME, _LOCK_TIMEOUT_S)

    def _cluster(self) -> ClusterRecord:
        cluster = ClusterRecord.load(self.data_dir)
        if cluster is None:
            raise DataFolderError(f"{self.data_dir} holds no cluster yet. Start one with: streams broker start")
        return cluster

    def _folder(self, node: NodeRecord) -> NodeFolder:
        return self._folders.setdefault(node.node_id, NodeFolder(self.data_dir, node.node_id))

    def _create(self) -> None:
        """Creates and starts a new cluster. If another process takes a chosen port first, a new one is chosen."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            cluster = self._requested.new()
            try:
                self._run(cluster)
                return
            except PortInUseError:
                self._forget_new_cluster(cluster)
                if self._requested.ports is not None or attempt == _PORT_ATTEMPTS:
                    raise
            except BaseException:
                self._forget_new_cluster(cluster)
                raise

    def _forget_new_cluster(self, cluster: ClusterRecord) -> None:
        """Deletes everything but the logs of a cluster that never ran, so that the next start begins from scratch."""
        (self.data_dir / FILE_NAME).unlink(missing_ok=True)
        for node in cluster.nodes:
            self._folder(node).remove_data()

    def _run(self, cluster: ClusterRecord, node_id: int | None = None) -> None:
        launched: list[NodeRecord] = []
        if cluster.secured:
            ClusterSecrets.of(self.data_dir).make()
        try:
            for node in _chosen(cluster, node_id):
                if not node.is_running():
                    cluster = self._launch(cluster, node)
                    launched.append(cluster.nodes[node.node_id - 1])
            # If only one node is started, others may stay down.
            running = cluster.nodes if node_id is None else tuple(node for node in cluster.nodes if node.is_running())
            folders = [self._folder(node) for node in running]
            client = self._admin_client(cluster)
            _await_ready(replace(cluster, nodes=running), folders, time.monotonic() + self._start_timeout_s, client)
            if cluster.secured:
                write_clients(ClusterSecrets.of(self.data_dir), cluster.bootstrap_servers, self._users)
        except BaseException:
            self._end(cluster, signal.SIGKILL, _KILL_TIMEOUT_S, tuple(launched))
            raise

    def _admin_client(self, cluster: ClusterRecord) -> dict[str, str]:
        servers = cluster.bootstrap_servers
        return (
            ClusterSecrets.of(self.data_dir).client(ADMIN, servers)
            if cluster.secured
            else {"bootstrap.servers": servers}
        )

    def _launch(self, cluster: ClusterRecord, node: NodeRecord) -> ClusterRecord:
        if self._die_with_parent and self._guard is None:
            self._guard = Watchdog()
        process = self._folder(node).launch(cluster, node, self._java)
        if self._guard is not None:
            self._guard.watch(process.pid)
        cluster = cluster.with_process(node.node_id, process)
        cluster.save(self.data_dir)
        return cluster

    def _end(
        self,
        cluster: ClusterRecord,
        how: signal.Signals,
        timeout_s: float,
        nodes: tuple[NodeRecord, ...] | None = None,
    ) -> None:
        for node in reversed(cluster.nodes if nodes is None else nodes):
            process = node.process
            if process is None:
                continue
            process.send(how)
            if not process.wait(timeout_s):
                process.send(signal.SIGKILL)
                process.wait(_KILL_TIMEOUT_S)
            reap(process.pid)
            if self._guard is not None:
                self._guard.forget(process.pid)
            cluster = cluster.with_process(node.node_id, None)
            cluster.save(self.data_dir)

    def _delete(self) -> None:
        """Removes only the broker's files: the folder is the user's and may contain other files."""
        for folder in self.data_dir.glob("node-*"):
            shutil.rmtree(folder)
        if ClusterSecrets.of(self.data_dir).certificates.authority.exists():
            shutil.rmtree(ClusterSecrets.of(self.data_dir).folder)
        (self.data_dir / FILE_NAME).unlink(missing_ok=True)

    def _remove_lock(self) -> None:
        (self.data_dir / _LOCK_NAME).unlink(missing_ok=True)
        if not any(self.data_dir.iterdir()):
            self.data_dir.rmdir()


def _chosen(cluster: ClusterRecord, node_id: int | None) -> tuple[NodeRecord, ...]:
    return tuple(node for node in cluster.nodes if node_id in (None, node.node_id))


def _await_ready(
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


# --- Records the archive of the embedded broker's classes (`class_archive.py`), by starting a broker, using it a little and
# stopping it.
#
# The archive belongs to the jars, so it is stored with them in the cache folder and deleted with them.


log = logging.getLogger(__name__)

_END_S = 120.0
"""How long Java may take to write the archive, seconds."""
_TOPIC = "classes"
_REQUEST_S = 30.0


def record_classes() -> None:
    """Records the archive, unless there is one for this Java; if that fails, a broker only takes longer to start."""
    try:
        record(class_archive(), _run)
    except (StreamsError, KafkaException, OSError) as error:
        log.debug("the broker's classes could not be recorded: %s", error)


def _run(options: Sequence[str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="streams-classes-") as folder:
        broker = EmbeddedBroker(Path(folder), jvm_options=(*DEFAULT_JVM_OPTIONS, *options), die_with_parent=True)
        with broker:
            _use(broker.bootstrap_servers)
            cluster = ClusterRecord.load(Path(folder))
            assert cluster is not None
            process = cluster.nodes[0].process
            assert process is not None
            process.send(signal.SIGTERM)
            return process.wait(_END_S)


def _use(servers: str) -> None:
    """One transaction, read by a consumer group: what every application does."""
    client = {"bootstrap.servers": servers, "log_level": "0"}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(_TOPIC, 1, 1)])[_TOPIC].result(_REQUEST_S)
    producer = Producer({**client, "transactional.id": _TOPIC})
    producer.init_transactions(_REQUEST_S)
    producer.begin_transaction()
    producer.produce(_TOPIC, b"record")
    producer.commit_transaction(_REQUEST_S)
    consumer = Consumer({**client, "group.id": _TOPIC, "auto.offset.reset": "earliest"})
    consumer.subscribe([_TOPIC])
    if consumer.poll(_REQUEST_S) is not None:
        consumer.commit(asynchronous=False)
    consumer.close()
