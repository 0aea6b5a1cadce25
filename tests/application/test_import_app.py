"""`streams import-app` and `export-app` over the simulated Kafka: what is refused, what markers say, and a kill at each request."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from state.errors import CheckpointMismatchError, ForeignRowError, StreamsError
from state.headers import encode_headers
from state.kafka.key_hash import partition_for_key
from state.stores.buffer_values import buffered_value
from streams import (
    EmitStrategy,
    Int64Serde,
    Joined,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
)
from streams.application.adopt import Adopter
from streams.application.java import limits
from streams.application.java.derived import closes_of
from streams.application.java.export_app import Exporter
from streams.application.java.import_app import Importer
from streams.application.java.limits import OffsetNote
from streams.application.markers import MarkerAccess
from streams.application.prepare import plan_application
from streams.application.start import Preflight
from streams.checkpoint.compare import NEVER
from streams.checkpoint.files import LocalFiles, read_checkpoint
from streams.config import StreamsConfig
from streams.errors import AlreadyRunningError, ConfigError
from streams.operators.stream_time import STREAM_TIME
from streams.testing.simulation.kafka import Crash, Fate, NothingHappens, SimulatedKafka

APP, TASKS = "java", 2
KEYS = [b"ann", b"bob", b"cid", b"dan", b"eve"]
CHANGELOG = f"{APP}-counts-changelog"
# What Kafka Streams 4.3.1 wrote (`TopicPartitionMetadata.encode`).
WITH_CLOSES = "AgAAAAAAAOpgAAAAAgAAAAFiAAAAAAAAAAcAAAAJZW93LWNvdW50AAAAAAAB4kA="
WITHOUT = "AgAAAAAAAOpg"


def counts(builder: StreamsBuilder) -> None:
    builder.stream("in").group_by_key().count(materialized=Materialized("counts")).to_stream().to("out")


def sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(30_000, 10_000)
    builder.stream("in").group_by_key().windowed_by(windows).count(materialized=Materialized("counts"))


class World:
    """A Kafka Streams application that was stopped, and the engine beside it."""

    def __init__(self, tmp_path: Path, program: Callable[[StreamsBuilder], object] = counts, **settings: Any) -> None:
        self.kafka: Any = SimulatedKafka({"in": TASKS, "out": TASKS, CHANGELOG: TASKS})
        self.members: list[str] = []
        self.said: list[str] = []
        builder = StreamsBuilder()
        program(builder)
        self.topology = builder.build()
        self.config = StreamsConfig(
            application_id=APP, bootstrap_servers="nowhere:1", base_dir=tmp_path, replication_factor=1, **settings
        )
        self.files = LocalFiles(self.config.checkpoint_dir)
        self.kafka.settings[CHANGELOG] = {"cleanup.policy": "compact", "retention.ms": "86450000"}
        for task in range(TASKS):
            self.kafka.append("in", b"k", b"v", 1000, partition=task)
            self.offset("in", task, 1, OffsetNote(60_000 + task).encode())

    def offset(self, topic: str, partition: int, at: int, note: str = "") -> None:
        self.kafka.groups.setdefault(APP, {})[topic, partition] = at
        self.kafka.notes.setdefault(APP, {})[topic, partition] = note

    def java_writes(
        self, topic: str = CHANGELOG, partitions: dict[bytes, int] | None = None, suffix: bytes = b""
    ) -> None:
        """One transaction for each partition."""
        for task in range(TASKS):
            producer = self.kafka.producer(f"java-{task}")
            producer.init_transactions()
            producer.begin()
            for number, key in enumerate(KEYS):
                if (partitions or {}).get(key, partition_for_key(key, TASKS)) == task:
                    producer.send(topic, task, key + suffix, Int64Serde().serialize(topic, 7), 5_000 + number)
            producer.flush()
            producer.commit()

    @property
    def preflight(self) -> Preflight:
        application = plan_application(self.topology, self.config, self.kafka, self.kafka)
        return Preflight(
            application,
            self.files,
            self.kafka,
            self.said.append,
            self.kafka,
            lambda *_: self.kafka.deliver(),
            self.kafka.sample,
        )

    def importer(self, **more: Any) -> Importer:
        return Importer(self.preflight, self.kafka, members=lambda _: self.members, **more)

    def take_over(self, **more: Any) -> None:
        importer = self.importer(**more)
        importer.run(importer.survey())

    def hand_over(self, leave: bool = False) -> None:
        exporter = Exporter(self.preflight, self.kafka, leave, members=lambda _: self.members)
        exporter.run(exporter.survey())

    @property
    def markers(self) -> Any:
        preflight = self.preflight
        access: MarkerAccess = preflight.markers(preflight.application.subs[0])
        return access.read()

    @property
    def contents(self) -> Any:
        logs = {
            (name, n): self.kafka.end_offsets([(name, n)], committed=False)
            for name in self.kafka.topics
            for n in range(self.kafka.partition_count(name))
        }
        return logs, dict(self.kafka.settings)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.java_writes()
    return made


@pytest.mark.parametrize("behind", ["", "\x8c\x00 foreign", "=="])
def test_offset_metadata_is_read_as_java_wrote_it(behind: str) -> None:
    assert OffsetNote.decode(WITHOUT + behind) == OffsetNote(60_000)
    assert OffsetNote.decode(WITH_CLOSES + behind) == OffsetNote(60_000, {"eow-count": 123_456, "b": 7})


def test_offset_metadata_is_written_as_java_writes_it() -> None:
    assert OffsetNote(60_000).encode() == WITHOUT
    assert OffsetNote(60_000, {"eow-count": 123_456, "b": 7}).encode() == WITH_CLOSES
    assert [OffsetNote.decode(text) for text in ("", "another program's", "AwAAAAAAAOpg")] == [None] * 3


def test_markers_say_what_java_had(world: World) -> None:
    world.take_over()
    for task, marker in world.markers.items():
        assert marker.changelog_ends == {"counts": world.kafka.end_offsets([(CHANGELOG, task)])[CHANGELOG, task]}
        assert (marker.batch_id, marker.stream_time) == (NEVER, 60_000 + task)
        mine = [5_000 + number for number, key in enumerate(KEYS) if partition_for_key(key, TASKS) == task]
        (of_count,) = marker.operator_state["nodes"].values()
        assert of_count == {STREAM_TIME: max(mine)}
    assert world.kafka.topic_config(CHANGELOG)["retention.ms"] == "-1"
    checkpoint = read_checkpoint(world.files, "in", {NEVER})
    assert checkpoint.first is not None
    assert checkpoint.first.start.by_partition() == {("in", 0): 1, ("in", 1): 1}
    assert checkpoint.first.end == checkpoint.first.start, "no micro-batch is repeated"
    world.preflight.run()


def test_open_sessions_are_known(tmp_path: Path) -> None:
    world = World(tmp_path, sessions)
    session = (120_000).to_bytes(8, "big") + (90_000).to_bytes(8, "big")
    world.java_writes(suffix=session)
    world.take_over()
    for marker in world.markers.values():
        (state,) = marker.operator_state["nodes"].values()
        assert list(state["oldest_start"].values()) == [90_000]


def closing(builder: StreamsBuilder) -> None:
    windows = TimeWindows.of_size_and_grace(60_000, 10_000)
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.emit_strategy(EmitStrategy.on_window_close()).count(materialized=Materialized("counts")).to_stream(
        lambda window, _: window.key
    ).to("out")


def closing_sessions(builder: StreamsBuilder) -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(30_000, 10_000)
    grouped = builder.stream("in").group_by_key().windowed_by(windows)
    grouped.emit_strategy(EmitStrategy.on_window_close()).count(materialized=Materialized("counts"))


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def last_rows(world: World, store: str) -> dict[bytes, bytes]:
    """The live rows of a changelog."""
    found: dict[bytes, bytes | None] = {}
    for task in range(TASKS):
        columns = world.kafka.columns(f"{APP}-{store}-changelog", task)
        found |= {} if columns is None else dict(columns.cells())
    return {key: value for key, value in found.items() if value is not None}


def test_windows_that_java_has_not_closed_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, closing)
    for start in (0, 60_000, 120_000):
        world.java_writes(suffix=number(start) + bytes(4))
    for task in range(TASKS):  # closed up to the end of the second window, in the note of either partition
        world.offset("in", task, 1, OffsetNote(131_000, {"counts": 120_000}).encode())
    world.take_over()
    assert last_rows(world, "counts-open") == {number(180_000) + number(120_000) + key: b"1" for key in KEYS}
    for task, marker in world.markers.items():
        assert (
            marker.changelog_ends["counts-open"]
            == world.kafka.end_offsets([(f"{APP}-counts-open-changelog", task)])[f"{APP}-counts-open-changelog", task]
        )
    monkeypatch.setattr(limits, "bulk_available", lambda: False)
    with pytest.raises(ConfigError, match="closed windows again"):
        world.hand_over()
    monkeypatch.undo()
    world.hand_over()
    # Stream time is that of the last row, and no window was closed since.
    note = OffsetNote.decode(world.kafka.notes[APP]["in", 1])
    assert note is not None
    assert note.closes == {}, "5 s is before the end of the first window and its grace"
    for task in range(TASKS):
        world.offset("in", task, 1, OffsetNote(999_000, {"counts": 180_000}).encode())
    world.take_over()
    assert last_rows(world, "counts-open") == {}, "what was left there by the first import goes"


def test_the_time_of_the_last_close_is_handed_over(tmp_path: Path) -> None:
    world = World(tmp_path, closing)
    world.java_writes(suffix=number(60_000) + bytes(4))
    (sub,) = world.preflight.application.plan.sub_topologies
    (node,) = (one.name for one in sub.processors if one.stores)
    state = {node: {STREAM_TIME: 200_000}}
    assert closes_of(sub, state, {}) == {"counts": 190_000}
    assert closes_of(sub, state, {"counts-open": 180_000}) == {"counts": 179_999}, "a window that was not emitted yet"
    assert closes_of(sub, {}, {}) == {}


def test_sessions_that_java_has_not_closed_are_open(tmp_path: Path) -> None:
    world = World(tmp_path, closing_sessions)
    for start, end in ((0, 20_000), (60_000, 80_000), (60_000, 80_001)):
        world.java_writes(suffix=number(end) + number(start))
    for task in range(TASKS):
        world.offset("in", task, 1, OffsetNote(1, {"counts": 80_001}).encode())
    world.take_over()
    assert last_rows(world, "counts-open") == {number(80_001) + number(60_000) + key: b"1" for key in KEYS}


def limited(builder: StreamsBuilder) -> None:
    counts = builder.stream("in").group_by_key().count(materialized=Materialized("counts"))
    counts.suppress(Suppressed.until_time_limit(60_000), named="held")


def test_places_of_suppressed_updates_are_derived(tmp_path: Path) -> None:
    world, topic = World(tmp_path, limited), f"{APP}-held-store-changelog"
    world.java_writes()
    world.kafka.create_topic(topic, TASKS)
    value = bytes(16) + bytes(4) + bytes(4) + bytes(4) + b"\xff\xff\xff\xff" * 2 + number(1)[4:] + b"7" + number(77)
    for key in KEYS[:2]:
        task = partition_for_key(key, TASKS)
        producer = world.kafka.producer("java")
        producer.init_transactions()
        producer.begin()
        headers = pa.array([encode_headers([("v", b"\3")])], pa.binary())
        keys, values = pa.array([key], pa.binary()), pa.array([value], pa.binary())
        producer.send_columns(topic, task, keys, values, np.array([9_999_999]), headers)
        producer.commit()
    world.take_over()
    assert last_rows(world, "held-places") == {key: b"\x80" + number(77)[1:] for key in KEYS[:2]}
    # Java's own record has the time of its clock, which is none of stream time.
    times = [
        state[STREAM_TIME] for marker in world.markers.values() for state in marker.operator_state["nodes"].values()
    ]
    assert max(times) < 9_999_999


def left_joined(builder: StreamsBuilder) -> None:
    windows = JoinWindows.of_time_difference_with_no_grace(1_000)
    builder.stream("in").left_join(
        builder.stream("more"), lambda left, right: [left, right], windows, StreamJoined(name="j", store_name="j")
    ).to("out")


def unmatched_world(tmp_path: Path, side: int = 1) -> World:
    """With a record for each key that waits since 5 s."""
    world = World(tmp_path, left_joined)
    for name in (
        "more",
        *(f"{APP}-j-{store}-join-store-changelog" for store in ("this", "outer-other", "left-shared")),
    ):
        world.kafka.create_topic(name, TASKS)
    for task in range(TASKS):
        world.offset("more", task, 0)
        producer = world.kafka.producer(f"java-{task}")
        producer.init_transactions()
        producer.begin()
        for key in KEYS:
            if partition_for_key(key, TASKS) == task:
                row = b"\1\0\0\0\1\0\0\0\4" + bytes([side]) + b'"w"'
                producer.send(
                    f"{APP}-j-left-shared-join-store-changelog", task, number(5_000) + b"\1" + key, row, 5_000
                )
        producer.commit()
    return world


def test_unmatched_records_are_known(tmp_path: Path) -> None:
    world = unmatched_world(tmp_path)
    world.take_over()
    for marker in world.markers.values():
        (state,) = marker.operator_state["shared"].values()
        assert (state["earliest"], state[STREAM_TIME]) == (5_000, 5_000)
    world.hand_over()


def joined_later(builder: StreamsBuilder) -> None:
    table = builder.table("more", materialized=Materialized("rows", history_retention=60_000))
    builder.stream("in").join(table, lambda value, row: [value, row], Joined(name="j", grace=1_000)).to("out")


def test_records_that_wait_for_a_table_are_known(tmp_path: Path) -> None:
    """The table may be ahead of the stream."""
    world = World(tmp_path, joined_later)
    buffer, rows = (f"{APP}-{store}-changelog" for store in ("j-Buffer", "rows"))
    for name in ("more", buffer, rows):
        world.kafka.create_topic(name, TASKS)
    world.java_writes(rows)
    for task in range(TASKS):
        world.offset("more", task, 0)
        producer = world.kafka.producer(f"java-{task}")
        producer.init_transactions()
        producer.begin()
        for at, place in ((3_000, 8), (2_000, 9)):
            key = next(key for key in KEYS if partition_for_key(key, TASKS) == task)
            row = b"\0" + number(at) + key + place.to_bytes(4, "big")
            producer.send(buffer, task, row, buffered_value(at, b"", b'"w"'), 70_000)
        producer.commit()
    world.take_over()
    for marker in world.markers.values():
        assert marker.operator_state["nodes"]["j"] == {STREAM_TIME: 3_000, "earliest": 2_000, "number": 9}
    with pytest.raises(ConfigError, match="'j': Kafka Streams does not restore the records that wait there"):
        world.hand_over()
    world.hand_over(leave=True)


HEADER_ROWS = [
    one
    for line in (Path(__file__).parents[1] / "golden" / "kafka-streams-headers.jsonl").read_text().splitlines()
    if "topic" in (one := json.loads(line)) and one["topic"].endswith("-changelog")
]
"""What Kafka Streams 4.3.1 wrote with dsl.store.format=HEADERS: its own stores, and a processor's with and without headers."""
STORES = {
    "own": "timestamped_key_value_store",
    "own-windows": "timestamped_window_store",
    "own-sessions": "session_store",
    "times": "timestamped_key_value_store",
    "time-windows": "timestamped_window_store",
}


