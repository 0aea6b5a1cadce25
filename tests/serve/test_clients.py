"""Clients against a model, with typed, binary and odd rows: resets, compaction, lagging copies, and clients that were away.

A client that reads by key never goes back to a row that is older than one it has seen. A client that keeps a table by the feed of
changes has exactly the rows of the store after it has caught up, whatever happened while it was away; if it cannot, it is told.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from streams import BytesSerde, Consumed, Float64Serde, JsonSerde, Materialized, Serde, StreamsBuilder, StringSerde
from streams.serdes.json_text import loads
from streams.serve.app import Api
from streams.serve.client import StoreClient
from streams.serve.copies import life_of
from streams.serve.feed import ChangeFeed
from streams.serve.http.security import Guard, Security
from streams.testing import TopologyTestDriver


@dataclass(frozen=True)
class Id:
    shop: str
    number: int


@dataclass(frozen=True)
class Account:
    turn: int
    name: str = 'ü"\n'


class Kind:
    """A store, with keys that are easily taken for others, and its values, each of one turn."""

    def __init__(
        self, key: Serde[Any], key_type: Any, keys: list[Any], value: Serde[Any], value_type: Any, made: Any
    ) -> None:
        self.serdes, self.types, self.keys, self.made = (key, value), (key_type, value_type), keys, made


KINDS = {
    "texts": Kind(
        StringSerde(), str, ["bob", '"bob"', ".", "..", "a/b", "a\nb", "", "null", "%41"], StringSerde(), str, "v{}".format
    ),
    "binary": Kind(
        BytesSerde(),
        bytes,
        [b"\xff\x00", b"ff00", b"", b"\xfb\xef", b"bob"],
        BytesSerde(),
        bytes,
        lambda turn: b"\xff%d" % turn,
    ),
    "numbers": Kind(
        Float64Serde(), float, [0.0, -7.5, 7.0, 1e300, math.inf, -math.inf], JsonSerde(), Any, lambda turn: {"n": 2**70 + turn}
    ),
    "typed": Kind(
        JsonSerde(Id), Id, [Id("a", 7), Id("..", 2**70), Id('"', -1)], JsonSerde(Account), Account, Account
    ),
}  # fmt: skip
PARTITIONS = 2


def build() -> Any:
    builder = StreamsBuilder()
    for name, kind in KINDS.items():
        # By way of a stream, so that the store has a changelog of its own.
        builder.stream(f"{name}-in", Consumed(*kind.serdes)).to_table(Materialized(name))
    return builder.build()


class World:
    """An application that is reset, two processes that serve it, and the time."""

    def __init__(self) -> None:
        self.now_ms = 10**12
        self.runs = 0
        self._stack = ExitStack()
        self.start()

    def start(self) -> None:
        """Starts the application, after a reset without any rows, and with topics that were made again."""
        self.close()
        self.runs += 1
        partitions = {f"{name}-in": PARTITIONS for name in KINDS}
        self.driver = self._stack.enter_context(TopologyTestDriver(build(), partitions=partitions))
        self.topics = {name: self.driver.create_input_topic(f"{name}-in") for name in KINDS}
        self.servers = [Server(self), Server(self)]
        self.histories = {name: {key: [None] for key in kind.keys} for name, kind in KINDS.items()}

    def write(self, name: str, place: int, turn: int | None) -> None:
        kind = KINDS[name]
        key = kind.keys[place % len(kind.keys)]
        value = None if turn is None else kind.made(turn)
        self.topics[name].pipe_input(key, value, 1000)
        self.histories[name][key].append(value)

    def compact(self) -> None:
        """Brokers remove what is old, and the deletions that are older than they are kept."""
        for server in self.servers:
            # Copies know by the wall clock that they were away for so long, which does not pass here.
            server.forward()
        for name in KINDS:
            for partition in range(PARTITIONS):
                log = self.driver._kafka.log(f"test-{name}-changelog", partition)
                # Never the segment that is still written, which here has the last record.
                last = max((entry.offset for entry in log.entries if entry.readable), default=0)
                active = [entry for entry in log.entries if entry.offset >= last]
                log.compact(tombstones=True)
                log.entries = [entry for entry in log.entries if entry.offset < last] + active

    def pass_days(self) -> None:
        self.now_ms += 2 * self.driver._kafka.delete_retention_ms("any")

    def close(self) -> None:
        self._stack.close()


class Server:
    """A process with copies of its own, which are only brought forward on request."""

    def __init__(self, world: World) -> None:
        served = world.driver.served()
        self.forward = served.copies
        copies = dict(self.forward())
        served.copies = lambda: copies
        self.application = Api(served, Guard(Security()), source=lambda: nullcontext(world.driver._kafka)).application()

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Lets it look for commits while a client waits, who has seen more than it has, or rows of before a reset."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.05):
                self.forward()

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Reader:
    """A client of one store, which keeps what it has seen of each key, and a table by the feed of changes."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name, self._kind = world, name, KINDS[name]
        self.server = 0
        self._http = TestClient(self._asgi, client=("127.0.0.1", 1), base_url="http://localhost")
        key, value = self._kind.types
        self._store = StoreClient("", name, key=key, value=value, http=self._http, wait="20s")
        self._seen: dict[Any, tuple[int, int]] = {}
        self._table: dict[Any, Any] = {}
        self._last = ""

    async def _asgi(self, scope: Any, receive: Any, send: Any) -> None:
        await self._world.servers[self.server].application(scope, receive, send)

    def read(self, place: int, how: str) -> None:
        key = self._kind.keys[place % len(self._kind.keys)]
        with self._world.servers[self.server].looking():
            found = self._read(key, how)
        history = self._world.histories[self._name][key]
        run, at_least = self._seen.get(key, (0, 0))
        at_least = at_least if run == self._world.runs else 0
        assert found in history[at_least:], (key, found, history, at_least)
        self._seen[key] = self._world.runs, history.index(found, at_least)

    def _read(self, key: Any, how: str) -> Any:
        if how == "get":
            return self._store.get(key)
        if how == "batch":
            return self._store.get_all([key, *self._kind.keys]).get(key)
        return {row.key: row.value for row in self._store.range()}.get(key)

    def catch_up(self) -> None:
        """Takes the changes since the last time; or begins anew, if it is told that some of them are gone."""
        self._world.servers[self.server].forward()
        if not self._last or not self._take({}):
            self._table, self._last = {}, ""
            assert self._take({"initial": "true"})
        wanted = {key: values[-1] for key, values in self._world.histories[self._name].items()}
        assert self._table == {key: value for key, value in wanted.items() if value is not None}

    def _take(self, asked: dict[str, str]) -> bool:
        headers = {"Last-Event-ID": self._last} if self._last else {}
        answer = self._http.get(
            f"/v1/stores/{self._name}/changes", params={"follow": "false", **asked}, headers=headers
        )
        if answer.status_code == 410:
            return False
        assert answer.status_code == 200, answer.text
        for block in answer.text.strip().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            assert fields["event"] != "error", fields
            self._last = fields.get("id", self._last)
            for row in loads(fields["data"]).get("rows", ()):
                key, value = self._store._key(row["key"]), row["value"]
                if value is None:
                    self._table.pop(key, None)
                else:
                    self._table[key] = self._store._value(value)
        return True


