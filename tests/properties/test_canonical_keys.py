"""A key is its canonical bytes: whatever its producers write, and on any number of tasks, the results are those of one notation."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.columns import binary_column
from state.kafka.key_hash import partition_for_key
from streams import (
    BytesSerde,
    Consumed,
    Joined,
    JoinWindows,
    JsonSerde,
    Materialized,
    Processor,
    Produced,
    Record,
    Retry,
    Serde,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    UuidSerde,
)
from streams.engine.reader import source_reader, task_inputs
from streams.errors import RescaleError
from streams.operators.aggregate.column_rows import TEXT, FieldColumn
from streams.serdes.json_text import dumps
from streams.serdes.keys import JsonKeySerde
from streams.testing import TopologyTestDriver
from streams.topology.topology import Topology
from tests.budget import up_to

J = JsonSerde()
KEYS: list[Any] = [
    {"id": 1},
    {"id": "ü", "at": [1, {"y": 2, "x": 3}]},
    {"b": 1, "a": {"d": None, "c": True}},
    "é\n",
    [1, "a"],
    7,
    1.5,
    {"aa": 1, "a": 2},
]


@given(st.lists(st.dictionaries(st.sampled_from("abä"), st.sampled_from([*KEYS, None, "", -0.0, 1e16])), min_size=1))
def test_new_keys_that_are_objects_are_written_as_the_serde_writes_them(keys: list[Any]) -> None:
    nothing, failed = np.zeros(len(keys), np.int64), dict[int, Exception]()
    made = FieldColumn(
        np.full(len(keys), TEXT, np.uint8), nothing, nothing.astype(float), binary_column([*map(dumps, keys)])
    )
    with mock.patch.object(task_inputs, "FEW_ROWS", 0):
        for serde in (JsonKeySerde(), JsonSerde(dict[str, Any])):
            found = task_inputs.written_keys(made, nothing == 0, serde, "t", failed)
            assert found.cast("binary").to_pylist() == [serde.serialize("t", key) for key in keys]
    assert not failed


@dataclass(frozen=True)
class Place:
    country: str
    town: str = "all"


PLACES = [Place("de"), Place("de", "Ulm"), Place("fr", "all")]


def text(value: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> str:
    """A value as JSON, in any notation."""
    space = draw(st.sampled_from(["", " ", "\n"]))
    if isinstance(value, dict):
        parts = [
            f"{text(name, draw)}{space}:{text(part, draw)}" for name, part in draw(st.permutations([*value.items()]))
        ]
        return f"{space}{{{f'{space},'.join(parts)}}}"
    if isinstance(value, list):
        return f"[{space}{f',{space}'.join(text(part, draw) for part in value)}]"
    if isinstance(value, str):
        letters = [
            f"\\u{ord(one):04x}" if draw(st.booleans()) else json.dumps(one, ensure_ascii=False)[1:-1] for one in value
        ]
        return f'"{"".join(letters)}"'
    if isinstance(value, float):
        return draw(st.sampled_from([repr(value), f"{value}0", f"{value}e0", f"{value * 10}E-1"]))
    return json.dumps(value) + space


@st.composite
def notations(draw: Callable[[st.SearchStrategy[Any]], Any]) -> list[tuple[int, bytes]]:
    """The numbers of some keys, each with a notation."""
    chosen = draw(st.lists(st.integers(0, len(KEYS) - 1), min_size=1, max_size=12))
    return [(number, text(KEYS[number], draw).encode()) for number in chosen]


def play(
    topology: Topology, records: list[tuple[str, bytes | None, bytes]], tasks: int, **settings: Any
) -> dict[str, Any]:
    """All bytes of the output, per key, and the rows of all stores."""
    # In micro-batches any number of tasks has the same order: live, results of a key may have crossed different topics.
    with TopologyTestDriver(topology, "app", tasks=tasks, execution="micro-batch", **settings) as driver:
        half = len(records) // 2
        for first, part in ((0, records[:half]), (half, records[half:])):
            with driver.batch():
                for at, (topic, key, value) in enumerate(part, first):
                    driver.create_input_topic(topic, BytesSerde(), BytesSerde()).pipe_input(key, value, at)
        out: dict[Any, Any] = {}
        for record in driver.create_output_topic("out", BytesSerde(), BytesSerde()).read_records_to_list():
            out.setdefault(record.key, []).append(record.value)
        return out


def everything() -> Topology:
    """A count, one behind an operator, a join with a table, one by a foreign key, and one by a key that a function makes."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(J, J))
    users = builder.table("users", Consumed(J, J))
    tags = builder.global_table("tags", Consumed(J, J))
    refers = builder.table("refers", Consumed(StringSerde(), J))
    to = Produced(J, J)
    stream.group_by_key().count(Materialized("n")).to_stream().map_values(lambda n: ["n", n]).to("out", to)
    behind = stream.filter(lambda k, v: True)
    behind.left_join(users, lambda v, u: ["user", u], Joined(key_serde=J)).to("out", to)
    stream.left_join(tags, lambda k, v: k, lambda v, tag: ["tag", tag]).to("out", to)
    made = stream.select_key(lambda k, v: KEYS[v])
    made.left_join(users, lambda v, u: ["made", u], Joined(key_serde=J)).to("out", to)
    by_key = refers.join(users, lambda r, u: [r, u], foreign_key=lambda r: KEYS[r])
    by_key.to_stream().map_values(lambda v: ["refers", v]).to("out", Produced(StringSerde(), J))
    return builder.build()


