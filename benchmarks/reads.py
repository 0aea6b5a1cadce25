"""How fast a served store answers: single keys, batches, ranges and SQL, from Python and over HTTP; from one copy in RocksDB.

The changelog is generated in memory, so Kafka takes no part. Clients over HTTP are a process of their own, with eight connections;
what the server costs is the CPU of this process meanwhile; of `StoreClient`, the CPU is the client's. Every answer is checked: it
has the status 200, as many rows as were asked for, and the values of the first and the last of them.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.failover import GeneratedChangelog
from state.changelog import commits_topic
from state.columns import RecordColumns
from state.commit.marker import MARKER_KEY, CommitMarker
from state.kafka.topics import TopicPartition
from state.restore.task_stores import TaskStateManager, WorkerMemory
from streams import JsonSerde, Materialized, StreamsBuilder, StringSerde
from streams.dsl.options import Consumed
from streams.serve.client import StoreClient
from streams.serve.copies import TaskCopy
from streams.serve.http.security import Guard, Security
from streams.serve.scans import Scan
from streams.serve.served import Served, replica_task
from streams.serve.tables import ARROW
from streams.topology.plan import build_plan

_APP, _PART = "reads", 100_000
_PARTS = 10
_CONNECTIONS = 8
_PAGE = 1000
_Asked = TypeVar("_Asked")


@dataclass(frozen=True)
class Reads:
    """One way to read.

    Attributes:
        way: Its name.
        rows: How many rows were read.
        seconds: In all.
        cpu_seconds: Of the process that reads, as if each part had taken what the median one has: other work on the machine makes
            some parts dear.
        p50_ms: Half of the requests took no longer.
        p99_ms: 99 of 100 requests took no longer.
    """

    way: str
    rows: int
    seconds: float
    cpu_seconds: float
    p50_ms: float
    p99_ms: float


class _Logs(GeneratedChangelog):
    """The changelog of a table with a text key and a JSON value of about 100 bytes each, and its one commit."""

    def __init__(self, rows: int, commits: str, marker: Callable[[int], CommitMarker]) -> None:
        super().__init__(rows)
        self._commits = commits
        self._marker = marker(rows)

    def end_offsets(self, partitions: object) -> dict[TopicPartition, int]:
        return {place: 2 if place[0] == self._commits else self.end for place in partitions}  # type: ignore[attr-defined]

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        if topic == self._commits:
            yield _columns(topic, [(MARKER_KEY, self._marker.to_bytes())], 0)
            return
        for first in range(start, end, _PART):
            numbers = range(first, min(first + _PART, end))
            yield _columns(topic, [(_key(number).encode(), _value(number)) for number in numbers], first)


def _key(number: int) -> str:
    return f"{number:016d}"


def _value(number: int) -> bytes:
    return orjson.dumps(
        {"id": number, "name": f"customer {number}", "city": "Frankfurt am Main", "orders": number % 97}
    )


def _columns(topic: str, rows: list[tuple[bytes, bytes]], first: int) -> RecordColumns:
    offsets = np.arange(first, first + len(rows), dtype=np.int64)
    keys, values = (pa.array(column, pa.binary()) for column in zip(*rows, strict=True))
    return RecordColumns(topic, 0, offsets, np.ones(len(rows), np.int64), keys, values)


def reads(rows: int, requests: int) -> Iterator[Reads]:
    """Measures each way, over keys chosen at random."""
    with tempfile.TemporaryDirectory(prefix="streams-reads-") as scratch:
        served = _served(rows, Path(scratch))
        store = served.store("customers")
        chosen = random.Random(2)
        keys = [_key(chosen.randrange(rows)) for _ in range(requests)]
        yield _timed("a key, from Python", lambda key: len(store.get([key.encode()]).rows), keys)
        batches = [[key.encode() for key in keys[at : at + 1000]] for at in range(0, len(keys), 1000)]
        # The first batch of a process loads what is compiled.
        store.get_all(batches[0])
        yield _timed("1000 keys at once", lambda batch: len(store.get_all(batch).rows), batches)
        lows = [key.encode() for key in keys[: max(1, requests // 1000)]]
        yield _timed("a range of 1000 rows", lambda low: len(store.scan(Scan(lower=low)).rows), lows)
        yield from _over_http(served, keys, rows)


def _timed(way: str, call: Callable[[_Asked], int], asked: Sequence[_Asked]) -> Reads:
    def part(some: Sequence[_Asked]) -> _Done:
        times, rows = [], 0
        for one in some:
            started = time.perf_counter()
            rows += call(one)
            times.append(time.perf_counter() - started)
        return rows, sum(times), times

    return _by_parts(way, part, asked)


_Done = tuple[int, float, list[float]]
"""Rows, seconds, and the time of each request."""


def _by_parts(way: str, read: Callable[[Sequence[_Asked]], _Done], asked: Sequence[_Asked]) -> Reads:
    done, cpu_of_a_row = list[_Done](), list[float]()
    for number in range(min(_PARTS, len(asked))):
        cpu = time.process_time()
        done.append(read(asked[number::_PARTS]))
        cpu_of_a_row.append((time.process_time() - cpu) / done[-1][0])
    rows = sum(one for one, _, _ in done)
    p50, p99 = (
        float(np.quantile([time for _, _, times in done for time in times], share)) * 1000 for share in (0.5, 0.99)
    )
    return Reads(way, rows, sum(seconds for _, seconds, _ in done), float(np.median(cpu_of_a_row)) * rows, p50, p99)


def _served(rows: int, folder: Path) -> Served:
    builder = StreamsBuilder()
    builder.table("customers-in", Consumed(StringSerde(), JsonSerde()), Materialized("customers"))
    topology = builder.build()
    (sub,) = build_plan(topology, _APP).sub_topologies
    task = replica_task(_APP, sub, 0, 1)

    def marker(end: int) -> CommitMarker:
        return CommitMarker(
            "query", 0, 1, sub.topology_hash, 1, 0, "", {}, {}, 0, {}, {"customers": end}, {}, {}, "", 1
        )

    logs = _Logs(rows, task.commits[0], marker)
    memory = WorkerMemory()

    def make(_: object) -> TaskStateManager:
        return TaskStateManager(logs, task.place.identity(), list(task.specs), folder, memory=memory)

    copy = TaskCopy(logs, task, make)
    copy.bring_forward()
    assert copy.version == 1
    copies: Mapping[TopicPartition, TaskCopy] = {(commits_topic(_APP, sub.name), 0): copy}
    return Served(topology, _APP, [sub], {sub.name: 1}, lambda: copies, logs)


def _over_http(served: Served, keys: list[str], rows: int) -> Iterator[Reads]:
    from streams.config.settings import Address
    from streams.serve.app import Api
    from streams.serve.http.servers import HttpThread, listening

    listener = listening(Address("127.0.0.1", 0), "stores", "--http")
    port = listener.getsockname()[1]
    batches = [keys[at : at + 1000] for at in range(0, len(keys), 1000)]
    api = Api(served, Guard(Security()))
    with (
        HttpThread(api.application(), listener, api.options),
        ProcessPoolExecutor(1, get_context("spawn")) as clients,
    ):
        # The process of the clients has started, and so have the connections' threads.
        clients.submit(_load, port, [_get(key) for key in keys[:100]]).result()
        pages = [key for key in batches[0] if int(key) + _PAGE <= rows]
        ways = {
            "a key, over HTTP": [_get(key) for key in keys],
            "1000 keys, over HTTP": list(map(_batch, batches)),
            "1000 keys, as Arrow": [_batch(some, ARROW) for some in batches],
            "a range of 1000 rows, over HTTP": list(map(_range, pages)),
            "a range of 1000 rows, as Arrow": [_range(key, ARROW) for key in pages],
        }
        if find_spec("duckdb") is not None:
            # The first query starts the processes for SQL.
            clients.submit(_load, port, [_sql(keys[0])]).result()
            ways["SQL, by key"] = list(map(_sql, keys[: max(20, len(keys) // 100)]))
        for way, requests in ways.items():
            yield _by_parts(way, lambda some: clients.submit(_load, port, list(some)).result(), requests)
        for _ in range(2):
            done, cpu_seconds = clients.submit(_by_client, port, keys).result()
        p50, p99 = (float(np.quantile(done[2], share)) * 1000 for share in (0.5, 0.99))
        yield Reads("StoreClient.get", *done[:2], cpu_seconds, p50, p99)


class _Sent(NamedTuple):
    """A request, and what its answer must have: so many rows, and these parts."""

    request: bytes
    rows: int
    parts: tuple[bytes, ...]


def _expected(keys: Sequence[str], has: Callable[[int], bytes] = _value) -> tuple[bytes, ...]:
    return tuple(has(int(key)) for key in (keys[0], keys[-1]))


def _get(key: str) -> _Sent:
    request = f"GET /v1/stores/customers/keys/{key} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    return _Sent(request.encode(), 1, _expected([key]))


def _batch(keys: list[str], accept: str = "*/*") -> _Sent:
    return _Sent(_posted("stores/customers/keys:batch", {"keys": keys}, accept), len(keys), _expected(keys))


def _range(lower: str, accept: str = "*/*") -> _Sent:
    path = f"stores/customers/range?from={lower}&limit={_PAGE}"
    request = f"GET /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n"
    return _Sent(request.encode(), _PAGE, _expected([lower, _key(int(lower) + _PAGE - 1)]))


def _sql(key: str) -> _Sent:
    sql = f"SELECT value->>'name' FROM customers WHERE key = '{key}'"
    return _Sent(_posted("sql", {"sql": sql}, "*/*"), 1, (f'[["customer {int(key)}"]]'.encode(),))


def _posted(path: str, data: object, accept: str) -> bytes:
    body = orjson.dumps(data)
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _checked_rows(sent: _Sent, body: bytes) -> int:
    """The rows of an answer, which has what it must have."""
    missing = [part for part in sent.parts if part not in body]
    if missing:
        raise AssertionError(f"{body[:200]!r} lacks {missing[0]!r}")
    is_json = body.startswith(b"{")
    rows = (body.count(b'"key":') or body.count(b"[[")) if is_json else len(pa.ipc.open_stream(body).read_all())
    if rows != sent.rows:
        raise AssertionError(f"{rows} rows instead of {sent.rows}: {body[:200]!r}")
    return rows


def _by_client(port: int, keys: list[str]) -> tuple[_Done, float]:
    """Reads keys with `StoreClient`: what was done, and the CPU that this process needed, s."""
    store: StoreClient[str, dict[str, object]] = StoreClient(f"http://127.0.0.1:{port}", "customers", value=dict)
    times = []
    cpu = time.process_time()
    for key in keys:
        started = time.perf_counter()
        value = store.get(key)
        times.append(time.perf_counter() - started)
        assert value is not None
        assert value["id"] == int(key), value
    cpu = time.process_time() - cpu
    store.close()
    return (len(keys), sum(times), times), cpu


def _load(port: int, requests: list[_Sent]) -> _Done:
    """Sends requests over eight connections, each as soon as the one before is answered: rows, seconds, and time of each."""
    rows, times = 0, list[float]()

    async def one(mine: list[_Sent]) -> None:
        nonlocal rows
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in mine:
            started = time.perf_counter()
            writer.write(request.request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = re.search(rb"(?i)content-length: (\d+)", head)
            assert length is not None
            body = await reader.readexactly(int(length[1]))
            times.append(time.perf_counter() - started)
            rows += _checked_rows(request, body)
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one(requests[at::_CONNECTIONS]) for at in range(_CONNECTIONS)))

    started = time.perf_counter()
    asyncio.run(all_of_them())
    return rows, time.perf_counter() - started, times
