"""`StoreServer` follows an application's commits in the background; `EmbeddedServer` does so inside the application's process."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from state.changelog import commits_topic, endpoints_topic, ensure_endpoints
from state.commit.marker import UNPLACED
from state.errors import KafkaClientError, StreamsError, TopicNotFoundError
from state.kafka.consumers import GroupMember
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import FUNCTIONS, Placement
from state.kafka.topics import TopicPartition
from state.restore.follower import Follower
from state.restore.place import CopiedTask
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.restore.verify import check_not_rescaled
from state.stores.task_store import open_task_store
from state.tables.files import make_private
from streams.application.markers import placed_marker
from streams.application.prepare import kafka_of, task_settings
from streams.application.restore import SERVED_AT_A_TIME
from streams.application.stored_tasks import stateful_subs, stored_tasks, with_own_topics
from streams.cluster.records import Outgoing, RecordWriter
from streams.config import StreamsConfig
from streams.config.settings import Address
from streams.engine.graph.global_tables import GlobalTables, global_store_specs
from streams.engine.source.log import now_ms
from streams.errors import ConfigError, StoreNotReadyError
from streams.serve.copies import CopyKafka, GlobalCopy, TaskCopy
from streams.serve.http.security import Guard, Security, check_protected
from streams.serve.http.servers import HttpThread, check_installed, listening
from streams.serve.local import LocalStore
from streams.serve.nodes import BEAT_S, Node, Nodes
from streams.serve.served import Served, replica_task
from streams.topology.plan import with_real_tables
from streams.topology.topology import Topology

_GLOBAL_LOGS = 16
_PLACEMENT_S = 1.0


class StoreServer:
    """Copies of an application's stores that follow its commits, within a `with` block.

    Args:
        topology: The application.
        config: Its settings.
        folder: Where the copies are, on this host; other processes need folders of their own.
        url: The address at which the other processes that serve this application reach this one; None: it is not announced to them.
        group: The consumer group whose members share the tasks; default: `<application>-serve`.
        alone: Whether this process has all tasks, and does not share them.
        parallel: How many copies are brought forward at a time.

    Raises:
        ConfigError: The application has never run on this cluster.
        TopologyError: It has no stores.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        folder: Path,
        url: str | None,
        group: str | None = None,
        parallel: int = SERVED_AT_A_TIME,
        alone: bool = False,
    ) -> None:
        self._config, self._folder, self._url, self._alone = config, folder, url, alone
        app = config.application_id
        topology = with_real_tables(with_own_topics(topology, config), app)
        places = [task.place for task in stored_tasks(topology, config)]
        tasks = {place.sub_topology: place.tasks for place in places}
        subs = stateful_subs(topology, app, sorted(tasks))
        known = [replica_task(app, sub, task, tasks[sub.name]) for sub in subs for task in range(tasks[sub.name])]
        self._tasks = {task.commits: task for task in known if task.specs}
        self._placements = _Placements(self._ask_placement, list(tasks))
        if not self._tasks:
            raise ConfigError(f"no store of {app} has a changelog, so there is nothing to serve")
        self._kafka = kafka_of(config)
        make_private(folder)
        global_copy = self._global_copy(topology)
        checks = self._check_not_rescaled, self._is_elsewhere
        self._follower = Follower(self._kafka, self._copy, self._tasks, global_copy, parallel, *checks)
        copies = (lambda: self._follower.copies), self._kafka, (lambda: global_copy)
        self.served = Served(topology, app, subs, tasks, *copies, self._placement_of)
        name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._group = f"{app}-serve-{name}" if alone else group or f"{app}-serve"
        self._writer = RecordWriter(config.client)
        # A late record has nothing that the next one does not have.
        self._node_writer = RecordWriter(config.client, wait_s=BEAT_S)
        node_log = _KafkaNodeLog(self._reader(1), self._node_writer, app, config.replication_factor)
        self.nodes = Nodes(name, node_log, self._me)
        self._ended = threading.Event()
        self._error: Exception | None = None
        self.on_error: Callable[[], None] = lambda: None
        loops: dict[str, Callable[[], None]] = {
            "follower": self._run,
            "placements": partial(self._placements.run, self._ended),
        }
        if url is not None:
            loops["nodes"] = partial(self.nodes.run, self._ended)
        self._threads = [threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()]

    def __enter__(self) -> StoreServer:
        if self._url is not None:
            # While the copies here are restored, the other processes answer.
            self.nodes.look()
        self._placements.look()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._follower.close()
        self._writer.close()
        self._node_writer.close()
        if error is None and self._error is not None:
            raise self._error

    @property
    def trouble(self) -> str:
        """The reason why commits cannot be followed now; empty: they are followed."""
        return str(self._error) if self._error is not None else self._follower.trouble

    def reader(self) -> AbstractContextManager[CopyKafka]:
        """A reader of Kafka for one client that follows changes."""
        return closing(self._reader(len(self._tasks)))

    def write(self, topic: str, record: Outgoing) -> tuple[int, int]:
        """Writes a record, and returns its partition and offset.

        Raises:
            KafkaClientError: Kafka did not accept it.
        """
        placement = self.served.placement_of_topic(topic)
        if record.key is not None and placement in FUNCTIONS:
            partition = partition_for_key(record.key, self._kafka.partition_count(topic), placement)
            record = replace(record, partition=partition)
        return self._writer.write(topic, record)

    def _placement_of(self, sub: str) -> Placement | None:
        """The placement of a sub-topology, from its commits if they have it, else from Kafka; None: it is not decided yet."""
        here = (copy.marker for copy in self._follower.copies.values() if copy.task.place.sub_topology == sub)
        said = next((marker.placement for marker in here if marker is not None and marker.placement != UNPLACED), None)
        return self._placements.of(sub) if said is None else Placement(said)

    def _ask_placement(self, sub: str) -> Placement | None:
        topic = commits_topic(self._config.application_id, sub)
        tasks = [number for place, number in self._tasks if place == topic]
        marker = placed_marker(self._kafka, topic, tasks)
        return None if marker is None else Placement(marker.placement)

    def _me(self) -> Node:
        return Node(self.nodes.id, self._url or "", self._group, tuple(self.served.copies_here()))

    def _reader(self, logs: int) -> CopyKafka:
        config = self._config
        return CopyKafka(config.client, config.transaction_timeout_ms, config.bulk_io, logs)

    def _run(self) -> None:
        topics = sorted({topic for topic, _ in self._tasks})
        try:
            kind = _Alone if self._alone else GroupMember
            member = kind(self._config.client, self._group, topics, self._follower.hear)
            try:
                self._follower.run(member, self._ended)
            finally:
                member.close()
        except Exception as error:
            # Raised at the end of the `with` block; until then the process ends its requests.
            self._error = without_topic(error) if isinstance(error, TopicNotFoundError) else error
            self.on_error()

    def _check_not_rescaled(self) -> None:
        check_not_rescaled(self._kafka, *{topic: task.place for (topic, _), task in self._tasks.items()}.values())

    def _is_elsewhere(self, place: TopicPartition) -> bool:
        task = self._tasks[place].place
        return bool(self.nodes.with_task(task.sub_topology, task.task, task.tasks))

    def _copy(self, place: TopicPartition) -> TaskCopy:
        task, config, memory = self._tasks[place], self._config, WorkerMemory()
        # One for each changelog: that of the commits topic, which is only read at first, gives way to them.
        kafka = self._reader(len(task.specs))

        def make(of: CopiedTask) -> TaskStateManager:
            identity, specs = of.place.identity(), list(of.specs)
            return TaskStateManager(kafka, identity, specs, self._folder, memory=memory, snapshots=config.snapshots)

        return TaskCopy(kafka, task, make, on_close=kafka.close)

    def _global_copy(self, topology: Topology) -> GlobalCopy | None:
        """The copy of the global tables, which is read from the start, because files on disk might lack deletions."""
        tables = list(topology.global_tables.values())
        if not tables:
            return None
        folder = self._folder / self._config.application_id / "global"
        shutil.rmtree(folder, ignore_errors=True)
        store = open_task_store(folder, global_store_specs(tables))
        kafka = self._reader(_GLOBAL_LOGS)
        settings = task_settings(self._config, {})
        return GlobalCopy(kafka, GlobalTables(tables, store, settings), store, now_ms, on_close=kafka.close)