EVERYTHING = everything()


@given(notations(), notations(), st.sampled_from([1, 2, 4]))
@up_to(15)
def test_random_notations_give_the_bytes_of_one_notation(
    sent: list[tuple[int, bytes]], users: list[tuple[int, bytes]], tasks: int
) -> None:
    def records(key: Callable[[int, bytes], bytes]) -> list[tuple[str, bytes | None, bytes]]:
        found: list[tuple[str, bytes | None, bytes]] = [("refers", b"r%d" % n, b"%d" % n) for n in range(len(KEYS))]
        for number, data in users:
            found += [("users", key(number, data), b'"u%d"' % number), ("tags", key(number, data), b'"t%d"' % number)]
        return found + [("in", key(number, data), b"%d" % number) for number, data in sent]

    plain = play(EVERYTHING, records(lambda number, _: json.dumps(KEYS[number], sort_keys=True).encode()), 1)
    assert play(EVERYTHING, records(lambda _, data: data), tasks) == plain


def serde_cases() -> Iterator[Any]:
    made = uuid.UUID("0a1b2c3d-0000-4000-8000-00000000abcd")
    of_made = [str(made), str(made).upper(), f"{{{made}}}", made.hex]
    yield pytest.param(UuidSerde(), [one.encode() for one in of_made], str(made).encode(), id="uuid")
    of_place = [b'{"country":"de"}', b'{"town":"all", "country":"de"}', b'{"country":"de","town":"all","more":1}']
    yield pytest.param(JsonSerde(Place), of_place, b'{"country":"de","town":"all"}', id="typed JSON")
    of_json = [b'{"a":1,"b":2}', b'{ "b":2, "a":1 }', b'{"\\u0061":1,"b":2}']
    yield pytest.param(J, of_json, of_json[0], id="JSON")
    yield pytest.param(J, [b'"\xc3\xbc"', b'"\\u00fc"', b' "\xc3\xbc"'], b'"\xc3\xbc"', id="text")
    yield pytest.param(Versions(), [b"1:k", b"2:k", b"7:k"], b"2:k", id="schema ids")


class Versions:
    """Writes the version of a schema in front of each key, as serdes with a registry do."""

    def serialize(self, topic: str, value: str | None, headers: Any = None) -> bytes | None:
        return None if value is None else b"2:" + value.encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Any = None) -> str | None:
        return None if data is None else data.partition(b":")[2].decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Versions)

    def __hash__(self) -> int:
        return 1


