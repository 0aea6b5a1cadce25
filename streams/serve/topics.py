"""Records that are sent over HTTP to the topics that an application reads, and where to look for what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streams.cluster.records import Outgoing
from streams.errors import QueryError, SerdeError
from streams.serve.position import Position
from streams.serve.reading import ReadStore
from streams.serve.requests import key_bytes
from streams.serve.served import Served
from streams.topology.graph import SourceNode
from streams.wording import did_you_mean

Write = Callable[[str, Outgoing], tuple[int, int]]
"""Writes a record to a topic, and gives its partition and offset."""


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    @property
    def position(self) -> Position:
        """What covers the record."""
        return Position({(self.topic, self.partition): self.offset + 1})

    @property
    def as_json(self) -> dict[str, Any]:
        """For an answer."""
        return {"topic": self.topic, "partition": self.partition, "offset": self.offset}


class Topics:
    """The topics from outside that the served sub-topologies read.

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
        """Their names."""
        return sorted(self._sources)

    def record(self, topic: str, body: Any) -> tuple[str, Outgoing]:
        """The record of a request's body.

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
            key = source.key_serde.serialize(topic, body.get("key"))
            value = source.value_serde.serialize(topic, body["value"])
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

    def awaited(self, store: ReadStore, record: tuple[str, Outgoing], key: str | None) -> tuple[int, list[bytes]]:
        """The task that processes a record, and the keys of the row to answer with.

        Args:
            store: The store that is to have the row.
            record: The record.
            key: The row's key, as text; None: that of the record.

        Raises:
            QueryError: No key can be found, or the store never shows what becomes of the record. So nothing is to be written.
        """
        self._served.check_topics(store, [record[0]])
        if store.kind.segmented:
            raise QueryError(
                f"{store.name!r} has several rows for a key: wait for a store with one, or read with the position"
            )
        keys = [record[1].key] if key is None else key_bytes(store, key)
        found = [one for one in keys if one is not None]
        if not found:
            raise QueryError("the record has no key, so the row to wait for needs one: await_key=KEY")
        # With a new key in front of the task, the record goes where its row is; else to the task of its own key.
        rekeyed = bool(store.sub and self._served.subs[store.sub].keyed_by)
        own = record[1].key
        task = store.task_of(found[0] if rekeyed or own is None else own)
        if task is None:
            raise QueryError(
                f"{store.name!r} has the rows of a key in the task of the partition that the record comes into, which is known "
                f"only when it is written: read with the position of the answer instead"
            )
        return task, found
