"""Records from lines of text: `key TAB value`, or a JSON object."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from streams.cli.topic.serdes import TopicSerdes, from_text, to_bytes
from streams.cli.topic.times import to_timestamp
from streams.cluster.records import Outgoing
from streams.errors import ConfigError, SerdeError

_FIELDS = {"key", "value", "timestamp", "headers", "partition"}
_READ_FIELDS = {"topic", "offset"}
"""Fields that `streams topic read --json` adds to say where a record came from; ignored here."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """The format of lines that become records.

    Attributes:
        topic: The topic to write to, which serdes receive.
        separator: The text between key and value.
        null: The text that represents null; None: none.
        timestamp: Event time of records without their own, ms; None: the time of writing.
        timestamps: Whether each line begins with its event time.
        headers: Headers of all records.
        partition: Partition of records that name none; None: by key.
        as_json: Whether each line is a JSON object.
        serdes: The serdes of keys and values.
    """

    topic: str
    separator: str = "\t"
    null: str | None = None
    timestamp: int | None = None
    timestamps: bool = False
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    as_json: bool = False
    serdes: TopicSerdes = field(default_factory=TopicSerdes)


def records_of(lines: Iterable[bytes], form: LineFormat) -> Iterator[Outgoing]:
    """Yields a record for each line, except empty lines.

    Raises:
        ConfigError: A line does not match the format; the message has its number.
    """
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if not text:
            continue
        try:
            yield _of_json(text, form) if form.as_json else _of_text(text, form)
        except (ConfigError, SerdeError, UnicodeEncodeError) as error:
            raise ConfigError(f"line {number}: {error}") from error


def _of_text(text: bytes, form: LineFormat) -> Outgoing:
    separator, timestamp = form.separator.encode(), form.timestamp
    if form.timestamps:
        time, found, text = text.partition(separator)
        if not found:
            raise ConfigError(f"a time and {form.separator!r} are needed before the record")
        timestamp = to_timestamp(time.decode(errors="replace"))
    first, found, rest = text.partition(separator)
    key = _typed(form, form.serdes.key, first) if found else None
    value = _typed(form, form.serdes.value, rest if found else text)
    return Outgoing(key, value, timestamp, form.headers, form.partition)


def _typed(form: LineFormat, serde: Any, text: bytes) -> bytes | None:
    if form.null is not None and text == form.null.encode():
        return None
    return from_text(serde, form.topic, text)


def _of_json(text: bytes, form: LineFormat) -> Outgoing:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict) or "value" not in found:
        raise ConfigError(
            'an object with "value" is needed, such as {"key": "a", "value": 1, "timestamp": 1700000000000}'
        )
    unknown = found.keys() - _FIELDS - _READ_FIELDS
    if unknown:
        raise ConfigError(f"unknown fields {sorted(unknown)}; a record has {', '.join(sorted(_FIELDS))}")
    timestamp, partition = found.get("timestamp"), found.get("partition")
    if partition is not None and not isinstance(partition, int):
        raise ConfigError(f'"partition" is a number, not {partition!r}')
    return Outgoing(
        to_bytes(form.serdes.key, form.topic, found.get("key")),
        to_bytes(form.serdes.value, form.topic, found["value"]),
        form.timestamp if timestamp is None else to_timestamp(str(timestamp)),
        (*form.headers, *_headers(found.get("headers"))),
        form.partition if partition is None else partition,
    )


def _headers(given: Any) -> Iterator[tuple[str, bytes | None]]:
    """The headers from a JSON object, or from a list of pairs, in which a name may occur twice."""
    found = given.items() if isinstance(given, Mapping) else given or ()
    for pair in found:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigError('"headers" is an object, or a list of pairs [name, value]')
        name, value = pair
        yield str(name), None if value is None else str(value).encode()