@pytest.mark.slow
@pytest.mark.parametrize(("serde", "written", "canonical"), list(serde_cases()))
@pytest.mark.parametrize(("rocksdb", "with_headers"), [(False, False), (False, True), (True, False)])
def test_every_serde_has_one_notation(
    serde: Serde[Any], written: list[bytes], canonical: bytes, rocksdb: bool, with_headers: bool
) -> None:
    headers = [("h", b"1")] if with_headers else []
    for tasks in (1, 4) if rocksdb else (1, 2, 4, 8):
        builder = StreamsBuilder()
        stream = builder.stream("in", Consumed(serde, J))
        stream.group_by_key().count(Materialized("n")).to_stream().to("out", Produced(serde, J))
        stream.map_values(lambda v: v).group_by_key().count(Materialized("m")).to_stream().to("out", Produced(serde, J))
        with TopologyTestDriver(builder.build(), tasks=tasks, rocksdb=rocksdb) as driver:
            topic = driver.create_input_topic("in", BytesSerde(), BytesSerde())
            for data in written:
                topic.pipe_input(data, b"1", 1, headers)
            out = driver.create_output_topic("out", BytesSerde(), BytesSerde()).read_key_values_to_list()
            found = driver.served().store("n").get([canonical]).rows
            key = serde.deserialize("", canonical)
            stored = [driver.get_key_value_store(name).get(key) for name in "nm"]
        assert sorted(out) == sorted((canonical, b"%d" % (n + 1)) for n in range(len(written)) for _ in range(2))
        assert [row.value for row in found] == [len(written)]
        assert stored == [len(written)] * 2


def counting() -> Topology:
    builder = StreamsBuilder()
    counted = builder.stream("in", Consumed(J, J)).group_by_key().count(Materialized("n"))
    counted.to_stream().to("out", Produced(J, J))
    return builder.build()


SPACED = [json.dumps({"id": n}).encode() for n in range(12)]
COMPACT = [json.dumps({"id": n}, separators=(",", ":")).encode() for n in range(12)]


def counts_after(driver: TopologyTestDriver, keys: list[bytes]) -> list[Any]:
    topic = driver.create_input_topic("in", BytesSerde(), BytesSerde())
    for key in keys:
        topic.pipe_input(key, b"1", 1)
    return driver.create_output_topic("out", J, J).read_values_to_list()


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (2, 1)])
def test_a_rescale_moves_counts_of_any_notation(before: int, after: int) -> None:
    with TopologyTestDriver(counting(), tasks=before) as driver:
        assert counts_after(driver, SPACED) == [1] * 12
        driver.rescale(after)
        assert counts_after(driver, COMPACT) == [2] * 12
        assert counts_after(driver, SPACED) == [3] * 12


@pytest.mark.parametrize(("before", "after"), [(2, 4), (4, 2)])
def test_a_rescale_moves_rows_that_older_versions_left_in_the_task_of_their_producers_bytes(
    before: int, after: int
) -> None:
    with TopologyTestDriver(counting(), tasks=before) as driver:
        with mock.patch.object(source_reader, "canonical_keys", lambda serde, columns: columns.keys):
            assert counts_after(driver, SPACED) == [1] * 12
        driver.rescale(after)
        assert counts_after(driver, SPACED) == [2] * 12
        driver.rescale(before)
        assert counts_after(driver, COMPACT) == [3] * 12


@pytest.mark.parametrize("first", [SPACED, COMPACT])
def test_a_rescale_refuses_a_key_that_older_versions_counted_twice(first: list[bytes]) -> None:
    second = COMPACT if first is SPACED else SPACED
    with TopologyTestDriver(counting(), tasks=4) as driver:
        with mock.patch.object(source_reader, "canonical_keys", lambda serde, columns: columns.keys):
            counts_after(driver, first)
            counts_after(driver, second)
        with pytest.raises(RescaleError, match=r"has rows of the key b'\{\"id\":\d+\}' in the tasks \d and \d"):
            driver.rescale(2)


