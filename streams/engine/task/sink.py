"""Sinks at run time: for results, and for records on which an operator has failed."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from state.columns import binary_column, rows_where
from streams.engine.graph.handlers import MESSAGE, STACK, DeadLetter, Origin, error_headers, fitted
from streams.engine.graph.node import each_record, may_be_the_records_fault
from streams.engine.graph.outputs import DEFAULT_PARTITION, SendBatch, Target
from streams.engine.graph.step_context import StepContext
from streams.errors import OversizedRecordError
from streams.model.ownership import lending
from streams.model.record import RETRY, Headers, Record, RecordContext, Windowed
from streams.model.timestamps import RETRIED_TIME
from streams.operators.attempts import TOPIC
from streams.operators.columnar import NULL_KEY, ColumnarBatch, WindowedKeys, value_column
from streams.serdes.base import Serde
from streams.topology.graph import SinkNode

_BY_KEY = (DEFAULT_PARTITION,)


class SinkRunner:
    """Runs one sink node in one step."""

    def __init__(self, node: SinkNode, run: StepContext) -> None:
        self.name = node.name
        self.received = 0
        self._node = node
        self._run = run
        self._topic = None if node.topic is None else str(node.topic)
        self._target: Target | None = None
        self._extractor = node.topic_extractor and lending(node.topic_extractor)
        self._partitioner = node.partitioner and lending(node.partitioner)
        self._drops_null_keys = node.repartitions and not node.keeps_null_keys and run.settings.mode == "compat"

    def receive(self, record: Record) -> None:
        """Serialises one record and adds it to the records to send."""
        self.received += 1
        if self._drops_null_keys and record.key is None:
            self._run.counters.add(f"dropped:{self.name}:null_key")
            return
        try:
            self._send(record)
        except Exception as error:
            self._run.handlers.handle("production", self.name, self._origin(record), error)

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Serialises records together. If one of them cannot be written, or if there is a partitioner, takes them one by one."""
        if self._drops_null_keys:
            batch = self._with_keys(batch)
        if self._topic is not None and self._node.partitioner is None:
            try:
                columns = self._columns(self._run.outputs.target(self._topic), batch)
            except Exception as error:
                if not may_be_the_records_fault(error):
                    raise
            else:
                self.received += len(batch)
                self._run.collector.add_batch(columns)
                return
        for record in each_record(batch, self._run):
            SinkRunner.receive(self, record)

    def _with_keys(self, batch: ColumnarBatch) -> ColumnarBatch:
        """The records that have a key. The others are counted as dropped."""
        keyed = rows_where(batch.keys.codes != NULL_KEY)
        if (dropped := len(batch) - len(keyed)) == 0:
            return batch
        self.received += dropped
        self._run.counters.add(f"dropped:{self.name}:null_key", dropped)
        return batch.take(keyed)

    def _columns(self, target: Target, batch: ColumnarBatch) -> SendBatch:
        """Serialises the records as columns.

        Raises:
            RecordError: A record cannot be written.
        """
        node, topic = self._node, target.topic
        headers = None if batch.headers is None else [batch.headers_of(row) for row in range(len(batch))]
        values = value_column(batch.values, node.value_serde, topic, headers)
        keys = batch.keys.column(node.key_serde, topic)
        timestamps = np.maximum(batch.timestamps, 0)
        target.check_all(keys, values, timestamps, headers)
        inner = batch.keys.base_column(node.key_serde, topic) if isinstance(batch.keys, WindowedKeys) else None
        if inner is None and any(issubclass(kind, Windowed) for kind in set(map(type, batch.keys.objects))):
            base = [_base_key(node.key_serde, topic, Record(key, None, 0)) for key in batch.keys.objects]
            inner = pa.array(base, pa.binary()).take(pa.array(batch.keys.codes, mask=batch.keys.codes == NULL_KEY))
        cells = None if batch.headers is None else binary_column(batch.headers)
        return SendBatch(topic, keys, values, timestamps, inner, None, cells)

    def count(self) -> None:
        self._run.counters.add(f"in:{self.name}", self.received)
        self.received = 0

    def _origin(self, record: Record) -> Origin:
        """The source record. Without one, the result's own key at least identifies the missing result."""
        origin = self._run.origin()
        if origin.topic is not None or origin.value is not None or origin.window is not None:
            return origin
        try:
            key = self._node.key_serde.serialize(self._topic or "", record.key, record.headers)
        except Exception:
            key = origin.key
        return origin._replace(key=key, timestamp=record.timestamp, headers=record.headers)

    def _send(self, record: Record) -> None:
        node = self._node
        target = self._target
        if target is None:
            target = self._find_target(record)
        topic = target.topic
        key = node.key_serde.serialize(topic, record.key, record.headers)
        value = node.value_serde.serialize(topic, record.value, record.headers)
        timestamp = max(0, record.timestamp)
        target.check(key, value, timestamp, record.headers)
        inner = None
        if isinstance(record.key, Windowed) and key is not None:
            # All windows of a key share a partition (WindowedStreamPartitioner).
            inner = _base_key(node.key_serde, topic, record)
        for partition in self._partitions(target, record):
            self._run.collector.add(topic, key, value, timestamp, record.headers, inner, partition)

    def _find_target(self, record: Record) -> Target:
        """The sink's topic: the program's, which is kept for the step, or the one that the record chooses."""
        if self._topic is None:
            return self._run.outputs.chosen(self._extract_topic(record))
        self._target = self._run.outputs.target(self._topic)
        return self._target

    def _extract_topic(self, record: Record) -> str:
        assert self._extractor is not None, "a sink has a topic or an extractor"
        where = self._run.metadata()
        topic, partition, offset = where if where else (None, -1, -1)
        return self._extractor(
            record.key, record.value, RecordContext(topic, partition, offset, record.timestamp, record.headers)
        )

    def _partitions(self, target: Target, record: Record) -> Collection[int]:
        """The partitions of the record (KIP-837): one copy goes to each. A record without any is counted as dropped."""
        partitioner = self._partitioner
        if partitioner is None:
            return _BY_KEY
        topic, count = target.topic, target.partitions
        if not count:
            raise ValueError(
                f"the number of partitions of topic {topic!r} is not known, which a partitioner needs: name the topic in "
                f"to(...), or leave the partitioner out"
            )
        chosen = partitioner(topic, record.key, record.value, count)
        if chosen is None:
            return _BY_KEY
        # Once each, and sorted, because the order of a set may differ from run to run.
        partitions = (chosen,) if isinstance(chosen, int) else sorted(set(chosen))
        for partition in partitions:
            if not 0 <= partition < count:
                raise ValueError(
                    f"the partitioner chose partition {partition} of topic {topic!r}, which has 0..{count - 1}"
                )
        if not partitions:
            self._run.counters.add(f"dropped:{self.name}:no_partition")
        return partitions


