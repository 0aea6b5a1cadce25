"""Global tables: the context of a processor that maintains one, and the copies of a process.

The context of a global store's processor.

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
        """The processor's own store; other stores are refused."""
        if name != self._name:
            raise TopologyError(f"'{self.node}' keeps the global store '{self._name}' and sees no other, not '{name}'.")
        return self._typed

    def drop(self, record: Record, reason: str) -> None:
        """Count a record that changes nothing."""
        self._counters.add(f"dropped:{self.node}:{reason}")

    def partly_done(self) -> None:
        """Nothing: records of global tables have no dead letters."""

    def __getattr__(self, name: str) -> Any:
        """Refuses everything else, by name."""
        raise TopologyError(
            f"'{self.node}' keeps a global store and has no '{name}': it runs once in every process. Read the topic as a stream "
            f"to forward, to schedule and to keep other state."
        )


# --- The global tables of an application, as held by one process (Kafka Streams: `GlobalStateManagerImpl`).
#
# Each process that runs tasks has one `GlobalTables`, and brings it up to the offsets that the driver logged for the batch
# before its tasks begin, so that a repeated batch sees at least the same rows; each process that serves has one, too. The topic
# is the changelog: nothing is written to Kafka, hence there are no dead letters either, because each process would send its
# own. Invariants: rows and positions are applied together, so a reader that stops half-way reads nothing twice; after `bring_to`
# the tables have exactly the records below the ends. Tables that have read further, as after a rollback of the checkpoint, are
# read again. (A compacted topic may by then have lost the older value of a key that was written again: such a key is missing
# until the next batch. Kafka Streams guarantees no order between global tables and streams at all.)

POSITIONS = "__positions"
_TASK = "global"
_AS_OF = b" as of"
"""Behind a place: the key of its time. No topic's name has a space."""
_AS_OF_EVERY_MS = 60_000
"""How old the time of a position becomes while its topic has no new records."""
_UNKNOWN_RETENTION_MS = 60 * 60 * 1000
"""How long a topic is assumed to keep tombstones if these credentials may not ask: less than nearly all topics."""
_LONG_AGO_MS = 1

log = logging.getLogger(__name__)


class TopicLogs(Protocol):
    """Kafka, for reading the topics of global tables."""

    def begin_offset(self, partition: TopicPartition) -> int: ...
    def delete_retention_ms(self, topic: str) -> int: ...
    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]: ...


def global_store_specs(tables: Sequence[GlobalTable]) -> list[StoreSpec]:
    """The stores that a process needs for these tables, for its `TaskStore`."""
    positions = StoreSpec(POSITIONS, StoreKind.KEY_VALUE, logged=False)
    return [positions, *(table.store.spec for table in tables)]


class GlobalTables:
    """The tables, and the positions in their topics' partitions.

    Args:
        store: A `TaskStore` with `global_store_specs(tables)`; reused between batches, and possibly lost with the process.
        settings: Policies. A record that cannot be read fails or is skipped; there are no dead letters (as in Kafka Streams).
        clock_ms: The wall clock, which determines how old the tables are; the time of a batch may have been logged long ago.

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
        """Reads what is missing up to the ends, which the topics had at `now_ms`, and says whether anything was.

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
        """What remains to be read of each partition. Tables that would not become right by that are emptied first."""
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
        """Apply records of one topic-partition, in order of their offsets; those before `position` are skipped.

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
        """When no record past the position existed, ms; None: an older version of the engine has written it."""
        positions: Any = self._store.store(POSITIONS)
        data: bytes | None = positions.get(_place(topic, partition) + _AS_OF)
        return None if data is None else int.from_bytes(data, "big")

    def reached(self, topic: str, partition: int, offset: int, as_of_ms: int) -> None:
        """Notes that all records below an offset were applied; missing offsets are control records."""
        positions: Any = self._store.store(POSITIONS)
        positions.put(_place(topic, partition) + _AS_OF, as_of_ms.to_bytes(8, "big"), 0)
        self._apply(topic, partition, offset)

    def reset(self) -> None:
        """Deletes all rows and positions, so that reading begins again."""
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
        """Takes a record with the canonical bytes of its key."""

    def end(self) -> None: ...
    def close(self) -> None: ...


class _LastValues:
    """Stores the last value of each key as the original bytes, under its canonical ones; deserialisation is only a check."""

    takes_null_keys = False

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def take(self, record: Record, key: bytes | None, origin: Origin) -> None:
        value = None if origin.value is None else record.timestamp.to_bytes(8, "big") + origin.value
        self._rows.put(key, value, record.timestamp)

    def end(self) -> None: ...
    def close(self) -> None: ...


class _Processed:
    """Lets the user's processor maintain the store; the processor is flushed at the end of the run of records."""

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
