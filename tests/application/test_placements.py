"""What gives keys to tasks is what the keys in the topics show, and what was once committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from state.commit.marker import MARKER_KEY, UNPLACED, format_of
from state.errors import CheckpointMismatchError
from state.kafka.key_hash import partition_for_key
from state.kafka.placement import FUNCTIONS, Placement
from streams import Consumed, JsonSerde, Produced, Serde, StreamsBuilder
from streams.application.execution import obstacle
from streams.application.jobs import query_job
from streams.application.owned_topics import write_manifest
from streams.application.placements import PATIENCE_S, Placements, Undecided
from streams.application.prepare import Application, PreparedSub, plan_application
from streams.application.start import Preflight
from streams.checkpoint.files import LocalFiles
from streams.config import Execution, StreamsConfig
from streams.engine.source.pauses import LeftLive
from streams.errors import ConfigError
from streams.testing.simulation import SimulatedKafka
from streams.topology.topology import Topology
from tests.application.cluster import marker

PARTITIONS = 4
KEYS = [f"user-{n}".encode() for n in range(40)]


def counts(keys: Serde[Any] | None = None) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(keys)).group_by_key().count().to_stream().to("out")
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").join(builder.table("other"), lambda left, right: left).to("out")
    return builder.build()


def copied() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").filter(lambda key, value: True).to("out")
    return builder.build()


def by_new_keys() -> Topology:
    builder = StreamsBuilder()
    counted = builder.stream("in").group_by(lambda key, value: value).count()
    counted.to_stream().to("out", Produced(value_serde=JsonSerde()))
    return builder.build()


def rekeyed() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).repartition().group_by_key().count().to_stream().to("out")
    return builder.build()


def cluster() -> SimulatedKafka:
    return SimulatedKafka({"in": PARTITIONS, "other": PARTITIONS, "out": 1})


def write(kafka: SimulatedKafka, topic: str, by: Placement, keys: Iterable[bytes | None] = KEYS) -> None:
    for key in keys:
        partition = partition_for_key(key, PARTITIONS, by)
        kafka.append(topic, key, b"1", 1, partition=max(0, partition))


def planned(topology: Topology, kafka: SimulatedKafka, **settings: Any) -> Application:
    config = StreamsConfig(application_id="app", bootstrap_servers="none:1", **settings)
    return plan_application(topology, config, kafka)  # type: ignore[arg-type]


def found(topology: Topology, kafka: SimulatedKafka, **settings: Any) -> Sequence[PreparedSub]:
    return Placements(planned(topology, kafka, **settings), kafka, kafka).found().subs


def commit(kafka: SimulatedKafka, application: Application, placement: str, task: int = 0) -> None:
    """A marker of the only sub-topology."""
    (prepared,) = application.subs
    topic = f"app-{prepared.sub.name}-commits"
    kafka.create_topic(topic, PARTITIONS)
    one = marker(
        "app", task=task, tasks=PARTITIONS, topology_hash=prepared.sub.topology_hash, placement=placement,
        format=format_of(placement),
    )  # fmt: skip
    kafka.append(topic, MARKER_KEY, one.to_bytes(), 1, partition=task)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_function_that_explains_the_keys_is_taken(function: Placement) -> None:
    kafka = cluster()
    write(kafka, "in", function, [None, b"", *KEYS])
    (prepared,) = found(counts(), kafka)
    assert (prepared.placement, prepared.misplaced) == (function, None)


def test_all_topics_of_a_sub_topology_count() -> None:
    kafka = cluster()
    write(kafka, "other", Placement.CRC32)
    (prepared,) = found(joined(), kafka)
    assert prepared.placement is Placement.CRC32
    write(kafka, "in", Placement.MURMUR2)
    (prepared,) = found(joined(), kafka)
    assert prepared.placement is Placement.MURMUR2
    assert prepared.misplaced == "the keys of other are where crc32 puts them, not where murmur2 does"
    assert obstacle(prepared, {"in": PARTITIONS, "other": PARTITIONS}) == prepared.misplaced


def test_keys_that_no_function_explains_are_left_to_micro_batches_unless_nothing_is_found_by_key() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.MURMUR2)
    write(kafka, "in", Placement.CRC32)
    (prepared,) = found(counts(), kafka)
    assert prepared.placement is Placement.MURMUR2
    assert prepared.misplaced == "the keys of in are not where murmur2 or another known function puts them"
    (prepared,) = found(copied(), kafka)
    assert (prepared.placement, prepared.misplaced) == (Placement.PARTITION, None)


def test_keys_in_another_notation_than_that_of_their_serde_are_left_to_micro_batches() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.CRC32, [b'{"id": %d}' % number for number in range(40)])
    (prepared,) = found(counts(JsonSerde()), kafka)
    assert prepared.placement is Placement.CRC32
    assert prepared.misplaced == "the keys of in are written in another notation than that of their serde"
    kafka = cluster()
    write(kafka, "in", Placement.CRC32, [b'{"id":%d}' % number for number in range(40)])
    (prepared,) = found(counts(JsonSerde()), kafka)
    assert (prepared.placement, prepared.misplaced) == (Placement.CRC32, None)


def test_nothing_is_decided_before_there_are_keys_and_then_they_decide() -> None:
    kafka, said = cluster(), list[str]()
    application = Placements(planned(counts(), kafka), kafka, kafka).found()
    assert application.placements == {}
    undecided = Undecided(application, kafka, said.append)
    assert not undecided.look(kafka, 0.0)
    assert not undecided.due(0.5)
    # A key that several functions put there decides only if no others come.
    same = next(key for key in KEYS if len({partition_for_key(key, PARTITIONS, one) for one in FUNCTIONS[:2]}) == 1)
    write(kafka, "in", Placement.CRC32, [same])
    assert not undecided.look(kafka, 1.0)
    write(kafka, "in", Placement.CRC32)
    assert undecided.look(kafka, 2.0)
    assert undecided.found is not None
    assert undecided.found.placements == {"in": "crc32"}
    assert said == [
        "in: its keys are where crc32 puts them (the default of librdkafka: of confluent-kafka in Python, Go and .NET, of PHP and "
        "Ruby)"
    ]


@pytest.mark.parametrize("keys", [[None], [b""]])
def test_records_without_keys_do_not_wait_for_ever(keys: list[bytes | None]) -> None:
    kafka = cluster()
    write(kafka, "in", Placement.CRC32, keys)
    undecided = Undecided(Placements(planned(counts(), kafka), kafka, kafka).found(), kafka, lambda _: None)
    assert not undecided.look(kafka, 0.0)
    assert undecided.look(kafka, PATIENCE_S)
    assert undecided.found is not None
    assert undecided.found.placements == {"in": "murmur2"}


def test_what_was_committed_stays_whatever_producers_do_then() -> None:
    kafka = cluster()
    application = planned(counts(), kafka)
    commit(kafka, application, UNPLACED)
    write(kafka, "in", Placement.MURMUR2)
    assert found(counts(), kafka)[0].placement is Placement.MURMUR2, "a task without a key has decided nothing"
    commit(kafka, application, Placement.CRC32.value, task=2)
    (prepared,) = found(counts(), kafka)
    assert prepared.placement is Placement.CRC32
    assert prepared.misplaced == (
        "the keys of in are where murmur2 puts them, not where crc32 does; `streams rescale TARGET` moves its state, so that it can"
    )
    with pytest.raises(
        ConfigError, match=r"placement=fnv1a, but the state of in was written with crc32.* --placement fnv1a"
    ):
        found(counts(), kafka, placement="fnv1a")


def test_applications_of_earlier_versions_keep_murmur2() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.CRC32)
    application = planned(counts(), kafka)
    commit(kafka, application, "murmur2")
    data = kafka.columns("app-in-commits", 0).values[0].as_py()  # type: ignore[union-attr]
    assert "placement" not in orjson.loads(data)
    assert found(counts(), kafka)[0].placement is Placement.MURMUR2


def test_tasks_of_two_placements_do_not_start(tmp_path: Path) -> None:
    kafka = cluster()
    application = planned(counts(), kafka)
    commit(kafka, application, "murmur2", task=0)
    commit(kafka, application, "crc32", task=3)
    placed = Placements(application, kafka, kafka).found()
    preflight = Preflight(placed, LocalFiles(str(tmp_path)), kafka, lambda _: None, kafka)  # type: ignore[arg-type]
    with pytest.raises(CheckpointMismatchError, match=r"task 3 of 4 .* with the keys of crc32 .* goes by murmur2"):
        preflight.inspect(placed.subs[0])


def test_what_the_application_writes_for_itself_goes_by_its_readers() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.CRC32)
    subs = found(rekeyed(), kafka)
    assert [one.placement for one in subs] == [Placement.CRC32, Placement.MURMUR2]
    builder = StreamsBuilder()
    repartitioned = builder.stream("other").select_key(lambda key, value: value).repartition(name="by-value")
    repartitioned.join(builder.table("in"), lambda left, right: left).to("out")
    kafka.create_topic("app-by-value-repartition", PARTITIONS)
    application = Placements(planned(builder.build(), kafka), kafka, kafka).found()
    assert application.topic_placements == {"app-by-value-repartition": Placement.CRC32}
    writer = next(one for one in application.subs if "other" in one.sub.topics)
    job = query_job(application, writer, {}, 1, None, until={}, first=None)
    assert job.settings.placements == {"app-by-value-repartition": Placement.CRC32}


def test_the_partition_itself_is_for_those_who_ask_for_it() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.MURMUR2)
    assert found(counts(), kafka, placement="partition")[0].placement is Placement.PARTITION
    first, second = found(rekeyed(), kafka, placement="partition")
    assert (first.placement, second.placement) == (Placement.PARTITION, Placement.MURMUR2)
    assert [one.placement for one in found(by_new_keys(), kafka, placement="partition")][1] is Placement.MURMUR2
    with pytest.raises(ConfigError, match=r"makes keys in .*: call repartition\(\) after it"):
        found(by_new_keys(), kafka, placement="partition", execution=Execution.MICRO_BATCH)
    uneven = SimulatedKafka({"in": 4, "other": 2, "out": 1})
    with pytest.raises(ConfigError, match="different numbers of partitions"):
        found(joined(), uneven, placement="partition", execution=Execution.MICRO_BATCH)


def test_the_manifest_names_it(tmp_path: Path) -> None:
    kafka = cluster()
    write(kafka, "in", Placement.FNV1A)
    application = Placements(planned(counts(), kafka), kafka, kafka).found()
    file = write_manifest(application.plan, str(tmp_path), application.placements)
    assert file is not None
    assert orjson.loads(file.read_bytes())["sub_topologies"]["in"]["placement"] == "fnv1a"


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [
        (Placement.CRC32, Placement.CRC32, []),
        (Placement.CRC32, Placement.MURMUR2, ["app-in-repartition"]),
        (Placement.CRC32, Placement.FNV1A, ["app-in-repartition", "app-other-repartition"]),
    ],
)
def test_topics_of_different_producers_cross_repartition_topics(
    one: Placement, other: Placement, names: list[str]
) -> None:
    kafka = cluster()
    write(kafka, "in", one)
    write(kafka, "other", other)
    application = planned(joined(), kafka)
    functions = Placements(application, kafka, kafka).disagreeing()
    assert bool(functions) == bool(names)
    again = plan_application(joined(), application.config, kafka, placements=functions)  # type: ignore[arg-type]
    assert sorted(again.plan.repartition_topics) == names
    for name in names:
        kafka.create_topic(name, PARTITIONS)
    subs = Placements(again, kafka, kafka).found().subs
    partitions = {topic: PARTITIONS for prepared in subs for topic in prepared.sub.topics}
    assert [obstacle(prepared, partitions) for prepared in subs] == [None] * len(subs)


def test_keys_in_another_notation_cross_a_repartition_topic() -> None:
    """The producer's bytes have put them where they are, and tasks go by the serde's."""
    kafka = cluster()
    write(kafka, "in", Placement.MURMUR2, [b'{"user": %d}' % number for number in range(40)])
    application = planned(counts(JsonSerde()), kafka)
    functions = Placements(application, kafka, kafka).disagreeing()
    assert functions == {"in": None}
    again = plan_application(counts(JsonSerde()), application.config, kafka, placements=functions)  # type: ignore[arg-type]
    assert list(again.plan.repartition_topics) == ["app-in-repartition"]
    kafka.create_topic("app-in-repartition", PARTITIONS)
    subs = Placements(again, kafka, kafka).found().subs
    assert [obstacle(one, {"in": PARTITIONS, "app-in-repartition": PARTITIONS}) for one in subs] == [None, None]


def test_what_began_in_micro_batches_gets_no_topics() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.CRC32)
    write(kafka, "other", Placement.MURMUR2)
    began = planned(joined(), kafka, execution=Execution.MICRO_BATCH)
    assert Placements(began, kafka, kafka).disagreeing() == {}


# --- A record that turns up where its placement does not put it

ODD = next(key for key in KEYS if len({partition_for_key(key, PARTITIONS, by) for by in FUNCTIONS}) == len(FUNCTIONS))
"""A key that each function puts somewhere else."""
FIRST = next(key for key in KEYS if len({partition_for_key(key, PARTITIONS, by) for by in FUNCTIONS}) == 1)
"""A key that all functions put into one partition."""


def left(kafka: SimulatedKafka, keys: Iterable[bytes], wrong: bytes | None = None, **settings: Any) -> LeftLive:
    """What is said of a record that crc32 has placed, or nobody's function, behind some of murmur2."""
    write(kafka, "in", Placement.MURMUR2, keys)
    here = partition_for_key(ODD, PARTITIONS, Placement.CRC32)
    if wrong is not None:
        here = next(
            number
            for number in range(PARTITIONS)
            if number not in {partition_for_key(ODD, PARTITIONS, by) for by in FUNCTIONS}
        )
    offset = kafka.log("in", here).end
    kafka.append("in", ODD, b"1", 1, partition=here)
    application = planned(counts(), kafka)
    (prepared,) = application.subs
    places = Placements(application, kafka, kafka)
    return places.left_live(replace(prepared, placement=Placement.MURMUR2), ("in", here, offset), 7)