def test_kafka_streams_keeps_headers_in_stores_of_processors_only() -> None:
    live = {one["topic"] for one in HEADER_ROWS if one["v"] is not None and one["h"]}
    kept = {f"x-{store}-changelog" for store in ("own", "own-windows", "own-sessions")}
    # The store of a join has the headers of the record that wrote a row, in either format, and no store there reads them.
    assert live == {*kept, "x-ij-this-join-store-changelog"}
    assert {"x-table-changelog", "x-made-changelog", "x-windows-changelog"} <= {one["topic"] for one in HEADER_ROWS}


@pytest.mark.parametrize("with_headers", [False, True])
@pytest.mark.parametrize("name", STORES)
def test_a_store_with_headers_is_taken_over_by_one_only(tmp_path: Path, name: str, with_headers: bool) -> None:
    make = STORES[name] + ("_with_headers" if with_headers else "")

    def storing(builder: StreamsBuilder) -> None:
        more = {"retention": 60_000} if name.endswith(("windows", "sessions")) else {}
        builder.add_state_store(getattr(Stores, make)(name, StringSerde(), StringSerde(), **more))
        builder.stream("in").process(Idle, stores=[name])

    world = World(tmp_path, storing)
    topic = f"{APP}-{name}-changelog"
    world.kafka.create_topic(topic, TASKS)
    for task in range(TASKS):
        producer = world.kafka.producer(f"java-{task}")
        producer.init_transactions()
        producer.begin()
        for one in HEADER_ROWS:
            key = bytes.fromhex(one["k"])
            if one["topic"] == f"x-{name}-changelog" and partition_for_key(key[:1], TASKS) == task:
                headers = [(header, value and bytes.fromhex(value)) for header, value in one["h"]]
                producer.send(topic, task, key, bytes.fromhex(one["v"]), one["t"], headers)
        producer.commit()
    if name.startswith("own") and not with_headers:
        refused(world, rf"store '{name}': the row at offset 0 of .* has headers.*Stores\.{make}_with_headers")
    else:
        world.take_over()
        world.hand_over()


