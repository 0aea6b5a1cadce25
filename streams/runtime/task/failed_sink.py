"""The sinks of records that an operator has failed on: retry topics, and the dead letters after the last retry.

Such a record is written with the step's time, by which the planner knows when it is due (`streams.source.planner`); its event time
is in a header. So every record of a retry topic has waited equally long once it is due, whatever its event time.
"""

from __future__ import annotations

from streams.errors import OversizedRecordError
from streams.model.record import Headers, Record
from streams.model.timestamps import RETRIED_TIME
from streams.operators.columnar import ColumnarBatch
from streams.operators.retry.retry import RETRY, TOPIC
from streams.runtime.current_record import each_record
from streams.runtime.dead_letters import MESSAGE, STACK, DeadLetter, error_headers, fitted
from streams.runtime.outputs import Target
from streams.runtime.task.sink import SinkRunner

NOT_BEFORE = RETRY + "not_before"
LONGEST = 1_000
"""Most bytes of an error's message in a retry topic."""


class FailedSink(SinkRunner):
    """One sink of failed records in one run."""

    def receive_batch(self, batch: ColumnarBatch) -> None:
        """Serialise and collect records one by one, since there are few."""
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
            # What cannot wait has no more attempts; those behind it go on without it (`streams.operators.retry.retry`).
            assert node.failed.dead_letters is not None, "sinks of retry topics have one"
            known, why = dict(headers), error_headers("production", self._run.origin()[:3], record.timestamp, error)
            headers = (*headers, *(one for one in why if one[0] not in known), (TOPIC, target.topic.encode()))
            self._run.counters.add(f"dead_letters:{self.name}")
            self._set_aside(self._run.outputs.target(node.failed.dead_letters), DeadLetter(key, value, headers))
            return
        self._run.collector.add(target.topic, key, value, now_ms, waiting)

    def _set_aside(self, target: Target, letter: DeadLetter) -> None:
        key, value, headers = fitted(letter, target.kafka_bytes)
        self._run.collector.add(target.topic, key, value, target.nearest_time(self._run.now_ms), headers)


def _short(headers: Headers) -> Headers:
    """Headers without what could make a record too large to wait: people find all of it in the dead letter, cut if need be."""
    return tuple(
        (name, value[:LONGEST] if name == MESSAGE and value is not None else value)
        for name, value in headers
        if name not in (STACK, NOT_BEFORE)
    )
