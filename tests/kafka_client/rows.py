"""Records as plain tuples, to write and to compare."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from state.columns import RecordColumns
from state.headers import Header, decode_headers
from state.kafka.config import ClientConfig
from state.kafka.producer import TransactionalProducer
from state.kafka.reader import open_range_reader

_numbers = itertools.count()


class Row(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int = 1_000
    headers: Sequence[Header] = ()


class ReadRow(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: list[Header]


def eventually(ask: Callable[[], object], expected: object, seconds: float = 120) -> None:
    """A commit returns before its control records are written: what it shows may come a moment later."""
    deadline = time.monotonic() + seconds
    while (found := ask()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == expected


def rows_of(columns: RecordColumns) -> list[ReadRow]:
    cells = [None] * len(columns) if columns.headers is None else columns.headers.to_pylist()
    return [
        ReadRow(offset, key, value, timestamp, decode_headers(cell))
        for offset, key, value, timestamp, cell in zip(
            columns.offsets.tolist(),
            columns.keys.to_pylist(),
            columns.values.to_pylist(),
            columns.timestamps.tolist(),
            cells,
            strict=True,
        )
    ]


def read_rows(
    client: ClientConfig, topic: str, start: int, end: int, bulk: bool, partition: int = 0, max_records: int = 100_000
) -> list[ReadRow]:
    reader = open_range_reader(client, topic, partition, start, bulk, timeout_s=60)
    try:
        rows = [row for columns in reader.read(end, max_records) for row in rows_of(columns)]
        assert reader.position == end
        return rows
    finally:
        reader.close()


def commit_rows(
    client: ClientConfig, topic: str, rows: Iterable[Row], bulk: bool = False, transactional_id: str | None = None
) -> None:
    """Write rows to partition 0 in one transaction: they take their offsets, and its control record one more."""
    # An id of its own each time: the broker answers a second init of one id late while its last commit is being finished.
    transactional_id = transactional_id or f"writer-{next(_numbers)}-of-{topic}"
    with TransactionalProducer(client, transactional_id, bulk=bulk) as producer:
        producer.init_transactions()
        producer.begin()
        for row in rows:
            producer.send(topic, 0, row.key, row.value, row.timestamp, row.headers)
        producer.commit()


def abort_rows(client: ClientConfig, topic: str, rows: Iterable[Row]) -> None:
    """Write rows to partition 0 in a transaction that is left open, and have it aborted by the next producer."""
    transactional_id = f"aborted-writer-of-{topic}"
    with TransactionalProducer(client, transactional_id) as producer:
        producer.init_transactions()
        producer.begin()
        for row in rows:
            producer.send(topic, 0, row.key, row.value, row.timestamp, row.headers)
        producer.flush()
        with TransactionalProducer(client, transactional_id) as successor:
            successor.init_transactions()