class Idle(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


def test_rows_of_another_format_are_refused(tmp_path: Path) -> None:
    refused(unmatched_world(tmp_path, side=0), "not a list of values of the side", ForeignRowError)


def test_keys_that_are_too_short_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, closing)
    world.java_writes()
    refused(world, "its key has less than 12 bytes", ForeignRowError)


def refused(world: World, said: str, error: type[StreamsError] = ConfigError, **more: Any) -> None:
    """Refused, with nothing written."""
    before = world.contents
    with pytest.raises(error, match=said):
        world.take_over(**more)
    assert world.contents == before


def test_a_group_with_members_is_refused(world: World) -> None:
    world.members = ["consumer-1"]
    refused(world, "consumer-1", AlreadyRunningError)


def test_records_on_their_way_are_refused(world: World) -> None:
    world.kafka.create_topic(f"{APP}-by-val-repartition", 1)
    world.kafka.append(f"{APP}-by-val-repartition", b"k", b"v", 1, partition=0)
    refused(world, "by-val-repartition: the Java application has not read all")
    world.offset(f"{APP}-by-val-repartition", 0, 1)
    world.take_over()


def test_a_store_of_another_name_is_copied(tmp_path: Path) -> None:
    world, theirs = World(tmp_path), f"{APP}-KSTREAM-AGGREGATE-STATE-STORE-0000000001-changelog"
    world.kafka.delete_topic(CHANGELOG)
    world.kafka.create_topic(theirs, TASKS)
    world.java_writes(theirs)
    refused(world, "store 'counts' has no changelog .* KSTREAM-AGGREGATE-STATE-STORE-0000000001")
    refused(world, "the topology has no such store", stores={"count": "x"})
    world.take_over(stores={"counts": "KSTREAM-AGGREGATE-STATE-STORE-0000000001"})
    for task, marker in world.markers.items():
        copied, original = (world.kafka.columns(topic, task) for topic in (CHANGELOG, theirs))
        assert copied.cells() == original.cells()
        assert marker.changelog_ends["counts"] == world.kafka.end_offsets([(CHANGELOG, task)])[CHANGELOG, task]


