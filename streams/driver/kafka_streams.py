"""`KafkaStreams`: runs an application in the background of a Python script or notebook.

The application runs in its own thread, where `StreamsApplication` does the work. This module does not import Spark: it is
loaded with `streams`, and pyspark is imported only by `start`.
"""

from __future__ import annotations

import atexit
import html
import logging
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from state.secrets import mask
from streams.application.instances import MAY_FOLLOW, ApplicationState
from streams.config import StreamsConfig
from streams.config.loading import config_from
from streams.driver.stopping import stopped_by_signals, wait_for
from streams.errors import ConfigError
from streams.logs.events import Event, EventListener, Notifier
from streams.metrics.application import ApplicationMetrics, MicroBatchFigures
from streams.metrics.recorder import MetricsListener, MetricsRecorder
from streams.topology.topology import Topology, check_topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from streams.application.pausing import Pausing
    from streams.driver.runner import StreamsApplication
    from streams.serve.local import LocalStore
    from streams.serve.server import EmbeddedServer

log = logging.getLogger(__name__)


StateListener = Callable[[ApplicationState, ApplicationState], object]
"""`listener(new, old)`."""


MakeApplication = Callable[[Topology, StreamsConfig, Callable[[], None]], "StreamsApplication"]
"""(topology, settings, callback for when the queries run) -> application."""


