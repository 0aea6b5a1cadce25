"""The life cycle of an application that runs in the background (Kafka Streams: `KafkaStreams.State`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class ApplicationState(str, Enum):
    """The states of an application's life cycle.

    Attributes:
        CREATED: Created, and not started yet.
        STARTING: Topics are being prepared; Spark and the queries are starting.
        RUNNING: Every query that can run has been started.
        STOPPING: A stop was requested; running micro-batches are finishing.
        STOPPED: Ended, by a stop or because everything was processed (`available_now`). A new start is not possible.
        ERROR: Ended with an error, which `await_termination` raises.
    """

    CREATED = "CREATED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    ERROR = "ERROR"

    def __str__(self) -> str:
        return self.value


MAY_FOLLOW: Mapping[ApplicationState, tuple[ApplicationState, ...]] = {
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
"""The states that each state may follow; a change that comes too late is ignored."""
