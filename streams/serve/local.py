"""`LocalStore`: typed reads of a store from copies in this process, as `KafkaStreams.store` returns it."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from typing import Generic

from state.stores.codec import MAX_TIME
from streams.errors import QueryError, StoreNotReadyError
from streams.model.typing import K, V
from streams.serve.client import ClientRow
from streams.serve.position import Position
from streams.serve.reading import Answer
from streams.serve.scans import Scan
from streams.serve.served import Freshness, Served

_LOOK_S = 0.05
_PAGE = 1000


class LocalStore(Generic[K, V]):
    """Reads a store of an application that this process runs.

    Reads show whole commits and never go back to an older one: they come from copies that follow the application.

    Args:
        served: The stores.
        name: The store.
        wait_s: How long a read may wait for a position, and for a copy that is still being restored.

    Raises:
        QueryError: There is no such store.
    """

    def __init__(self, served: Served, name: str, wait_s: float) -> None:
        self._served, self._store, self._wait_s = served, served.store(name), wait_s

    def get(self, key: K, *, as_of: int | None = None, position: str | None = None) -> V | None:
        """The value of a key, now or at the time `as_of`; None if there is none.

        Args:
            key: The key.
            as_of: The time of a version, ms.
            position: Source offsets that must have been read, such as `payments-0=4`. With the offset after a record, the row shows
                the effect of the record.

        Raises:
            QueryError: The store has no such keys, or it has several rows for a key.
            NotUpToBoundError: The position is not reached in time.
            StoreNotReadyError: The copy is not restored in time.
        """
        data = self._bytes(key)
        self._ready(self._store.tasks_with(data), position)
        answer = self._store.get([data], as_of)
        return answer.rows[0].value if answer.rows else None

    def get_all(self, keys: Iterable[K], *, position: str | None = None) -> dict[K, V]:
        """The values of many keys; keys without a row are left out."""
        wanted = {key: self._bytes(key) for key in keys}
        self._ready({task for data in wanted.values() for task in self._store.tasks_with(data)}, position)
        values, _, _ = self._store.get_each(list(wanted.values()))
        found = zip(wanted.items(), values, strict=True)
        return {key: self._store.value(data, value) for (key, data), value in found if value is not None}

    def range(
        self,
        lower: K | None = None,
        upper: K | None = None,
        *,
        prefix: str | bytes | None = None,
        reverse: bool = False,
    ) -> Iterator[ClientRow[K, V]]:
        """Rows in the order of the keys, all as of the same commits; without bounds: all rows.

        With a prefix, in the order of the keys' bytes.

        Raises:
            QueryError: The bytes of such keys do not sort as the keys do: JSON, tuples, lists, Avro.
        """
        ends = [None if key is None else self._bound(key) for key in (lower, upper)]
        begins = None if prefix is None else self._store.prefix_bytes(prefix)
        return self._rows(Scan(lower=ends[0], upper=ends[1], prefix=begins, reverse=reverse, limit=_PAGE))

    def windows(
        self, key: K | None = None, start: int | None = None, end: int | None = None, *, reverse: bool = False
    ) -> Iterator[ClientRow[K, V]]:
        """Windows that start, or sessions that end, within these times, all as of the same commits."""
        data = None if key is None else self._bytes(key)
        last = MAX_TIME if end is None else end
        return self._rows(Scan(key=data, from_ms=start or 0, to_ms=last, reverse=reverse, limit=_PAGE))

    def _rows(self, scan: Scan) -> Iterator[ClientRow[K, V]]:
        self._store.check(scan)
        self._ready(self._store.tasks_of(scan), None)
        answer = self._store.scan(scan)
        yield from _client_rows(answer)
        while answer.cursor is not None:
            answer = self._store.scan(scan, answer.cursor)
            yield from _client_rows(answer)

    def _bound(self, key: K) -> bytes:
        self._store.check_bound(key)
        return self._bytes(key)

    def _bytes(self, key: K) -> bytes:
        found = self._store.reader.key(key)
        if found is None:
            raise QueryError(f"{key!r} is not a key of store {self._store.name!r}")
        return found

    def _ready(self, tasks: Collection[int], position: str | None) -> None:
        deadline = time.monotonic() + self._wait_s
        for task in tasks:
            while (copy := self._store.find(task)) is None or not copy.ready:
                if time.monotonic() >= deadline:
                    raise StoreNotReadyError(
                        f"task {task} of store {self._store.name!r} cannot be read after {self._wait_s:g} s: its copy is still "
                        f"being restored{f' ({copy.fault})' if copy is not None and copy.fault else ''}"
                    )
                time.sleep(_LOOK_S)
        if position is not None:
            bound = Freshness(position=Position.parse(position))
            self._served.wait(self._store, tasks, bound, max(0.0, deadline - time.monotonic()))


def _client_rows(answer: Answer) -> Iterator[ClientRow[K, V]]:
    return (ClientRow(row.key, row.value, row.timestamp, row.window_start, row.window_end) for row in answer.rows)