def test_another_number_of_partitions_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, tasks=3)
    world.java_writes()
    refused(world, "has 2 partitions, in has 3 tasks")


def test_state_without_transactions_needs_the_users_word(world: World) -> None:
    world.kafka.append(CHANGELOG, KEYS[0], b"x" * 8, 1, partition=partition_for_key(KEYS[0], TASKS))
    refused(world, "processing.guarantee=exactly_once_v2")
    world.take_over(at_least_once=True)


def test_keys_of_the_programs_own_partitioner_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.java_writes(partitions=dict.fromkeys(KEYS, 0))
    refused(world, "a custom partitioner")


def test_a_missing_offset_is_asked_for(world: World) -> None:
    del world.kafka.groups[APP]["in", 1]
    refused(world, r"no committed offset for in-1.*--position in:1=OFFSET")


def test_java_that_went_on_is_refused(world: World) -> None:
    importer = world.importer()
    found = importer.survey()
    world.java_writes()
    before = world.contents
    with pytest.raises(ConfigError, match="has continued"):
        importer.run(found)
    assert world.contents == before


def test_an_application_that_has_committed_is_not_overwritten(world: World) -> None:
    world.take_over()
    refused(world, "has committed here already")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            lambda b: b.table("in", materialized=Materialized("kept", ttl=60_000)),
            "no ttl of rows",
        ),
        (lambda b: b.stream("in").deduplicate(within=60_000), "deduplicate"),
    ],
)  # fmt: skip
def test_what_one_side_alone_can_continue_is_named(
    tmp_path: Path, program: Callable[[StreamsBuilder], object], said: str
) -> None:
    world = World(tmp_path, program)
    world.kafka.create_topic("more", TASKS)
    refused(world, said)
    with pytest.raises(ConfigError, match=said):
        world.hand_over()


