"""`KafkaStreams`: runs an application from Python, a script or a notebook, beside whatever else the program does.

The application runs in a thread of its own; `StreamsApplication` does the work there. This module imports no Spark: it is
loaded with `streams`, and pyspark only comes with `start`.
"""

from __future__ import annotations

import atexit
import html
import logging
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from streams.config import StreamsConfig, load_config
from streams.spark.signals import stopped_by_signals
from streams.topology.topology import Topology, check_topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams.spark.progress import Progress

log = logging.getLogger(__name__)


class ApplicationState(str, Enum):
    """Where an application is in its life.

    Attributes:
        CREATED: It was made, and not started.
        STARTING: Topics are prepared, Spark and the queries start.
        RUNNING: Every query that can run has been started.
        STOPPING: A stop was asked for; micro-batches that run come to their end.
        STOPPED: It has ended, by a stop or because all was processed (`available_now`). It cannot be started again.
        ERROR: It has ended with an error, which `await_termination` raises.
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    ERROR = "ERROR"

    def __str__(self) -> str:
        return self.value

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes after it."""
        return self in (ApplicationState.STOPPED, ApplicationState.ERROR)


_BEFORE: Mapping[ApplicationState, tuple[ApplicationState, ...]] = {
    ApplicationState.STARTING: (ApplicationState.CREATED,),
    ApplicationState.RUNNING: (ApplicationState.STARTING,),
    ApplicationState.STOPPING: (ApplicationState.STARTING, ApplicationState.RUNNING),
    ApplicationState.STOPPED: (
        ApplicationState.CREATED,
        ApplicationState.STARTING,
        ApplicationState.RUNNING,
        ApplicationState.STOPPING,
    ),
    ApplicationState.ERROR: (ApplicationState.STARTING, ApplicationState.RUNNING, ApplicationState.STOPPING),
}
"""Which states a state may follow; a change that comes too late is left out."""

StateListener = Callable[[ApplicationState, ApplicationState], object]
"""`listener(new, old)`."""


class Running(Protocol):
    """What is needed of `streams.spark.runner.StreamsApplication`."""

    @property
    def progress(self) -> Progress | None:
        """What it has done so far."""

    def run(self, session: SparkSession | None = None) -> None:
        """Runs until it is stopped."""

    def stop(self) -> None:
        """Asks `run` to return."""


MakeApplication = Callable[[Topology, StreamsConfig, Callable[[], None]], Running]
"""(topology, settings, what to call once its queries run) -> application."""