@pytest.mark.parametrize(("keys", "back"), [([FIRST], "--placement crc32"), (KEYS, "")])
def test_what_brings_a_sub_topology_back_depends_on_whether_one_function_explains_all_keys(
    keys: list[bytes], back: str
) -> None:
    found = left(cluster(), keys)
    here = partition_for_key(ODD, PARTITIONS, Placement.CRC32)
    assert found.why.startswith(f"the record at in-{here} offset ")
    assert "is where crc32 puts its key (the default of librdkafka" in found.why
    assert found.why.endswith("not where murmur2 does")
    assert found.command("app.py", "app") == f"streams rescale app.py -a app{back and ' ' + back}"


def test_a_record_that_no_function_explains_needs_a_topic() -> None:
    found = left(cluster(), [FIRST], wrong=ODD)
    assert "is not where murmur2 or another known function puts its key" in found.why
    assert found.back == ""


def test_a_record_that_was_noted_counts_where_few_are_looked_at() -> None:
    """A look reads some records at both ends of a partition, and this one is in the middle."""
    kafka = cluster()
    here = partition_for_key(ODD, PARTITIONS, Placement.CRC32)
    of_here = [key for key in KEYS if partition_for_key(key, PARTITIONS) == here]
    write(kafka, "in", Placement.MURMUR2, of_here * 100)
    offset = kafka.log("in", here).end
    kafka.append("in", ODD, b"1", 1, partition=here)
    write(kafka, "in", Placement.MURMUR2, of_here * 100)
    application = planned(counts(), kafka, execution=Execution.LIVE)
    assert Placements(application, kafka, kafka).disagreeing(also_old=True) == {}
    assert Placements(application, kafka, kafka, (("in", here, offset),)).disagreeing(also_old=True) == {"in": None}


def test_what_no_task_has_committed_by_is_chosen_again() -> None:
    kafka = cluster()
    write(kafka, "in", Placement.MURMUR2, [FIRST])
    application = planned(counts(), kafka)
    places = Placements(application, kafka, kafka)
    (prepared,) = places.decided(finally_=True).subs
    assert prepared.placement is Placement.MURMUR2
    write(kafka, "in", Placement.CRC32)
    again = places.chosen_again(prepared)
    assert again is not None
    assert (again.placement, again.misplaced) == (Placement.CRC32, None)
    commit(kafka, application, UNPLACED, task=1)
    assert places.chosen_again(prepared) is not None
    commit(kafka, application, "murmur2", task=0)
    assert places.chosen_again(prepared) is None


@pytest.mark.parametrize("asked", FUNCTIONS)
def test_a_placement_that_is_asked_for_is_compared_with_the_keys(asked: Placement) -> None:
    """Else the first record would end live execution."""
    kafka = cluster()
    write(kafka, "in", Placement.CRC32)
    (prepared,) = found(counts(), kafka, placement=asked, execution=Execution.LIVE)
    assert prepared.placement is asked
    assert (obstacle(prepared, {"in": PARTITIONS}) is None) is (asked is Placement.CRC32)
