"""The error policies for records, and dead letters.

A dead letter (KIP-1034) is the original record that failed, with headers that say why, cut to the size that Kafka accepts. If Kafka
refused a dead letter, the application would stop at the very record that should be set aside. One that is too large is therefore
cut in this order: stack trace, message, value and headers (the larger first), key. A header says what was cut. Its timestamp is
that of the step, because the record's own may be the cause of the failure and is kept in a header.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from state.kafka.topics import wire_size
from streams.engine.graph.settings import Counters, Policy, TaskSettings
from streams.errors import RecordError, RecordFailedError, RegistryError
from streams.migration_hints import answer_to
from streams.model.record import COUNTED_BY, CUT, ERROR_HEADERS, Headers, Window, set_apart
from streams.users_code import users_line

STACK, MESSAGE = ERROR_HEADERS + "stacktrace", ERROR_HEADERS + "message"
_ROOM = 160
"""Bytes reserved for the header that says what was cut."""
_SHORT = 200
"""A message is cut to no fewer bytes than this."""
_PLACE = tuple(ERROR_HEADERS + name for name in ("topic", "partition", "offset", "stage"))


class DeadLetter(NamedTuple):
    """A record for the dead-letter topic: original key and value, original headers and error headers."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def error_headers(
    stage: str,
    place: tuple[str | None, int, int],
    timestamp: int,
    error: BaseException,
    node: str = "",
    window: Window | None = None,
) -> Headers:
    """The headers that a dead letter adds to the record's own: KIP-1034's, `timestamp`, `stage`, `node`, a result's window."""
    fields = {
        "exception": type(error).__qualname__,
        "message": str(error),
        "stacktrace": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        "topic": place[0] or "",
        "partition": str(place[1]),
        "offset": str(place[2]),
        "timestamp": str(timestamp),
        "stage": stage,
        "node": node,
    }
    if window is not None:
        fields["window.start"], fields["window.end"] = map(str, window)
    return tuple((ERROR_HEADERS + name, text.encode(errors="replace")) for name, text in fields.items())


def fitted(letter: DeadLetter, limit: int) -> DeadLetter:
    """Cuts the dead letter until its `wire_size` is within the limit."""
    if wire_size(*letter) <= limit:
        return letter
    return _Cutter(letter, limit - _ROOM).cut()


class _Cutter:
    def __init__(self, letter: DeadLetter, limit: int) -> None:
        self._key, self._value = letter.key, letter.value
        self._own = tuple(one for one in letter.headers if not one[0].startswith(ERROR_HEADERS))
        self._errors = dict(one for one in letter.headers if one[0].startswith(ERROR_HEADERS))
        self._limit = limit
        self._done: list[str] = []

    @property
    def _excess(self) -> int:
        return wire_size(self._key, self._value, (*self._own, *self._errors.items())) - self._limit

    def cut(self) -> DeadLetter:
        # The end of a stack trace shows where the error happened, and the beginning of a message shows what happened.
        self._errors[STACK] = self._shorter("stacktrace", self._errors.get(STACK), end=True)
        self._errors[MESSAGE] = self._shorter("message", self._errors.get(MESSAGE), least=_SHORT)
        if wire_size(None, None, self._own) > wire_size(None, self._value):
            self._drop_headers()
        self._value = self._shorter("value", self._value)
        self._drop_headers()
        self._key = self._shorter("key", self._key)
        if self._excess > 0:
            self._errors = {name: data for name, data in self._errors.items() if name in _PLACE}
        note = (CUT, ", ".join(self._done).encode())
        return DeadLetter(self._key, self._value, (*self._own, *self._errors.items(), note))

    def _drop_headers(self) -> None:
        if self._excess > 0 and self._own:
            self._done.append("headers")
            self._own = ()

    def _shorter(self, what: str, data: bytes | None, least: int = 0, end: bool = False) -> bytes | None:
        excess = self._excess
        if excess <= 0 or not data or len(data) <= least:
            return data
        self._done.append(f"{what} of {len(data)} bytes")
        size = max(least, len(data) - excess)
        return data[len(data) - size :] if end else data[:size]


# --- Error handling for records: fail, skip, or dead-letter topic.
#
# Kafka Streams has three handlers (deserialisation, processing KIP-1033, production) and a dead-letter topic (KIP-1034).
# The fourth stage, timestamps too far in the future, is our own. Invariant: nothing is dropped without being counted, and a
# `fail` names topic, partition, offset, key and node.

log = logging.getLogger(__name__)

Stage = Literal["deserialization", "processing", "production", "future"]

CountedBy = Callable[[str, str], tuple[str, ...]]
"""Topic and node -> operators, as `counted_by` of `ErrorHandlers`."""


def nobody(topic: str, node: str) -> tuple[str, ...]:
    """The value of `counted_by` if no operator would count a record twice."""
    return ()


_WHAT = {
    "deserialization": "cannot be read",
    "processing": "made an operator fail",
    "production": "gave a result that cannot be written",
    "future": "has a timestamp too far in the future",
}