class KafkaStreams:
    """An application that runs in the background (Kafka Streams: `KafkaStreams`).

    Use it as a context manager, which starts and stops it, or call `start` and `stop`::

        with KafkaStreams(build(), application_id="counts", bootstrap_servers="localhost:9092") as streams:
            streams.await_termination()

    Methods may be called from any thread. What still runs when the program ends is stopped cleanly.

    Args:
        topology: What to run.
        config: A `StreamsConfig`, settings by name, or the path of a TOML file; the environment (`STREAMS_...`) counts, too,
            but for a `StreamsConfig`.
        make_application: Makes what does the work; for tests.
        **settings: Further settings, which win.

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
        self.config = _config(config, settings)
        self._make = make_application or _on_spark
        self._lock = threading.Lock()
        self._state = ApplicationState.CREATED
        self._application: Running | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._raised = False
        self._listener: StateListener | None = None
        self._changes: deque[tuple[ApplicationState, ApplicationState]] = deque()
        self._telling = False

    @property
    def state(self) -> ApplicationState:
        """Where the application is in its life."""
        return self._state

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Have `listener(new, old)` called at each change of the state, in order, by the thread that changes it.

        An error in it is logged, and changes nothing.
        """
        self._listener = listener

    def start(self, spark: SparkSession | None = None) -> KafkaStreams:
        """Start the application, and return at once. What goes wrong then is raised by `await_termination`.

        Args:
            spark: A session to run in; default: one is started, and stopped at the end.

        Raises:
            RuntimeError: It was started before.
        """
        with self._lock:
            if self._state is not ApplicationState.CREATED:
                raise RuntimeError(
                    f"{self} was started or stopped before; make a new KafkaStreams to run its topology again"
                )
            # Made here, so that a stop that comes at once is not lost.
            application = self._application = self._make(
                self.topology, self.config, lambda: self._move(ApplicationState.RUNNING)
            )
            name = f"streams-{self.config.application_id}"
            self._thread = threading.Thread(target=self._run, args=(application, spark), name=name, daemon=True)
            self._set(ApplicationState.STARTING)
            self._thread.start()
        atexit.register(self.stop)
        self._tell()
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Stop the application: micro-batches that are running come to their end, and no further one begins.

        Args:
            timeout: How many seconds to wait for that; None: as long as it takes.

        Returns:
            Whether it has ended. Its error, if there was one, is raised by `await_termination`.
        """
        self._request_stop()
        # A listener that stops the application is called by its own thread, which cannot wait for itself.
        if threading.current_thread() is self._thread:
            return self._ended.is_set()
        return self._ended.wait(timeout)

    close = stop

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the application to end. In the main thread Ctrl-C and SIGTERM stop it meanwhile.

        Args:
            timeout: How many seconds to wait; None: as long as it takes.

        Returns:
            Whether it has ended.

        Raises:
            StreamsError: It has ended with this error; other errors of the program are raised as they are.
            RuntimeError: It was not started.
        """
        if self._state is ApplicationState.CREATED:
            raise RuntimeError(f"{self} was not started: call start() first")
        with stopped_by_signals(self._request_stop, again=signal.default_int_handler):
            ended = self._ended.wait(timeout)
        if ended and self._error is not None:
            self._raised = True
            raise self._error
        return ended

    def run(self, spark: SparkSession | None = None) -> None:
        """Start the application and wait for its end; see `start` and `await_termination`."""
        self.start(spark)
        self.await_termination()

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
        """What a notebook shows of it: the state, and the numbers so far."""
        from streams.spark.notebook import as_html

        progress = self._application.progress if self._application is not None else None
        return f"<p>{html.escape(repr(self))}</p>" + (as_html(progress) if progress is not None else "")

    def _request_stop(self) -> None:
        with self._lock:
            if self._state is ApplicationState.CREATED:
                self._set(ApplicationState.STOPPED)
                self._ended.set()
            elif self._state in _BEFORE[ApplicationState.STOPPING]:
                self._set(ApplicationState.STOPPING)
        if self._application is not None:
            self._application.stop()
        self._tell()

    def _run(self, application: Running, spark: SparkSession | None) -> None:
        try:
            application.run(spark)
        except BaseException as error:
            self._error = error
            log.error("%s has ended with an error: %s", self.config.application_id, error)
        self._move(ApplicationState.STOPPED if self._error is None else ApplicationState.ERROR)
        self._ended.set()
        atexit.unregister(self.stop)

    def _move(self, new: ApplicationState) -> None:
        with self._lock:
            self._set(new)
        self._tell()

    def _set(self, new: ApplicationState) -> None:
        """Changes the state, with the lock; a change that comes too late is left out."""
        if self._state in _BEFORE[new]:
            self._changes.append((new, self._state))
            self._state = new

    def _tell(self) -> None:
        """Calls the listener, without the lock: it may ask for the state, or stop the application.

        Whoever is telling tells what comes meanwhile as well. So the order holds, and a listener that waits for another change
        is not waited for by it.
        """
        while True:
            with self._lock:
                if self._telling or not self._changes:
                    return
                self._telling = True
                change = self._changes.popleft()
            try:
                if self._listener is not None:
                    self._listener(*change)
            except Exception:
                log.exception("the state listener of %s has failed", self.config.application_id)
            finally:
                self._telling = False


def _config(
    config: StreamsConfig | Mapping[str, Any] | str | Path | None, settings: Mapping[str, Any]
) -> StreamsConfig:
    if isinstance(config, StreamsConfig):
        if not settings:
            return config
        config = {name: getattr(config, name) for name in config.model_fields_set}
    if isinstance(config, str | Path):
        return load_config(Path(config), settings)
    return load_config(None, {**(config or {}), **settings})


def _on_spark(topology: Topology, config: StreamsConfig, on_running: Callable[[], None]) -> Running:
    from streams.spark.notebook import progress_for
    from streams.spark.runner import StreamsApplication

    return StreamsApplication(topology, config, progress_for(config.application_id), on_running)
