"""`StoreServer`: follows an application's commits in the background."""

from __future__ import annotations

import shutil
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path
from types import TracebackType
from typing import Any

from state.commit.live import LiveKafka
from state.kafka.consumers import GroupMember
from state.kafka.topics import TopicPartition
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.task_store import open_task_store
from state.tables.files import make_private
from streams.application.prepare import task_settings
from streams.application.restore import ReplicaTask, stateful_subs, stored_tasks
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.runtime.global_tables import GlobalTables, global_store_specs
from streams.serve.copies import TaskCopy
from streams.serve.following import CopyKafka, Follower
from streams.serve.global_copy import GlobalCopy
from streams.serve.security import Security
from streams.serve.served import Served, replica_task
from streams.source.log import now_ms
from streams.topology.topology import Topology

_GLOBAL_LOGS = 16


class StoreServer:
    """Copies of an application's stores that follow its commits, within a `with` block.

    Args:
        topology: The application.
        config: Its settings.
        folder: Where the copies are, on this host; other processes need folders of their own.
        group: The consumer group whose members share the tasks; default: `<application>-serve`.
        parallel: How many copies are brought forward at a time.

    Raises:
        ConfigError: The application has never run on this cluster.
        TopologyError: It has no stores.
    """

    def __init__(
        self, topology: Topology, config: StreamsConfig, folder: Path, group: str | None = None, parallel: int = 2
    ) -> None:
        self._config = config
        self._folder = folder
        app = config.application_id
        places = [task.place for task in stored_tasks(topology, config)]
        subs = stateful_subs(topology, app, sorted({place.sub_topology for place in places}))
        tasks = {place.sub_topology: place.tasks for place in places}
        known = [replica_task(app, sub, task, tasks[sub.name]) for sub in subs for task in range(tasks[sub.name])]
        self._tasks = {task.commits: task for task in known if task.specs}
        if not self._tasks:
            raise ConfigError(f"no store of {app} has a changelog: there is nothing that could be served")
        self._kafka = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
        make_private(folder)
        self._follower = Follower(self._kafka, self._copy, self._tasks, self._global_copy(topology), parallel)
        self.served = Served(
            topology,
            app,
            subs,
            tasks,
            lambda: self._follower.copies,
            self._kafka,
            lambda: self._follower.global_copy,
        )
        self._group = group or f"{app}-serve"
        self._ended = threading.Event()
        self._error: Exception | None = None
        self.on_error: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def __enter__(self) -> StoreServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._follower.close()
        if error is None and self._error is not None:
            raise self._error

    @property
    def trouble(self) -> str:
        """Why commits cannot be followed now; empty: they are."""
        return str(self._error) if self._error is not None else self._follower.trouble

    def reader(self) -> AbstractContextManager[CopyKafka]:
        """Kafka, for one client who follows changes."""
        return closing(self._reader(len(self._tasks)))

    def _reader(self, logs: int) -> CopyKafka:
        config = self._config
        return CopyKafka(config.client, config.transaction_timeout_ms, config.bulk_io, logs)

    def _run(self) -> None:
        topics = sorted({topic for topic, _ in self._tasks})
        try:
            member = GroupMember(self._config.client, self._group, topics, wakes=True)
            try:
                self._follower.run(member, self._ended)
            finally:
                member.close()
        except Exception as error:
            # Raised at the end of the `with` block; until then the process ends its requests.
            self._error = error
            self.on_error()

    def _copy(self, place: TopicPartition) -> TaskCopy:
        task, config, memory = self._tasks[place], self._config, WorkerMemory()
        kafka = self._reader(len(task.specs) + 1)

        def make(of: ReplicaTask) -> TaskStateManager:
            identity, specs = of.place.identity(), list(of.specs)
            return TaskStateManager(kafka, identity, specs, self._folder, memory=memory, snapshots=config.snapshots)

        return TaskCopy(kafka, task, make, on_close=kafka.close)

    def _global_copy(self, topology: Topology) -> GlobalCopy | None:
        """The copy of the global tables, read from the start: what is on disk might have missed deletions."""
        tables = list(topology.global_tables.values())
        if not tables:
            return None
        folder = self._folder / self._config.application_id / "global"
        shutil.rmtree(folder, ignore_errors=True)
        store = open_task_store(folder, global_store_specs(tables))
        kafka = self._reader(_GLOBAL_LOGS)
        settings = task_settings(self._config, {})
        return GlobalCopy(kafka, GlobalTables(tables, store, settings), store, now_ms, on_close=kafka.close)


def tls_options(certificate: Path | None, key: Path | None, security: Security) -> Mapping[str, Any]:
    """What uvicorn needs for TLS.

    Raises:
        ConfigError: A part is missing.
    """
    if certificate is None:
        if key is not None or security.tls_ca is not None:
            raise ConfigError("--tls-key and --tls-ca need --tls-cert, the certificate of this server")
        return {}
    found: dict[str, Any] = {"ssl_certfile": str(certificate), "ssl_keyfile": None if key is None else str(key)}
    if security.tls_ca is not None:
        found |= {"ssl_ca_certs": str(security.tls_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return found