def test_streams_of_two_producers_are_joined() -> None:
    for tasks in (1, 2, 4):
        builder = StreamsBuilder()
        left, right = builder.stream("left", Consumed(J, J)), builder.stream("right", Consumed(J, J))
        within = JoinWindows.of_time_difference_with_no_grace(100)
        joined = left.join(right.filter(lambda k, v: True), lambda a, b: [a, b], within, StreamJoined(key_serde=J))
        joined.to("out", Produced(J, J))
        sent = [pair for n in range(12) for pair in (("left", SPACED[n], b"1"), ("right", COMPACT[n], b"2"))]
        assert len(play(builder.build(), sent, tasks)) == 12


def test_a_merge_of_topics_with_other_notations_counts_each_key_once() -> None:
    builder = StreamsBuilder()
    merged = builder.stream("a", Consumed(J, J)).merge(builder.stream("b", Consumed(J, J)))
    merged.group_by_key().count().to_stream().to("out", Produced(J, J))
    sent = [pair for n in range(12) for pair in (("a", SPACED[n], b"1"), ("b", COMPACT[n], b"1"))]
    assert {key: values[-1] for key, values in play(builder.build(), sent, 4).items()} == dict.fromkeys(COMPACT, b"2")


class Total(Processor):
    """Counts the records of a key; fails on the third one of each key once."""

    failed: set[int]

    def process(self, record: Any) -> None:
        if record.value == 2 and record.key["id"] not in self.failed:
            self.failed.add(record.key["id"])
            raise ConnectionError("away")
        store = self.ctx.get_state_store("totals")
        total = (store.get(record.key) or 0) + 1
        store.put(record.key, total)
        self.ctx.forward(Record(record.key, total, record.timestamp))


@pytest.mark.parametrize("keep_order", [False, True])
def test_a_record_that_is_retried_finds_the_state_of_its_key(keep_order: bool) -> None:
    failed = set[int]()

    class Failing(Total):
        pass

    Failing.failed = failed
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store("totals", J, J))
    stream = builder.stream("in", Consumed(J, J))
    retry = Retry([1_000], "dead", keep_order=keep_order)
    stream.process(Failing, "totals", named="total", on_error=retry).to("out", Produced(J, J))
    with TopologyTestDriver(builder.build(), "app", partitions={"in": 8, "out": 1, "dead": 1}) as driver:
        topic = driver.create_input_topic("in", BytesSerde(), BytesSerde())
        for n in range(4):
            for data in SPACED:
                topic.pipe_input(data, b"%d" % n, n)
        for _ in range(4):
            driver.advance_wall_clock_time(2_000)
        totals = driver.create_output_topic("out", J, J).read_key_values_to_list()
    assert failed
    assert {key["id"]: n for key, n in totals} == dict.fromkeys(range(12), 4)


def moved() -> int:
    """The number of a key whose two notations belong to the tasks 0 and 1 of two."""
    found = (n for n in range(12) if (partition_for_key(SPACED[n], 2), partition_for_key(COMPACT[n], 2)) == (0, 1))
    return next(found)


@pytest.mark.parametrize("other_serde", [False, True])
def test_a_record_is_a_dead_letter_or_a_result_and_never_both(other_serde: bool) -> None:
    bad, calls = moved(), list[int]()

    def priced(value: int) -> int:
        calls.append(value)
        if value == bad and calls.count(bad) == 1:
            raise ConnectionError("away")
        return value

    builder = StreamsBuilder()
    counted = (
        builder.stream("in", Consumed(J, J)).map_values(priced).group_by_key().count(Materialized("n", caching=False))
    )
    counted.to_stream().to("out", Produced(J, J))
    dlq: Any = {"processing": "dlq", "dead_letter_topic": "dead"}
    with TopologyTestDriver(builder.build(), "app", partitions={"in": 1}, tasks=2, **dlq) as driver:
        topic = driver.create_input_topic("in", BytesSerde(), BytesSerde())
        driver.crash_at("before_commit", task=0 if other_serde else 1)
        with driver.batch():
            for n in range(12):
                topic.pipe_input(SPACED[n], b"%d" % n, 1)
        counts = driver.create_output_topic("out", J, J).read_key_values_to_list()
        letters = driver.create_output_topic("dead", BytesSerde(), BytesSerde()).read_key_values_to_list()
    assert driver.crashes == 1
    # A letter has the bytes that are in the topic.
    assert [key["id"] for key, _ in counts].count(bad) + letters.count((SPACED[bad], b"%d" % bad)) == 1
    assert len(counts) + len(letters) == 12


