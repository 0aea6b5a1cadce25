"""`streams import-app` and `export-app` over the simulated Kafka: what is refused, what markers say, and a kill at each request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from state.errors import CheckpointMismatchError, StreamsError
from state.kafka.key_hash import partition_for_key
from streams import (
    EmitStrategy,
    Int64Serde,
    JoinWindows,
    Materialized,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.application.adopt import Adopter
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

    def hand_over(self) -> None:
        exporter = Exporter(self.preflight, members=lambda _: self.members)
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
    refused(world, "a partitioner of the program's own")


def test_a_missing_offset_is_asked_for(world: World) -> None:
    del world.kafka.groups[APP]["in", 1]
    refused(world, r"no committed offset for in-1.*--position in:1=OFFSET")


def test_java_that_went_on_is_refused(world: World) -> None:
    importer = world.importer()
    found = importer.survey()
    world.java_writes()
    before = world.contents
    with pytest.raises(ConfigError, match="has gone on"):
        importer.run(found)
    assert world.contents == before


def test_an_application_that_has_committed_is_not_overwritten(world: World) -> None:
    world.take_over()
    refused(world, "has committed here already")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            lambda b: b.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000)).count()
            .suppress(Suppressed.until_window_closes()).to_stream(),
            "suppress",
        ),
        (
            lambda b: b.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000))
            .emit_strategy(EmitStrategy.on_window_close()).count(),
            "open windows",
        ),
        (
            lambda b: b.stream("in").left_join(
                b.stream("more"), lambda left, right: left, JoinWindows.of_time_difference_with_no_grace(1), StreamJoined(name="j")
            ),
            "left or outer join",
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