def test_java_gets_it_back_and_it_can_be_taken_over_again(world: World) -> None:
    world.take_over()
    world.hand_over()
    assert OffsetNote.decode(world.kafka.notes[APP]["in", 1]) == OffsetNote(60_001)
    with pytest.raises(CheckpointMismatchError, match=r"handed to Kafka Streams.*streams import-app"):
        world.preflight.run()
    world.java_writes()
    world.offset("in", 0, 1, OffsetNote(90_000).encode())
    world.take_over()
    assert world.markers[0].version == 1, "no step was made"
    assert world.markers[0].stream_time == 90_000
    world.preflight.run()


def test_an_export_beside_java_is_refused(world: World) -> None:
    world.take_over()
    world.members = ["java"]
    with pytest.raises(AlreadyRunningError, match="java"):
        world.hand_over()


class Killed:
    """Kills the process before its n-th request, once."""

    def __init__(self, after: int) -> None:
        self.left = after

    def before(self, event: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise Crash(str(event))
        return Fate.NOW

    def after(self, event: Any) -> None:
        """Nothing happens."""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["take_over", "hand_over"])
def test_a_kill_at_any_request_loses_nothing(tmp_path: Path, what: str) -> None:
    """The command given again, or `streams adopt` behind the last marker, ends what was begun."""
    after, died = 1, True
    while died:
        world = World(tmp_path / str(after))
        world.java_writes()
        if what == "hand_over":
            world.take_over()
        world.kafka.hook, died = Killed(after), False
        try:
            getattr(world, what)()
        except Crash:
            died = True
        world.kafka.hook = NothingHappens()
        world.kafka.deliver()
        if died:
            finish(world, what)
        if what == "hand_over":
            with pytest.raises(CheckpointMismatchError, match="handed to Kafka Streams"):
                world.preflight.run()
            world.take_over()
        world.preflight.run()
        for task, marker in world.markers.items():
            assert marker.changelog_ends == {"counts": world.kafka.end_offsets([(CHANGELOG, task)])[CHANGELOG, task]}
        after += 2
    assert after > 10, "it has requests"


def finish(world: World, what: str) -> None:
    """What a user does next: the command again; where it says that all markers are there, `streams adopt`."""
    done: list[str] = []
    try:
        getattr(world, what)()
    except StreamsError as error:
        done.append(str(error))
    if done:
        said = "`streams adopt` finishes it" if what == "take_over" else "handed to Kafka Streams"
        assert said in done[0]
    if done and what == "take_over":
        adopter = Adopter(world.preflight)
        for prepared, findings in adopter.misfits():
            adopter.adopt(prepared, findings)