def test_errors_and_dead_letters_name_the_bytes_of_the_topic() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(J, J))
    stream.group_by_key().count().to_stream().to("out", Produced(J, J))
    stream.group_by_key().sum("n").to_stream().to("sums", Produced(J, J))
    dlq: Any = {"processing": "dlq", "deserialization": "dlq", "dead_letter_topic": "dead"}
    with TopologyTestDriver(builder.build(), "app", tasks=4, **dlq) as driver:
        topic = driver.create_input_topic("in", BytesSerde(), BytesSerde())
        topic.pipe_input(b'{"id": 1}', b"{", 1)
        topic.pipe_input(b'{"id":', b"1", 1)
        topic.pipe_input(b'{"id": 1}', b'{"n":1}', 1)
        letters = driver.create_output_topic("dead", BytesSerde(), BytesSerde()).read_key_values_to_list()
    assert sorted(set(letters)) == [(b'{"id":', b"1"), (b'{"id": 1}', b"{")]


def test_keys_that_only_python_calls_equal_are_other_keys() -> None:
    """1, 1.0 and true; 0.0 and -0.0: a key is its bytes, in every operator."""
    sent = [b"1", b"1.0", b"true", b"0.0", b"-0.0", b"0", b"-0"]
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(J, J))
    stream.group_by_key().count().to_stream().to("out", Produced(J, J))
    stream.deduplicate(1_000).to("out", Produced(J, J))
    by_value = builder.table("rows", Consumed(StringSerde(), J)).group_by(lambda k, v: (v, v), key_serde=J)
    by_value.count().to_stream().to("groups", Produced(J, J))
    refers = builder.table("rows-2", Consumed(StringSerde(), J))
    names = builder.table("names", Consumed(J, J))
    refers.join(names, lambda r, name: name, foreign_key=lambda r: r).to_stream().to(
        "named", Produced(StringSerde(), J)
    )
    for tasks in (1, 4):
        with TopologyTestDriver(builder.build(), tasks=tasks) as driver:
            for data in sent:
                driver.create_input_topic("in", BytesSerde(), BytesSerde()).pipe_input(data, b"9", 1)
                driver.create_input_topic("names", BytesSerde(), BytesSerde()).pipe_input(data, b'"%s"' % data, 1)
            for topic in ("rows", "rows-2"):
                for data in sent[:5]:
                    driver.create_input_topic(topic, BytesSerde(), BytesSerde()).pipe_input(b"r", data, 1)
            out = driver.create_output_topic("out", BytesSerde(), BytesSerde()).read_key_values_to_list()
            groups = driver.create_output_topic("groups", BytesSerde(), BytesSerde()).read_key_values_to_list()
            named = driver.create_output_topic("named", BytesSerde(), BytesSerde()).read_key_values_to_list()
        firsts = [b"1", b"1.0", b"true", b"0.0", b"-0.0", b"0"]
        assert sorted(out) == sorted([*((key, b"1") for key in firsts), (b"0", b"2"), *((key, b"9") for key in firsts)])
        # A row is in one group at a time: it leaves the one before.
        assert dict(groups) == {**dict.fromkeys(firsts[:4], b"0"), b"-0.0": b"1"}
        assert [value for _, value in named] == [b'"1"', b'"1.0"', b'"true"', b'"0.0"', b'"-0.0"']