class _Placements:
    """The placement of each sub-topology. A thread asks Kafka for it, since a read must not wait for brokers.

    Args:
        ask: Asks Kafka for a placement; None: it is not decided yet.
        subs: The sub-topologies.
    """

    def __init__(self, ask: Callable[[str], Placement | None], subs: Sequence[str]) -> None:
        self._ask, self._subs = ask, subs
        self._known: dict[str, Placement | None] = {}
        self._why = "Kafka was not asked yet"

    def of(self, sub: str) -> Placement | None:
        """The placement that Kafka returned; None: it was not decided then.

        Raises:
            StoreNotReadyError: Kafka has not answered yet.
        """
        if sub not in self._known:
            raise StoreNotReadyError(f"{sub}: it is not known yet which task has which keys: {self._why}")
        return self._known[sub]

    def look(self) -> bool:
        """Asks for the placements that are not decided, and returns whether any are left."""
        waiting = [sub for sub in self._subs if self._known.get(sub) is None]
        for sub in waiting:
            try:
                self._known[sub] = self._ask(sub)
            except StreamsError as error:
                self._why = str(error)
        return any(self._known.get(sub) is None for sub in waiting)

    def run(self, ended: threading.Event) -> None:
        """Asks until all placements are decided, or the event is set."""
        while not ended.wait(_PLACEMENT_S) and self.look():
            pass