def _base_key(serde: Serde, topic: str, record: Record) -> bytes | None:
    """The inner key's bytes if the serde is for windowed keys, otherwise None."""
    base: Callable[..., bytes] | None = getattr(serde, "serialize_base_key", None)
    return base(topic, record.key, record.headers) if base is not None else None


# --- The sinks of records on which an operator has failed: retry topics, and the dead letters after the last retry.
#
# Such a record is written with the step's time, by which the planner knows when it is due (`streams.engine.source.planner`). Its
# event time is in a header. So every record of a retry topic has waited equally long once it is due, whatever its event time.

NOT_BEFORE = RETRY + "not_before"
LONGEST = 1_000
"""The most bytes of an error's message in a retry topic."""


class FailedSink(SinkRunner):
    """Runs one sink of failed records in one step."""

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Serialises records one by one, because there are few."""
        for record in each_record(batch, self._run):
            self.receive(record)

    def _send(self, record: Record) -> None:
        node, now_ms = self._node, self._run.now_ms
        assert node.failed is not None, "TaskGraph makes other sinks for results"
        target = self._find_target(record)
        key = node.key_serde.serialize(target.topic, record.key, record.headers)
        value = node.value_serde.serialize(target.topic, record.value, record.headers)
        headers = (*record.headers, (RETRIED_TIME, b"%d" % record.timestamp))
        if node.failed.delay_ms is None:
            self._set_aside(target, DeadLetter(key, value, headers))
            return
        waiting = (*_short(headers), (NOT_BEFORE, b"%d" % (now_ms + node.failed.delay_ms)))
        try:
            target.check(key, value, now_ms, waiting)
        except OversizedRecordError as error:
            # A record too large to wait gets no further attempts; later records continue without it (`streams.operators.retry`).
            assert node.failed.dead_letters is not None, "sinks of retry topics have one"
            known, why = (
                dict(headers),
                error_headers("production", self._run.origin()[:3], record.timestamp, error, self.name),
            )
            headers = (*headers, *(one for one in why if one[0] not in known), (TOPIC, target.topic.encode()))
            self._run.counters.add(f"dead_letters:{self.name}")
            self._set_aside(self._run.outputs.target(node.failed.dead_letters), DeadLetter(key, value, headers))
            return
        self._run.collector.add(target.topic, key, value, now_ms, waiting)

    def _set_aside(self, target: Target, letter: DeadLetter) -> None:
        key, value, headers = fitted(letter, target.kafka_bytes)
        self._run.collector.add(target.topic, key, value, target.nearest_time(self._run.now_ms), headers)


def _short(headers: Headers) -> Headers:
    """The headers without parts that could make a record too large to wait. The dead letter has all of them, cut if necessary."""
    return tuple(
        (name, value[:LONGEST] if name == MESSAGE and value is not None else value)
        for name, value in headers
        if name not in (STACK, NOT_BEFORE)
    )


# --- A sink while a key is followed.


class FollowedSink(SinkRunner):
    def receive(self, record: Record) -> None:
        assert self._run.followed is not None, "see sink_runner"
        self._run.followed.receives(self.name, record)
        super().receive(record)

    def receive_batch(self, batch: ColumnarBatch) -> None:
        assert self._run.followed is not None, "see sink_runner"
        self._run.followed.receives_all(self.name, batch)
        super().receive_batch(batch)


def sink_runner(node: SinkNode, run: StepContext) -> SinkRunner:
    """Makes the runner of a sink. Sinks of failed records are not followed, because operators report the records that they drop."""
    if node.failed is not None:
        return FailedSink(node, run)
    return SinkRunner(node, run) if run.followed is None else FollowedSink(node, run)
