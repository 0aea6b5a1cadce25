"""Global tables: the copies that one process keeps, and the context of a processor that maintains one.

Such a processor only maintains its store (Kafka Streams: `GlobalProcessorContextImpl`). It runs in every process, once for each
copy, so any other effect would happen several times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from state.columns import RecordColumns
from state.errors import KafkaClientError
from state.headers import decode_headers
from state.kafka.topics import TopicPartition
from state.restore.plan import LogRange, cannot_continue
from state.stores.position import StoreOrigin, StorePosition
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from streams.engine.graph.handlers import NOWHERE, ErrorHandlers, Origin
from streams.engine.graph.keys import canonical_keys, read_key
from streams.engine.graph.node import may_be_the_records_fault
from streams.engine.graph.settings import Counters, TaskSettings, global_table_settings
from streams.engine.graph.typed_stores import typed_store
from streams.engine.source.log import now_ms as wall_clock_ms
from streams.errors import TopologyError
from streams.model.record import Record, RecordMetadata
from streams.model.timestamps import ConsumedRecord
from streams.operators.operator import Mode
from streams.operators.process.user_stores import GlobalKeyValueStore
from streams.operators.processor import AnyProcessor
from streams.topology.graph import GlobalTable


class GlobalContext:
    """The part of `ProcessorContext` that is available to a global store's processor.

    Args:
        table: The global table: the store and its source.
        stores: The process's stores.
        settings: The application's settings.
        counters: The counters of `drop`.
        now_ms: The step's wall clock.
    """

    task_id = "global"
    flushing = False

    def __init__(
        self, table: GlobalTable, stores: TaskStore, settings: TaskSettings, counters: Counters, now_ms: int
    ) -> None:
        self.node = table.name
        self.application_id = settings.application_id
        self.mode: Mode = settings.mode
        self.now_ms = now_ms
        self.record_metadata: RecordMetadata | None = None
        self._counters = counters
        self._name = table.store.name
        self._typed = typed_store(table.store, stores, str(table.source.topics[0]))

    def store(self, name: str) -> Any:
        """Returns the processor's own store, and refuses all others."""
        if name != self._name:
            raise TopologyError(f"'{self.node}' keeps the global store '{self._name}' and sees no other, not '{name}'.")
        return self._typed

    def drop(self, record: Record, reason: str) -> None:
        """Counts a record that changes nothing."""
        self._counters.add(f"dropped:{self.node}:{reason}")

    def partly_done(self) -> None:
        """Does nothing, because records of global tables have no dead letters."""

    def __getattr__(self, name: str) -> Any:
        """Refuses everything else, by name."""
        raise TopologyError(
            f"'{self.node}' keeps a global store and has no '{name}': it runs once in every process. Read the topic as a stream "
            f"to forward, to schedule and to keep other state."
        )


# --- The global tables of an application in one process (Kafka Streams: `GlobalStateManagerImpl`).
#
# Each process that runs tasks has one `GlobalTables`, and so does each process that serves queries. Before the tasks of a batch
# begin, it reads up to the offsets that the driver logged for the batch, so that a repeated batch sees at least the same rows. The
# topic is the changelog, so nothing is written to Kafka. There are no dead letters either, because each process would send its own.
#
# Invariants: rows and positions are applied together, so a reader that stops half-way reads nothing twice; after `bring_to`, the
# tables have exactly the records below the ends. Tables that have read further, as after a rollback of the checkpoint, are read
# again. (By then a compacted topic may have lost the older value of a key that was written again. Such a key is missing until the
# next batch. Kafka Streams guarantees no order between global tables and streams at all.)

POSITIONS = "__positions"
_TASK = "global"
_AS_OF = b" as of"
"""The suffix of the key that holds a position's time; the key without it holds the position. Topic names have no spaces."""
_AS_OF_EVERY_MS = 60_000
"""While a topic has no new records, the time of its position is renewed after this long."""
_UNKNOWN_RETENTION_MS = 60 * 60 * 1000
"""How long a topic is assumed to keep tombstones if these credentials may not ask. Nearly all topics keep them longer."""
_LONG_AGO_MS = 1

log = logging.getLogger(__name__)


class TopicLogs(Protocol):
    """Reads the topics of global tables from Kafka."""

    def begin_offset(self, partition: TopicPartition) -> int: ...
    def delete_retention_ms(self, topic: str) -> int: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


def global_store_specs(tables: Sequence[GlobalTable]) -> list[StoreSpec]:
    """The stores that the `TaskStore` of a process needs for these tables."""
    positions = StoreSpec(POSITIONS, StoreKind.KEY_VALUE, logged=False)
    return [positions, *(table.store.spec for table in tables)]


