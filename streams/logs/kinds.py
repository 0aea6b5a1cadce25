"""All lifecycle events in one place: their names, levels and fields.

`docs/logging.md` has the same table, and a test compares. A new event is one more constant here, and one `Events.emit` where it
happens.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventKind:
    """A sort of event.

    Attributes:
        name: Its name in `event`, in JSON and in listeners.
        level: The level of its log line.
        means: When it happens, as `docs/logging.md` says it.
        fields: Its own fields, beside time, application, sub-topology, task and message.
        said: Whether the progress display shows its message, so that a log line as text would be the second one.
    """

    name: str
    level: int
    means: str
    fields: tuple[str, ...] = ()
    said: bool = False

    def __str__(self) -> str:
        return self.name


STARTING = EventKind("starting", logging.INFO, "A start has begun; nothing was checked yet.", ("version", "mode"))
TOPICS_CREATED = EventKind(
    "topics_created", logging.INFO, "The start has created an internal topic.", ("topic",), said=True
)
RUNNING = EventKind(
    "running",
    logging.INFO,
    "All queries that can run have been started; with `available_now`, those of one stage.",
    ("sub_topologies",),
)
RESTORED = EventKind(
    "restored",
    logging.INFO,
    "A task has brought its stores to its last commit, by reading a changelog or taking over a copy.",
    ("source", "stores", "reasons", "records", "rows", "bytes", "seconds"),
)
ATTEMPT_FAILED = EventKind(
    "attempt_failed",
    logging.WARNING,
    "An attempt of a task has failed; Spark runs another one, up to its limit. Logged by the worker only: such an attempt has no "
    "report.",
    ("attempt", "batch_id", "error"),
)
FENCED = EventKind(
    "fenced",
    logging.WARNING,
    "An attempt of a task was fenced: a newer attempt or another run of the application has taken over its transactional id, or "
    "its transaction has timed out; Kafka does not say which. From workers as `attempt_failed`.",
    ("transactional_id", "attempt", "batch_id", "error"),
)
RETRIED = EventKind(
    "retried",
    logging.WARNING,
    "A task has committed a step in a repeated attempt, after Spark has seen earlier ones fail.",
    ("attempt", "batch_id"),
)
DEAD_LETTERS = EventKind(
    "dead_letters",
    logging.WARNING,
    "Records were sent to the dead letter topic; one event in 10 s for a sub-topology and a stage, with the number since the last.",
    ("topic", "stage", "count"),
)
BROKER_AWAY = EventKind(
    "broker_away", logging.WARNING, "The brokers do not answer; repeated each minute.", ("servers", "reason"), said=True
)
BROKER_BACK = EventKind("broker_back", logging.INFO, "The brokers answer again.", ("servers", "seconds"), said=True)
QUERY_RESTARTED = EventKind(
    "query_restarted",
    logging.WARNING,
    "The supervisor has started a query again after a transient failure.",
    ("attempt", "reason"),
)
PAUSED = EventKind("paused", logging.INFO, "The application, or one sub-topology, is paused.", ("since_ms",), said=True)
RESUMED = EventKind("resumed", logging.INFO, "The application, or one sub-topology, goes on after a pause.", said=True)
STOPPING = EventKind("stopping", logging.INFO, "A stop was requested; running micro-batches finish.")
STOPPED = EventKind(
    "stopped",
    logging.INFO,
    "The application has ended without an error, and all of its queries with it.",
    ("micro_batches",),
)
FAILED = EventKind("failed", logging.ERROR, "The application has ended with an error.", ("error",))

KINDS: tuple[EventKind, ...] = (
    STARTING,
    TOPICS_CREATED,
    RUNNING,
    RESTORED,
    ATTEMPT_FAILED,
    FENCED,
    RETRIED,
    DEAD_LETTERS,
    BROKER_AWAY,
    BROKER_BACK,
    QUERY_RESTARTED,
    PAUSED,
    RESUMED,
    STOPPING,
    STOPPED,
    FAILED,
)
"""In the order of an application's life."""