class Origin(NamedTuple):
    """The source record of the current one, as it is in Kafka.

    Attributes:
        topic: Source topic. None without a single source record (flush, punctuation): then key, timestamp and headers are those
            of the result, and there is no value. Also None for a record that an operator has held back.
        timestamp: Milliseconds.
        key: Original key bytes.
        value: Original value bytes.
        headers: Original headers.
        window: The window of a result that no single record caused; the key is then without it.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    window: Window | None = None


NOWHERE = Origin(None, -1, -1, -1, None, None, ())
"""The origin of a failure that has no source record and no known result."""

OUTSIDE = -2
"""The partition in the origin of a row from outside Kafka; key and value are then the row's text."""


def record_failed(stage: Stage, node: str, task_id: str, origin: Origin, error: BaseException) -> RecordFailedError:
    """Makes the error that stops the step because the policy of the stage is `fail`."""
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
    """Says in one line which record failed, where, and why."""
    if origin.partition == OUTSIDE:
        where = f"a row of a source outside Kafka, key {_short(origin.key)},"
    elif origin.topic is None:
        where = _result(origin) if origin.value is None else f"a record that was held back, key {_short(origin.key)},"
    else:
        # After the head, a record keeps its source's bytes only if dead letters need them.
        known = origin.key is not None or origin.value is not None
        key = f", key {_short(origin.key)}," if known else ""
        where = f"record at {origin.topic}-{origin.partition} offset {origin.offset}{key}"
    line = None if isinstance(error, RecordError) else users_line(error)
    instead = answer_to(error)
    what = f"{type(error).__name__}: {_one_line(error)}{f', {instead}' if instead else ''}" + (
        f" ({line})" if line else ""
    )
    return f"{where} {_WHAT[stage]} in node {node!r} of task {task_id}: {what}"


def _result(origin: Origin) -> str:
    key = _short(origin.key)
    if origin.window is None:
        return f"a result emitted at the end of the step, key {key},"
    return f"the result of the window from {origin.window.start} to {origin.window.end} ms of key {key}"


class ErrorHandlers:
    """Applies the policies of one step.

    Args:
        settings: The policies.
        counters: Counters of skipped and dead-lettered records.
        task_id: For messages.
        send: Sends a dead letter.
        counted_by: Given a topic and the node where a record failed, the operators that would count it twice if it were read again.
        retry_topics: The sub-topology's own retry topics. The engine's headers on these topics were written by this application; on
            other topics, by another one.
    """

    def __init__(
        self,
        settings: TaskSettings,
        counters: Counters,
        task_id: str,
        send: Callable[[DeadLetter, Origin], None],
        counted_by: CountedBy = nobody,
        retry_topics: Collection[str] = (),
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
        self._counted_by = counted_by
        self._retry_topics = retry_topics
        self._counted: dict[tuple[str, str], tuple[str, ...]] = {}
        self._logged: set[tuple[Stage, str]] = set()
        self._unreadable: set[tuple[str, str, int | None, int | None]] = set()

    def begin_step(self) -> None:
        """Logs the first failure of each stage and node again. A reader that runs live keeps its handlers for many steps."""
        self._logged.clear()

    def end_piece(self) -> None:
        """Forgets which records could not be read. By now all operators that read their source have reported them."""
        self._unreadable.clear()

    def handle(self, stage: Stage, node: str, origin: Origin, error: BaseException, partly_done: bool = False) -> None:
        """Applies the stage's policy to one record.

        `partly_done` says that the node had already written to its state, or forwarded, when it failed.

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
            # Each operator that reads the source reports the record, but it counts as one that cannot be read.
            place = node, origin.topic, origin.partition, origin.offset
            if place in self._unreadable:
                return
            self._unreadable.add(place)
        self._counters.add(f"dropped:{node}:{stage}")
        if (stage, node) not in self._logged:
            # Only the first failure of a step is logged; the counters have the number.
            self._logged.add((stage, node))
            done = "skipped" if policy == "skip" else "sent to the dead-letter topic"
            log.warning("%s: %s", done, description(stage, node, self._task_id, origin, error))
        if policy == "skip":
            self._counters.add(f"skipped:{stage}")
            return
        self._counters.add(f"dead_letters:{stage}")
        headers = error_headers(stage, origin[:3], origin.timestamp, error, node, origin.window)
        if names := self._counted_already(stage, node, origin.topic, partly_done):
            headers = (*headers, (COUNTED_BY, ", ".join(names).encode()))
        # The engine's headers on a record from a retry topic are replaced by those of its dead letter.
        own = origin.headers if origin.topic in self._retry_topics else set_apart(origin.headers)
        self._send(DeadLetter(origin.key, origin.value, own + headers), origin)

    def _counted_already(self, stage: Stage, node: str, topic: str | None, partly_done: bool) -> tuple[str, ...]:
        if stage == "future" or topic is None:
            return ()  # refused before all operators, or a result, which has no topic to return to
        place = topic, node
        if place not in self._counted:
            self._counted[place] = self._counted_by(topic, node)
        return (*self._counted[place], node) if partly_done else self._counted[place]


def _one_line(error: BaseException) -> str:
    """The error's text without line breaks, because Spark passes errors on as lines of a stack trace."""
    return " ".join(str(error).split()).removesuffix(".")


def _short(data: bytes | None) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