class GlobalTables:
    """The tables of one process, and how far it has read each partition of their topics.

    Args:
        store: A `TaskStore` with `global_store_specs(tables)`. It is reused between batches, and may be lost with the process.
        settings: Policies. A record that cannot be read fails or is skipped; there are no dead letters (as in Kafka Streams).
        clock_ms: The wall clock, which determines how old the tables are. The time of a batch may have been logged long ago.

    Attributes:
        counters: Dropped and skipped records of this process since the last `take_counters`.

    Raises:
        ConfigError: A policy is `dlq`.
    """

    def __init__(
        self,
        tables: Sequence[GlobalTable],
        store: TaskStore,
        settings: TaskSettings,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._clock_ms = clock_ms
        self.counters = Counters()
        self._by_topic = {str(table.source.topics[0]): table for table in tables}
        self._store = store
        settings = global_table_settings(settings) if tables else settings
        self._settings = settings
        self._handlers = ErrorHandlers(settings, self.counters, _TASK, lambda letter, origin: None)

    @property
    def topics(self) -> list[str]:
        return list(self._by_topic)

    @property
    def stores(self) -> Mapping[str, Any]:
        """Typed stores by name, for `StreamTask`; read-only."""
        return {
            table.store.name: GlobalKeyValueStore(table.store.name, typed_store(table.store, self._store, topic))
            for topic, table in self._by_topic.items()
        }

    def take_counters(self) -> Counters:
        """Returns the counters and resets them."""
        taken = Counters(self.counters)
        # In place, because the error handlers refer to the same object.
        self.counters.clear()
        return taken

    def bring_to(self, ends: Mapping[TopicPartition, int], logs: TopicLogs, now_ms: int) -> bool:
        """Reads up to the ends, which the topics had at `now_ms`, and returns whether anything was missing.

        Raises:
            RecordFailedError: A record cannot be read, or the processor fails, and the policy is `fail`.
            KafkaClientError: Reading failed; another call continues.
        """
        missing = self._missing(ends, logs)
        for place, one in missing.items():
            if one.begin < one.end:
                if self.as_of_ms(*place) is None:
                    # If the process ends while it reads, the next one continues.
                    self.reached(*place, 0, now_ms)
                for columns in logs.read(*place, one.begin, one.end):
                    self.update(columns, now_ms)
        for place, end in ends.items():
            if place in missing or now_ms - (self.as_of_ms(*place) or 0) > _AS_OF_EVERY_MS:
                self.reached(*place, end, now_ms)
        return bool(missing)

    def _missing(self, ends: Mapping[TopicPartition, int], logs: TopicLogs) -> dict[TopicPartition, LogRange]:
        """The offsets to read of each partition. Clears the tables first if reading further would not make them correct."""
        missing = {}
        for place, end in ends.items():
            at, as_of_ms = self.position(*place), self.as_of_ms(*place)
            if at == end:
                continue
            begin = logs.begin_offset(place)
            if at > 0:
                part = LogRange(begin, end, delete_retention_ms=_retention_ms(logs, place[0]))
                origin = StoreOrigin(_TASK, as_of_ms=_LONG_AGO_MS if as_of_ms is None else as_of_ms)
                if (why := cannot_continue(origin, at, part, self._clock_ms())) is not None:
                    log.info("the global tables are read again: %s-%d: %s", *place, why)
                    self.reset()
                    return self._missing(ends, logs)
            missing[place] = LogRange(max(at, begin), end)
        return missing

    def position(self, topic: str, partition: int) -> int:
        positions: Any = self._store.store(POSITIONS)
        data: bytes | None = positions.get(_place(topic, partition))
        return 0 if data is None else int.from_bytes(data, "big")

    def update(self, columns: RecordColumns, now_ms: int) -> None:
        """Applies records of one topic-partition in the order of their offsets, and skips those below `position`.

        Raises:
            RecordFailedError: A record cannot be read, or the processor fails, and the policy is `fail`.
        """
        table = self._by_topic[columns.topic]
        first = self.position(columns.topic, columns.partition)
        position = first
        keeper = self._keeper(table, now_ms)
        try:
            canonical = canonical_keys(table.source.key_serde, columns)
            for index in np.flatnonzero(columns.offsets >= first).tolist():
                self._take_record(table, keeper, columns, index, canonical[index].as_py(), now_ms)
                position = int(columns.offsets[index]) + 1
            self._end(table, keeper)
        except BaseException:
            self._store.discard()
            raise
        finally:
            keeper.close()
        if position > first:
            self._apply(columns.topic, columns.partition, position)

    def as_of_ms(self, topic: str, partition: int) -> int | None:
        """A time, in ms, at which no record past the position existed; None if an older version wrote the position."""
        positions: Any = self._store.store(POSITIONS)
        data: bytes | None = positions.get(_place(topic, partition) + _AS_OF)
        return None if data is None else int.from_bytes(data, "big")

    def reached(self, topic: str, partition: int, offset: int, as_of_ms: int) -> None:
        """Notes that all records below an offset are applied. Offsets that are missing below it are control records."""
        positions: Any = self._store.store(POSITIONS)
        positions.put(_place(topic, partition) + _AS_OF, as_of_ms.to_bytes(8, "big"), 0)
        self._apply(topic, partition, offset)

    def reset(self) -> None:
        """Deletes all rows and positions, so that reading starts again."""
        self._store.reset()

    def _apply(self, topic: str, partition: int, position: int) -> None:
        places: Any = self._store.store(POSITIONS)
        places.put(_place(topic, partition), position.to_bytes(8, "big"), 0)
        before = self._store.position
        self._store.apply(StorePosition(_TASK, 1 if before is None else before.version + 1, {}))

    def _keeper(self, table: GlobalTable, now_ms: int) -> _Keeper:
        if table.supplier is None:
            return _LastValues(self._store.store(table.store.name))
        context = GlobalContext(table, self._store, self._settings, self.counters, now_ms)
        return _Processed(table.supplier(), context)

    def _take_record(
        self, table: GlobalTable, keeper: _Keeper, columns: RecordColumns, index: int, row: bytes | None, now_ms: int
    ) -> None:
        key, value = columns.keys[index].as_py(), columns.values[index].as_py()
        if row is None and not keeper.takes_null_keys:
            self.counters.add(f"dropped:{table.name}:null_key")
            return
        headers = () if columns.headers is None else tuple(decode_headers(columns.headers[index].as_py()))
        offset, timestamp = int(columns.offsets[index]), int(columns.timestamps[index])
        source = table.source
        origin = Origin(columns.topic, columns.partition, offset, timestamp, key, value, headers)
        try:
            own_key = read_key(source.key_serde, columns.topic, row, headers)
            read_value = source.value_serde.deserialize(columns.topic, value, headers)
            record = ConsumedRecord(columns.topic, columns.partition, offset, timestamp, own_key, read_value, headers)
            time = source.timestamp_extractor.extract(record, -1, now_ms)
        except Exception as error:
            self._handlers.handle("deserialization", source.name, origin, error)
            return
        if time < 0:
            self.counters.add(f"dropped:{source.name}:timestamp")
            return
        try:
            keeper.take(Record(own_key, read_value, time, headers), row, origin)
        except Exception as error:
            self._failed(table, origin, error)

    def _end(self, table: GlobalTable, keeper: _Keeper) -> None:
        try:
            keeper.end()
        except Exception as error:
            self._failed(table, NOWHERE, error)

    def _failed(self, table: GlobalTable, origin: Origin, error: Exception) -> None:
        if not may_be_the_records_fault(error):
            raise error
        self._handlers.handle("processing", table.name, origin, error)


class _Keeper(Protocol):
    takes_null_keys: bool

    def take(self, record: Record, key: bytes | None, origin: Origin) -> None:
        """Applies a record; `key` is its key in canonical bytes."""

    def end(self) -> None: ...
    def close(self) -> None: ...


class _LastValues:
    """Stores the original bytes of each key's last value under the key's canonical bytes.

    It only checks that values can be read.
    """

    takes_null_keys = False

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def take(self, record: Record, key: bytes | None, origin: Origin) -> None:
        value = None if origin.value is None else record.timestamp.to_bytes(8, "big") + origin.value
        self._rows.put(key, value, record.timestamp)

    def end(self) -> None: ...
    def close(self) -> None: ...


class _Processed:
    """Lets the user's processor maintain the store, and flushes it after each run of records."""

    takes_null_keys = True

    def __init__(self, processor: AnyProcessor, context: GlobalContext) -> None:
        self._processor = processor
        self._context = context
        processor.init(context)

    def take(self, record: Record, key: bytes | None, origin: Origin) -> None:
        assert origin.topic is not None, "it was read from a topic"
        self._context.record_metadata = RecordMetadata(origin.topic, origin.partition, origin.offset)
        self._processor.process(record)

    def end(self) -> None:
        self._processor.flush()

    def close(self) -> None:
        self._processor.close()


def _retention_ms(logs: TopicLogs, topic: str) -> int:
    try:
        return logs.delete_retention_ms(topic)
    except KafkaClientError as error:
        if error.transient:
            raise
        log.info("how long %s keeps tombstones is not known: %s", topic, error)
        return _UNKNOWN_RETENTION_MS


def _place(topic: str, partition: int) -> bytes:
    return f"{topic}-{partition}".encode()