class KafkaStreams:
    """An application that runs in the background (Kafka Streams: `KafkaStreams`).

    As a context manager it starts and stops by itself; otherwise call `start` and `stop`:

        with KafkaStreams(build(), application_id="counts", bootstrap_servers="localhost:9092") as streams:
            streams.await_termination()

    All methods are thread-safe. An application that still runs when the program exits is stopped cleanly.

    Args:
        topology: What to run.
        config: A `StreamsConfig`, a mapping of settings, or the path of a TOML file. Except with a `StreamsConfig`,
            environment variables (`STREAMS_...`) apply as well.
        make_application: Creates the object that does the work; for tests.
        **settings: Further settings, which take precedence.

    Raises:
        ConfigError: A setting is missing, unknown or wrong.
        TopologyError: A builder, or a function that makes a topology, was given instead of a topology.
    """

    State = ApplicationState

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any] | str | Path | None = None,
        *,
        make_application: MakeApplication | None = None,
        **settings: Any,
    ) -> None:
        check_topology(topology, "KafkaStreams")
        self.topology = topology
        self.config = config_from(config, settings)
        self._make = make_application or partial(_on_spark, on_event=self._happened)
        self._lock = threading.Lock()
        self._state = ApplicationState.CREATED
        self._application: StreamsApplication | None = None
        self._thread: threading.Thread | None = None
        self._begun = threading.Event()
        """Set once the application runs, or has ended before."""
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._raised = False
        self._embedded: EmbeddedServer | None = None
        self._changes = Notifier(f"the state listener of {self.config.application_id}")
        self._event_listener: EventListener | None = None
        self._metrics_listener: MetricsListener | None = None

    @property
    def state(self) -> ApplicationState:
        """The application's current state."""
        return self._state

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Set the listener, called as `listener(new, old)` at each change of state, in order, by the changing thread.

        An exception in the listener is logged and has no other effect.
        """
        self._changes.listener = listener

    def set_event_listener(self, listener: EventListener | None) -> None:
        """Set the listener, called as `listener(event)` with each lifecycle event (`streams.logs.events`), in order.

        The thread of the event calls the listener, so the listener must not block for long. An exception in it is logged and has
        no other effect. Events of workers come with the report of their step; `attempt_failed` is only logged.
        """
        self._event_listener = listener

    def set_metrics_listener(self, listener: MetricsListener | None) -> None:
        """Set the listener, called with the metrics of each micro-batch of each sub-topology, after its commit.

        The thread of the sub-topology's query calls it, and begins the next micro-batch afterwards. An exception in the listener is
        logged and has no other effect.
        """
        self._metrics_listener = listener

    def metrics(self) -> ApplicationMetrics:
        """The metrics of the application now (Kafka Streams: `metrics`).

        The totals count from `start` on, and continue when a query starts again by itself.
        """
        if self._application is None:
            return MetricsRecorder(self.config.application_id).measured()
        return self._application.progress.metrics.measured()

    def start(self, spark: SparkSession | None = None) -> KafkaStreams:
        """Start the application and return at once. Later errors are raised by `await_termination`.

        Raises:
            RuntimeError: The application was started before.
        """
        with self._lock:
            if self._state is not ApplicationState.CREATED:
                raise RuntimeError(
                    f"{self} was started or stopped before; make a new KafkaStreams to run its topology again"
                )
            # Created here rather than in the thread, so that an immediate stop is not lost.
            application = self._application = self._make(self.topology, self.config, self._is_running)
            application.progress.metrics.listen(self._measured)
            name = f"streams-{self.config.application_id}"
            self._thread = threading.Thread(target=self._run, args=(application, spark), name=name, daemon=True)
            self._set(ApplicationState.STARTING)
            self._thread.start()
        atexit.register(self.stop)
        self._changes.deliver()
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the application: the steps that run are finished, and no further one begins."""
        self._request_stop()
        # A listener that stops the application runs in the application's thread, which cannot wait for itself.
        if threading.current_thread() is self._thread:
            return self._ended.is_set()
        return wait_for(self._ended, timeout)

    close = stop

    def pause(self, sub_topology: str | None = None) -> None:
        """Pause the application: the steps that run are finished, and no further one begins until `resume` (KIP-834).

        The queries stay alive, and calls by the wall clock wait, too. Unlike in Kafka Streams, a pause is recorded in the cluster:
        it applies wherever the application runs, and after restarts.

        Raises:
            ConfigError: The application has never run, or has no such part.
        """
        self._pausing().pause(sub_topology)

    def resume(self, sub_topology: str | None = None) -> None:
        """Resume the application, or one sub-topology or source outside Kafka, after `pause`.

        Raises:
            ConfigError: The sub-topology is paused with the whole application, or does not exist.
        """
        self._pausing().resume(sub_topology)

    def is_paused(self) -> bool:
        """Whether the whole application is paused (Kafka Streams: `isPaused`)."""
        from streams.engine.source.pauses import WHOLE

        return WHOLE in self._pausing().pauses().since_ms

    def _pausing(self) -> Pausing:
        from streams.application.pausing import Pausing

        return Pausing(self.config.application_id, self.config.client, self.config.replication_factor)

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the application to end. When called in the main thread, Ctrl-C and SIGTERM stop the application.

        Raises:
            StreamsError: The application has ended with this error; the program's other errors are raised unchanged.
            RuntimeError: The application was not started.
        """
        self._check_started()
        with self._stopped_by_signals():
            return self._wait(timeout)

    def _check_started(self) -> None:
        if self._state is ApplicationState.CREATED:
            raise RuntimeError(f"{self} was not started: call start() first")

    def _wait(self, timeout: float | None) -> bool:
        ended = wait_for(self._ended, timeout)
        if ended and self._error is not None:
            self._raised = True
            raise self._error
        return ended

    def wait_until_running(self, timeout: float | None = None) -> bool:
        """Waits until every query that can run has been started, or the application has ended.

        Raises:
            StreamsError: The application has ended with this error; the program's other errors are raised unchanged.
            RuntimeError: The application was not started.
        """
        self._check_started()
        with self._stopped_by_signals():
            wait_for(self._begun, timeout)
        if self._ended.is_set():
            return self._wait(0)
        return self._begun.is_set()

    def run(self, spark: SparkSession | None = None) -> None:
        """Start the application and wait for it to end; see `start` and `await_termination`."""
        asked = threading.Event()
        # A signal during the start must neither interrupt it nor get lost.
        with stopped_by_signals(asked.set, again=signal.default_int_handler):
            self.start(spark)
            with self._stopped_by_signals():
                if asked.is_set():
                    self._request_stop()
                self._wait(None)

    def store_dataframe(
        self,
        store: str,
        spark: SparkSession | None = None,
        *,
        key_schema: DataType | str = "string",
        value_schema: DataType | str = "string",
    ) -> DataFrame:
        """The committed rows of a store as a Spark DataFrame, whether the application runs or not.

        Each use of the frame rebuilds the store from its changelog, one task in each partition. Columns: `key`, `window_start`,
        `window_end` and `timestamp` (null where the kind of store has none), `value`, and the position that the row shows: `_task`,
        its commit's number `_version`, and `_changelog_offset`, the end of the changelog at that commit. For SQL:

            streams.store_dataframe("counts", value_schema="bigint").createOrReplaceTempView("counts")
            spark.sql("SELECT key, value FROM counts ORDER BY value DESC").show()

        Raises:
            ConfigError: There is no such store, the application has never run on this cluster, or no session runs.
            TopologyError: The application has no stores.
        """
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        from streams.driver.store_frame import store_dataframe

        try:
            session = spark or SparkSession.active()
        except PySparkRuntimeError as error:
            raise ConfigError(
                f"store_dataframe({store!r}): {self} has no Spark session to read with. While it starts, call wait_until_running() "
                "first; before a start and after the end, give a session: store_dataframe(..., spark=session)"
            ) from error
        return store_dataframe(session, self.topology, self.config, store, key_schema, value_schema)

    def store(self, name: str, wait_s: float = 60.0) -> LocalStore[Any, Any]:
        """A store of the application, to be read in this process (Kafka Streams: `store`, `ReadOnlyKeyValueStore`).

        The first call begins to copy all stores to this host, below `base_dir`; the copies follow the commits until the application
        ends. They hold all tasks, wherever these run, and whole commits only. The program knows the types:

            counts: LocalStore[str, int] = streams.store("counts")
            counts.get("ann")

        Args:
            name: The store.
            wait_s: How long a read may wait until the copies are restored.

        Raises:
            QueryError: There is no such store, or it has no changelog.
            ConfigError: The application does not run yet: call `wait_until_running` first.
        """
        with self._lock:
            if self._state is not ApplicationState.RUNNING:
                raise ConfigError(
                    f"store({name!r}): {self} does not run. While it starts, call wait_until_running() first; to read the stores "
                    f"of an application that runs elsewhere, use `streams serve` and StoreClient"
                )
            embedded = self._embedded = self._embedded or self._made_embedded()
        return embedded.store(name, wait_s)

    def _made_embedded(self) -> EmbeddedServer:
        from streams.serve.server import EmbeddedServer

        say = log.info if self._application is None else self._application.progress.say
        return EmbeddedServer(self.topology, self.config, say)

    def _is_running(self) -> None:
        self._move(ApplicationState.RUNNING)
        if self.config.serve_address is not None:
            with self._lock:
                embedded = self._embedded = self._embedded or self._made_embedded()
            embedded.serve()

    def _stopped_by_signals(self) -> AbstractContextManager[None]:
        return stopped_by_signals(self._request_stop, again=signal.default_int_handler)

    def __enter__(self) -> KafkaStreams:
        return self.start() if self._state is ApplicationState.CREATED else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._error is not None and error is None and not self._raised:
            raise self._error

    def __repr__(self) -> str:
        return f"KafkaStreams({self.config.application_id!r}, {self._state})"

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows: the state, and the numbers so far."""
        from streams.driver.progress import as_html

        table = "" if self._application is None else as_html(self._application.progress)
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def _request_stop(self) -> None:
        with self._lock:
            if self._state is ApplicationState.CREATED:
                self._set(ApplicationState.STOPPED)
                self._ended.set()
            elif self._state in MAY_FOLLOW[ApplicationState.STOPPING]:
                self._set(ApplicationState.STOPPING)
        if self._application is not None:
            self._application.stop()
        self._changes.deliver()

    def _run(self, application: StreamsApplication, spark: SparkSession | None) -> None:
        try:
            application.run(spark)
        except BaseException as error:
            self._error = error
            if not self.config.logs.json:
                log.error("%s has ended with an error: %s", self.config.application_id, mask(str(error)))
        with self._lock:
            embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.close()
        self._move(ApplicationState.STOPPED if self._error is None else ApplicationState.ERROR)
        self._ended.set()
        atexit.unregister(self.stop)

    def _move(self, new: ApplicationState) -> None:
        with self._lock:
            self._set(new)
        self._changes.deliver()

    def _set(self, new: ApplicationState) -> None:
        """Changes the state, under the lock; ignores a change that comes too late.

        The listener is called later, without the lock: it may read the state or stop the application.
        """
        if self._state in MAY_FOLLOW[new]:
            self._changes.add(new, self._state)
            self._state = new
            if new not in (ApplicationState.STARTING, ApplicationState.STOPPING):
                self._begun.set()

    def _happened(self, event: Event) -> None:
        if self._event_listener is not None:
            self._event_listener(event)

    def _measured(self, batch: MicroBatchFigures) -> None:
        if self._metrics_listener is not None:
            self._metrics_listener(batch)


def _on_spark(
    topology: Topology, config: StreamsConfig, on_running: Callable[[], None], on_event: EventListener
) -> StreamsApplication:
    from streams.driver.runner import StreamsApplication

    return StreamsApplication(topology, config, on_running=on_running, on_event=on_event)