def without_topic(error: TopicNotFoundError) -> ConfigError:
    """The error of a process whose application was reset."""
    return ConfigError(
        f"there is no topic {error.topic!r} any more: the application was reset, and has nothing that could be served. Start this "
        f"command again once the application has run"
    )


class _Alone(GroupMember):
    """The only member of a group. It commits nothing, so that nothing remains of the group."""

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        pass


class _KafkaNodeLog:
    """The compacted topic in which the processes that serve announce themselves."""

    _LAST = 1000
    """This many of the last records are read first: each process writes one every two seconds."""

    def __init__(self, reader: CopyKafka, writer: RecordWriter, application_id: str, replication: int) -> None:
        self._reader, self._writer = reader, writer
        self._application_id, self._replication = application_id, replication
        self._place: TopicPartition = (endpoints_topic(application_id), 0)
        self._at = 0
        self._there = False

    def write(self, id_: bytes, value: bytes | None) -> None:
        with self._checked():
            self._writer.write(self._place[0], Outgoing(id_, value))

    def read(self) -> list[tuple[bytes, bytes | None]]:
        with self._checked():
            end = self._reader.end_offsets([self._place])[self._place]
            # Less than before: the topic was made again.
            start = self._at if self._at <= end else 0
            begin = max(start, self._reader.begin_offset(self._place), end - self._LAST)
            found = [
                pair
                for columns in self._reader.read(*self._place, min(begin, end), end)
                for pair in zip(columns.keys.to_pylist(), columns.values.to_pylist(), strict=True)
            ]
            self._at = end
            return found

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Creates the topic before its first use. After an error, creates it again if it is missing, as after a reset."""
        try:
            if not self._there:
                ensure_endpoints(self._reader.admin, self._application_id, self._replication)
                self._there = True
            yield
        except KafkaClientError:
            self._there = False
            raise


def tls_options(certificate: Path | None, key: Path | None, security: Security) -> Mapping[str, Any]:
    """The options of uvicorn for TLS.

    Raises:
        ConfigError: A file that TLS needs is not given.
    """
    if certificate is None:
        if key is not None or security.tls_ca is not None:
            raise ConfigError("--tls-key and --tls-ca need --tls-cert, the certificate of this server")
        return {}
    found: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": None if key is None else str(key)}
    if security.tls_ca is not None:
        found |= {"ssl_ca_certs": str(security.tls_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found


def trusted(certificate: Path | None, key: Path | None, security: Security) -> ssl.SSLContext | None:
    """The TLS context with which this process checks the others' certificates and shows its own; None: without TLS."""
    if certificate is None:
        return None
    found = ssl.create_default_context(cafile=security.tls_ca)
    # Processes that share one certificate need no authority, no matter who signed it.
    found.load_verify_locations(certificate)
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if security.tls_ca is not None:
        found.load_cert_chain(certificate, key)
    return found