@contextmanager
def a_world() -> Iterator[World]:
    world = World()
    feed = partial(ChangeFeed, clock_ms=lambda: world.now_ms)

    def of_run(name: str) -> str:
        # In a cluster, topics and queries that begin anew have other ids.
        return life_of(f"{name} of run {world.runs}")

    with patch("streams.serve.app.ChangeFeed", feed), patch("streams.serve.copies.life_of", of_run):
        try:
            yield world
        finally:
            world.close()


NAMES = st.sampled_from(sorted(KINDS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.integers(0, 8)),
        st.tuples(st.just("write"), NAMES, st.integers(0, 8)),
        st.tuples(st.just("delete"), NAMES, st.integers(0, 8)),
        st.tuples(st.sampled_from(["get", "batch", "range"]), NAMES, st.integers(0, 8)),
        st.tuples(st.sampled_from(["get", "batch", "range"]), NAMES, st.integers(0, 8)),
        st.tuples(st.just("catch up"), NAMES, st.integers(0, 1)),
        st.tuples(st.just("follow"), NAMES, st.integers(0, 1)),
        st.tuples(st.sampled_from(["compact", "days", "reset"]), NAMES, st.just(0)),
    ),
    min_size=8,
    max_size=30,
)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(STEPS)
def test_clients_have_the_rows_of_the_model(steps: list[tuple[str, str, int]]) -> None:
    with a_world() as world:
        readers = {name: Reader(world, name) for name in KINDS}
        for turn, (what, name, number) in enumerate(steps, 1):
            reader = readers[name]
            if what in ("write", "delete"):
                world.write(name, number, turn if what == "write" else None)
            elif what == "catch up":
                reader.server = number
                reader.catch_up()
            elif what == "follow":
                world.servers[number].forward()
            elif what == "compact":
                # Deletions are removed only after they were kept for so long.
                world.pass_days()
                world.compact()
            elif what == "days":
                world.pass_days()
            elif what == "reset":
                world.start()
            else:
                reader.server = turn % 2
                reader.read(number, what)
        for reader in readers.values():
            reader.catch_up()


def test_a_client_that_was_away_over_everything_has_the_rows() -> None:
    """The shortest history with all of it, so that each run has them together."""
    with a_world() as world:
        readers = [Reader(world, name) for name in KINDS]
        for name in KINDS:
            for place in range(9):
                world.write(name, place, place + 1)
        for reader in readers:
            reader.catch_up()
        for name in KINDS:
            world.write(name, 0, None)
            world.write(name, 1, 77)
        world.pass_days()
        world.compact()
        for reader in readers:
            reader.catch_up()
            for place in range(9):
                for how in ("get", "batch", "range"):
                    reader.read(place, how)
        world.start()
        for reader in readers:
            world.write(reader._name, 2, 99)
            reader.catch_up()
            reader.read(2, "get")
