"""What happens to a record that cannot be handled: fail, skip, or dead-letter topic.

Kafka Streams has three handlers (deserialisation, processing KIP-1033, production) and a dead-letter topic (KIP-1034).
A fourth stage is ours: timestamps too far in the future. Invariant: nothing is swallowed without being counted, and a
`fail` names topic, partition, offset, key and node.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Literal, NamedTuple

from streams.errors import RecordError, RegistryError
from streams.operators.record import Headers
from streams.runtime.counters import Counters
from streams.runtime.settings import Policy, TaskSettings
from streams.runtime.users_code import users_line

Stage = Literal["deserialization", "processing", "production", "future"]

_WHAT = {
    "deserialization": "cannot be read",
    "processing": "made an operator fail",
    "production": "gave a result that cannot be written",
    "future": "has a timestamp too far in the future",
}
_PREFIX = "__streams.errors."


class Origin(NamedTuple):
    """The source record behind what is being processed, as it is in Kafka.

    Attributes:
        topic: Source topic; None if there is no single record behind it (flush, punctuation): then key, timestamp and
            headers are those of the result, and there is no value; and None for a record that an operator has held back.
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
"""No single record is behind what failed, and nothing is known of the result."""


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic: original key and value, original headers and those of the error."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class RecordFailedError(RecordError):
    """A record stopped the step, because the policy of its stage is `fail`.

    Attributes:
        stage: deserialization, processing, production or future.
        node: Node in which it happened.
        topic: Source topic, or None if no single record is to blame.
        partition: Source partition.
        offset: Source offset.
        key: Source key bytes.
    """

    def __init__(self, stage: Stage, node: str, task_id: str, origin: Origin, error: BaseException) -> None:
        self.stage, self.node = stage, node
        self.topic, self.partition, self.offset, self.key = origin.topic, origin.partition, origin.offset, origin.key
        if origin.topic is None:
            what = "a result emitted at the end of the step" if origin.value is None else "a record that was held back"
            where = f"{what}, key {_short(origin.key)},"
        else:
            where = f"record at {origin.topic}-{origin.partition} offset {origin.offset}, key {_short(origin.key)},"
        line = None if isinstance(error, RecordError) else users_line(error)
        what = f"{type(error).__name__}: {_one_line(error)}" + (f" ({line})" if line else "")
        super().__init__(
            f"{where} {_WHAT[stage]} in node {node!r} of task {task_id}: {what}. Mend the record or the code, or set the "
            f"policy {stage!r} to 'skip' or 'dlq'."
        )


class ErrorHandlers:
    """Applies the policies of one step.

    Args:
        settings: The policies.
        counters: Where skipped and dead-lettered records are counted.
        task_id: For messages.
        send: Takes the dead letters.
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

    def handle(self, stage: Stage, node: str, origin: Origin, error: BaseException) -> None:
        """Apply the stage's policy to one record.

        Raises:
            RecordFailedError: The policy is `fail`; its cause is `error`.
            RegistryError: That is what the error is. Skipping would lose good records for as long as a service is down.
        """
        if isinstance(error, RegistryError):
            raise error
        policy = self._policies[stage]
        if policy == "fail":
            raise RecordFailedError(stage, node, self._task_id, origin, error) from error
        self._counters.add(f"dropped:{node}:{stage}")
        if policy == "skip":
            self._counters.add(f"skipped:{stage}")
            return
        self._counters.add(f"dead_letters:{stage}")
        headers = origin.headers + error_headers(stage, origin, error)
        self._send(DeadLetter(origin.key, origin.value, max(0, origin.timestamp), headers), origin)


def error_headers(stage: Stage, origin: Origin, error: BaseException) -> Headers:
    """The headers that a dead letter gets on top of its own (KIP-1034, and `timestamp`, `stage`)."""
    fields = {
        "exception": type(error).__qualname__,
        "message": str(error),
        "stacktrace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        "topic": origin.topic or "",
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "timestamp": str(origin.timestamp),
        "stage": stage,
    }
    return tuple((_PREFIX + name, text.encode(errors="replace")) for name, text in fields.items())


def _one_line(error: BaseException) -> str:
    """The error's text without line breaks: Spark hands errors on as lines of a stack trace."""
    return " ".join(str(error).split()).removesuffix(".")


def _short(data: bytes | None) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
