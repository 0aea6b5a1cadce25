"""A `read_committed` consumer of the output that notes when each result arrives."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import TracebackType

import numpy as np
import numpy.typing as npt
import orjson
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from benchmarks.generators.records import Columns
from benchmarks.harness.monitor import TooSlowError
from benchmarks.workloads.base import windowed_key
from state.kafka.admin import KafkaAdmin

Floats = npt.NDArray[np.float64]
TO_END_S = 30.0
"""How long the results that are committed may take to be read."""


class ArrivalReader:
    """Reads the results of windows from a thread of its own.

    Args:
        client: Kafka client properties.
        topic: The output topic.
        partitions: The number of its partitions.
    """

    def __init__(self, client: Mapping[str, str], topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                **client,
                "group.id": "benchmark-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "fetch.queue.backoff.ms": 1,
                "enable.partition.eof": True,
            }
        )
        self._client, self._topic = client, topic
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._read_to = dict.fromkeys(range(partitions), -1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arrivals", daemon=True)
        self._found: list[tuple[float, bytes, bytes]] = []

    def __enter__(self) -> ArrivalReader:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.05)
            if message is not None:
                self._note(message)

    def _note(self, message: Message) -> None:
        error = message.error()
        if error is None and message.value() is not None:
            self._found.append((time.time() * 1_000, message.key(), message.value()))
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            self._read_to[message.partition()] = message.offset()

    def read_to_end(self) -> None:
        """Waits until everything that is committed now has been read.

        Raises:
            TooSlowError: That takes longer than half a minute.
        """
        with KafkaAdmin(self._client) as admin:
            ends = admin.end_offsets([(self._topic, partition) for partition in self._read_to])
        until = time.monotonic() + TO_END_S
        for (_, partition), end in ends.items():
            while self._read_to[partition] < end:
                if time.monotonic() > until:
                    raise TooSlowError(f"results of partition {partition} were not read up to their end, {end}")
                time.sleep(0.05)

    def arrivals(self) -> Columns:
        """All results: `key`, `start`, `t` (the largest time of an input record in it) and `at` (when it arrived)."""
        rows = [
            (*windowed_key(key), orjson.loads(value)["t"], at)
            for at, key, value in self._found
            if not key.startswith(b"close-")
        ]
        parts = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
        kinds = (np.int64, np.int64, np.int64, np.float64)
        columns = [np.array(part, kind) for part, kind in zip(parts, kinds, strict=True)]
        return Columns(dict(zip(("key", "start", "t", "at"), columns, strict=True)))


def latencies(inputs: Columns, results: Columns, window_ms: int) -> Floats:
    """For each input record, how long it took until a result that contains it had arrived, ms; NaN: none has.

    A window's result contains a record if its `t` is at least the record's timestamp: `t` is the largest one in it.
    """
    start = inputs["timestamp"] // window_ms * window_ms
    origin = int(min(inputs["timestamp"].min(), results["t"].min())) // window_ms * window_ms
    span = int(max(inputs["timestamp"].max(), results["t"].max())) - origin + window_ms + 1
    # A window's results lie between its start and its end, so (key, t) is in order within each window, too.
    places = results["key"] * span + results["t"] - origin
    order = np.lexsort((results["at"], places))
    mine = inputs["key"] * span + inputs["timestamp"] - origin
    at = np.searchsorted(places[order], mine, "left")
    found = order[np.minimum(at, len(order) - 1)]
    inside = (at < len(order)) & (results["key"][found] == inputs["key"]) & (results["start"][found] == start)
    return np.where(inside, results["at"][found] - inputs["timestamp"], np.nan)
