"""Records that are sent over HTTP to the topics that an application reads, and where their effect can be seen."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from streams.cluster.records import Outgoing
from streams.errors import QueryError, SerdeError
from streams.serdes.json_shown import value_of
from streams.serdes.json_text import loads
from streams.serve.position import Position
from streams.serve.reading import ReadStore
from streams.serve.served import Served
from streams.topology.graph import SourceNode
from streams.wording import did_you_mean

Write = Callable[[str, Outgoing], tuple[int, int]]
"""Writes a record to a topic, and returns its partition and offset."""


@dataclass(frozen=True, slots=True)
class Written:
    """The topic, partition and offset of a written record."""

    topic: str
    partition: int
    offset: int

    @property
    def position(self) -> Position:
        """The smallest position that covers the record."""
        return Position({(self.topic, self.partition): self.offset + 1})

    @property
    def as_json(self) -> dict[str, Any]:
        """The place of the record as JSON, for an answer."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


def exactly(data: bytes) -> Any:
    """Parses the JSON of a body to write, and refuses what would not be kept exactly.

    Raises:
        ValueError: It is not JSON, a field occurs twice, or a number would lose digits.
    """
    try:
        json.loads(data, object_pairs_hook=_once, parse_float=_kept)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return loads(data)


def _once(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r} occurs twice")


def _kept(text: str) -> None:
    if Decimal(text) != Decimal(repr(float(text))):
        raise ValueError(f"{text} has more digits than a float of 64 bits: send it as a text, if its type takes one")


class Topics:
    """The topics that the served sub-topologies read and that other programs write.

    Args:
        served: The stores.
        write: Writes a record.
    """

    def __init__(self, served: Served, write: Write) -> None:
        self._served = served
        self._write = write
        internal = f"{served.application_id}-"
        self._sources: dict[str, SourceNode] = {
            str(topic): source
            for sub in served.subs.values()
            for source in sub.sources
            for topic in source.topics
            if not (str(topic).startswith(internal) and str(topic).endswith("-repartition"))
        }

    @property
    def names(self) -> list[str]:
        """The names of the topics."""
        return sorted(self._sources)

    def record(self, topic: str, body: Any) -> tuple[str, Outgoing]:
        """Makes a record of a request's body.

        Raises:
            QueryError: The application does not read the topic, or the body does not fit the topic's serdes.
        """
        source = self._sources.get(topic)
        if source is None:
            known = ", ".join(sorted(self._sources)) or "none"
            raise QueryError(
                f"{topic!r} is not a topic that the served stores are made of; there are: {known}."
                f"{did_you_mean(topic, self._sources)}"
            )
        if not isinstance(body, dict) or "value" not in body or not set(body) <= {"key", "value", "timestamp"}:
            raise QueryError(
                'the body is {"key": ..., "value": ..., "timestamp": ms}; key and timestamp may be missing'
            )
        timestamp = body.get("timestamp")
        if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0):
            raise QueryError(f"timestamp is a number of milliseconds, not {timestamp!r}")
        try:
            key, value = (
                serde.serialize(topic, value_of(serde, topic, body.get(name)))
                for name, serde in (("key", source.key_serde), ("value", source.value_serde))
            )
        except SerdeError as error:
            raise QueryError(f"the record does not fit {topic!r}: {error}") from error
        return topic, Outgoing(key, value, timestamp)

    def write(self, record: tuple[str, Outgoing]) -> Written:
        """Writes a record.

        Raises:
            KafkaClientError: Kafka did not accept it.
        """
        topic, outgoing = record
        return Written(topic, *self._write(topic, outgoing))

    def awaited(self, store: ReadStore, record: tuple[str, Outgoing], key: bytes | None) -> tuple[int, bytes]:
        """The task that processes a record, and the key of the row to answer with.

        Args:
            store: The store that should have the row.
            record: The record.
            key: The row's key; None: that of the record.

        Raises:
            QueryError: There is no key, or the store cannot show the effect of the record. Nothing must be written then.
        """
        self._served.check_topics(store, [record[0]])
        if store.kind.segmented:
            raise QueryError(
                f"{store.name!r} has several rows for a key: wait for a store with one, or read with the position"
            )
        own = record[1].key
        found = own if key is None else key
        if found is None:
            raise QueryError("the record has no key, so the row to wait for needs one: await_key=KEY")
        # If the key changes before the task, the record goes where its row is; otherwise to the task of its own key.
        rekeyed = bool(store.sub and self._served.subs[store.sub].keyed_by)
        task = store.task_of(found if rekeyed or own is None else own)
        if task is None:
            raise QueryError(
                f"{store.name!r} has the rows of a key in the task of the partition that the record comes into, which is known "
                f"only when it is written: read with the position of the answer instead"
            )
        return task, found
