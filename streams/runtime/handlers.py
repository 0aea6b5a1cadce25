"""Error handling for records: fail, skip, or dead-letter topic.

Kafka Streams has three handlers (deserialisation, processing KIP-1033, production) and a dead-letter topic (KIP-1034).
The fourth stage, timestamps too far in the future, is our own. Invariant: nothing is dropped without being counted, and a
`fail` names topic, partition, offset, key and node.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from streams.errors import RecordError, RecordFailedError, RegistryError
from streams.migration_hints import answer_to
from streams.model.error_headers import set_apart
from streams.model.record import Headers
from streams.runtime.counters import Counters
from streams.runtime.dead_letters import DeadLetter, error_headers
from streams.runtime.settings import Policy, TaskSettings
from streams.users_code import users_line

log = logging.getLogger(__name__)

_RETRY_TOPIC = re.compile(r"-retry-\d+-repartition\Z")

Stage = Literal["deserialization", "processing", "production", "future"]

_WHAT = {
    "deserialization": "cannot be read",
    "processing": "made an operator fail",
    "production": "gave a result that cannot be written",
    "future": "has a timestamp too far in the future",
}


class Origin(NamedTuple):
    """The source record behind the current one, as it is in Kafka.

    Attributes:
        topic: Source topic. None without a single source record (flush, punctuation): then key, timestamp and headers are those
            of the result, and there is no value. Also None for a record that an operator has held back.
        partition: Its partition.
        offset: Its offset.
        timestamp: Milliseconds.
        key: Original key bytes.
        value: Original value bytes.
        headers: Original headers.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


NOWHERE = Origin(None, -1, -1, -1, None, None, ())
"""The origin of a failure without a source record, about whose result nothing is known."""

OUTSIDE = -2
"""The partition of the origin of a row from outside Kafka, with the row's text as key and value."""


def record_failed(stage: Stage, node: str, task_id: str, origin: Origin, error: BaseException) -> RecordFailedError:
    """The error that stops the step because the policy of the stage is `fail`."""
    message = (
        f"{description(stage, node, task_id, origin, error)}. Fix the record or the code, or set the policy {stage!r} to "
        f"'skip' or 'dlq'."
    )
    return RecordFailedError(
        message,
        stage=stage,
        node=node,
        task=task_id,
        topic=origin.topic,
        partition=origin.partition,
        offset=origin.offset,
        key=origin.key,
    )


def description(stage: Stage, node: str, task_id: str, origin: Origin, error: BaseException) -> str:
    """Which record failed, where, and why, in one line."""
    if origin.partition == OUTSIDE:
        where = f"a row of a source outside Kafka, key {_short(origin.key)},"
    elif origin.topic is None:
        what = "a result emitted at the end of the step" if origin.value is None else "a record that was held back"
        where = f"{what}, key {_short(origin.key)},"
    else:
        # Behind the head a record has its source's bytes only where dead letters need them.
        known = origin.key is not None or origin.value is not None
        key = f", key {_short(origin.key)}," if known else ""
        where = f"record at {origin.topic}-{origin.partition} offset {origin.offset}{key}"
    line = None if isinstance(error, RecordError) else users_line(error)
    instead = answer_to(error)
    what = f"{type(error).__name__}: {_one_line(error)}{f', {instead}' if instead else ''}" + (
        f" ({line})" if line else ""
    )
    return f"{where} {_WHAT[stage]} in node {node!r} of task {task_id}: {what}"


class ErrorHandlers:
    """Applies the policies of one step.

    Args:
        settings: The policies.
        counters: Counters of skipped and dead-lettered records.
        task_id: For messages.
        send: Sends the dead letters.
    """

    def __init__(
        self, settings: TaskSettings, counters: Counters, task_id: str, send: Callable[[DeadLetter, Origin], None]
    ) -> None:
        self._policies: dict[Stage, Policy] = {
            "deserialization": settings.deserialization,
            "processing": settings.processing,
            "production": settings.production,
            "future": settings.future,
        }
        self._counters = counters
        self._task_id = task_id
        self._send = send
        self._logged: set[tuple[Stage, str]] = set()
        self._unreadable: set[tuple[str, str, int | None, int | None]] = set()

    def handle(self, stage: Stage, node: str, origin: Origin, error: BaseException) -> None:
        """Apply the stage's policy to one record.

        Raises:
            RecordFailedError: The policy is `fail`; its cause is `error`.
            RegistryError: The error is one. Skipping would lose good records for as long as the registry is down.
        """
        if isinstance(error, RegistryError):
            raise error
        policy = self._policies[stage]
        if policy == "fail":
            raise record_failed(stage, node, self._task_id, origin, error) from error
        if stage == "deserialization" and origin.topic is not None:
            # A record comes once for each operator that reads its source, but it is one record that cannot be read.
            place = node, origin.topic, origin.partition, origin.offset
            if place in self._unreadable:
                return
            self._unreadable.add(place)
        self._counters.add(f"dropped:{node}:{stage}")
        if (stage, node) not in self._logged:
            # Only the first of a step is logged; the counters have the number.
            self._logged.add((stage, node))
            done = "skipped" if policy == "skip" else "sent to the dead-letter topic"
            log.warning("%s: %s", done, description(stage, node, self._task_id, origin, error))
        if policy == "skip":
            self._counters.add(f"skipped:{stage}")
            return
        self._counters.add(f"dead_letters:{stage}")
        headers = error_headers(stage, origin[:3], origin.timestamp, error)
        # A record from a retry topic has headers of the engine's, which its letter replaces.
        own = origin.headers if _RETRY_TOPIC.search(origin.topic or "") else set_apart(origin.headers)
        self._send(DeadLetter(origin.key, origin.value, own + headers), origin)


def _one_line(error: BaseException) -> str:
    """The error's text without line breaks: Spark passes errors on as lines of a stack trace."""
    return " ".join(str(error).split()).removesuffix(".")


def _short(data: bytes | None) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