def own_url(address: Address, tls: bool) -> str:
    """The URL at which others reach a server at this address. A server that listens everywhere is reached by this host's name."""
    everywhere = address.host in ("0.0.0.0", "::")
    shown = Address(socket.gethostname(), address.port) if everywhere else address
    return f"{'https' if tls else 'http'}://{shown}"


# --- `EmbeddedServer`: the stores of an application that this process runs, to be read here, and over HTTP if the settings say so.
#
# The copies are made when they are first needed. The application does not depend on them: what fails here is logged.


log = logging.getLogger(__name__)


def check_serve(config: StreamsConfig) -> None:
    """Checks early, before anything else is started, whether the stores can be served.

    Raises:
        ConfigError: The address is taken, the tokens cannot be read, or the HTTP stack is not installed.
    """
    if config.serve_address is not None:
        check_installed("serving stores (--serve)")
        security = Security(config.serve_callers)
        check_protected(config.serve_address.host, security)
        Guard(security)
        listening(config.serve_address, "stores", "--serve").close()


class EmbeddedServer:
    """Serves the stores of an application from inside its process.

    Args:
        topology: The application.
        config: Its settings.
        say: Prints where the stores are served.
    """

    def __init__(self, topology: Topology, config: StreamsConfig, say: Callable[[str], object]) -> None:
        self._topology, self._config, self._say = topology, config, say
        self._lock = threading.Lock()
        self._open = ExitStack()
        self._server: StoreServer | None = None
        self._serving = self._closed = False

    def serve(self) -> None:
        """Begins to serve if the settings ask for it; does not wait. The application has to run, because it creates the topics."""
        address = self._config.serve_address
        if address is not None and not self._serving:
            self._serving = True
            threading.Thread(target=self._serve, args=(address,), name="serve", daemon=True).start()

    def store(self, name: str, wait_s: float) -> LocalStore[Any, Any]:
        """Typed reads of a store.

        Raises:
            QueryError: There is no such store, or it has no changelog.
        """
        with self._lock:
            return LocalStore(self._started(None).served, name, wait_s)

    def close(self) -> None:
        """Ends serving, if it has begun; the copies stay on disk."""
        with self._lock:
            self._closed = True
            with suppress(StreamsError):
                self._open.close()

    def _serve(self, address: Address) -> None:
        from streams.serve.app import Api
        from streams.serve.routing import Router

        try:
            with self._lock:
                listener = self._open.enter_context(listening(address, "stores", "--serve"))
                url = own_url(Address(address.host, listener.getsockname()[1]), tls=False)
                server = self._started(url)
                guard, router = Guard(Security(self._config.serve_callers)), Router(server.nodes)
                trouble, reader, write = (lambda: server.trouble), server.reader, server.write
                api = Api(server.served, guard, alive=trouble, source=reader, write=write, router=router)
                self._open.enter_context(HttpThread(api.application(), listener, api.options))
            self._say(f"stores: {url}/v1/metadata")
        except StreamsError as error:
            log.error("the stores are not served: %s", error)

    def _started(self, url: str | None) -> StoreServer:
        """Starts the server of the copies. The caller holds the lock."""
        if self._closed:
            raise StoreNotReadyError("the application has ended, and with it the copies of its stores")
        if self._server is None:
            folder = self._config.base_dir / "embedded"
            self._server = self._open.enter_context(StoreServer(self._topology, self._config, folder, url, alone=True))
        return self._server
