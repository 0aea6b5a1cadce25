"""Tasks of a backlog stay together in event time, so that a replay drops no record that a reader in order of time keeps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from state.kafka.key_hash import partition_for_key
from streams import (
    Consumed,
    JoinWindows,
    JsonSerde,
    Materialized,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TimeWindows,
)
from streams.driver.live import LiveDriver
from streams.engine.live.alignment import MOST_MS, SILENT_S, UNSAID, Alignment, Bound, readings
from streams.engine.live.link import REACHED, Link
from streams.engine.source.backlog import admit
from streams.engine.source.sampling import BacklogSamples
from streams.testing import TopologyTestDriver
from streams.topology.plan import build_plan
from streams.topology.topology import Topology
from tests.budget import seeds
from tests.live.replay import Replay, records_in
from tests.live.test_task import APP

PARTITIONS = 3
SECOND = 1000
WAIT_S = 30.0
LITTLE_MS, MUCH_MS = 6 * SECOND, 24 * 3600 * SECOND
Record = tuple[str, bytes, bytes, int, int]
"""Topic, key, value, time, partition."""


def source(builder: StreamsBuilder, topic: str):
    return builder.stream(topic, Consumed(StringSerde(), JsonSerde()))


def moved(builder: StreamsBuilder, topic: str, name: str):
    return source(builder, topic).select_key(lambda key, value: value["to"]).repartition(name)


def windows(grace_ms: int) -> TimeWindows:
    return TimeWindows.of_size_and_grace(10 * SECOND, grace_ms)


def counted(grace_ms: int = LITTLE_MS) -> Topology:
    builder = StreamsBuilder()
    moved(builder, "in", "moved").group_by_key().windowed_by(windows(grace_ms)).count(
        materialized=Materialized("windows", caching=False)
    ).to_stream(lambda of, _: of.key).to("out")
    return builder.build()


def beside_another_topic(grace_ms: int = LITTLE_MS) -> Topology:
    """A repartition topic and a topic from outside, in one task."""
    builder = StreamsBuilder()
    both = moved(builder, "in", "moved").merge(source(builder, "other"))
    both.group_by_key().windowed_by(windows(grace_ms)).count(
        materialized=Materialized("windows", caching=False)
    ).to_stream(lambda of, _: of.key).to("out")
    return builder.build()


def joined(grace_ms: int = LITTLE_MS) -> Topology:
    """Two repartition topics."""
    builder = StreamsBuilder()
    near = JoinWindows.of_time_difference_and_grace(5 * SECOND, grace_ms)
    left, right = moved(builder, "in", "left"), moved(builder, "other", "right")
    left.join(right, lambda a, b: [a["number"], b["number"]], near, StreamJoined(name="joined")).to("out")
    return builder.build()


def in_a_chain(grace_ms: int = LITTLE_MS) -> Topology:
    """A topic from outside beside one that is two steps behind another one."""
    builder = StreamsBuilder()
    twice = moved(builder, "in", "first").select_key(lambda key, value: value["then"])
    both = twice.repartition("second").merge(source(builder, "other"))
    both.group_by_key().windowed_by(windows(grace_ms)).count(
        materialized=Materialized("windows", caching=False)
    ).to_stream(lambda of, _: of.key).to("out")
    return builder.build()


def records(topics: list[str], random: Random, count: int = 150) -> list[Record]:
    """Records in order of time; partitions have more and less of them, and gaps."""
    share = [1, 6, 20]
    random.shuffle(share)
    found, time_ms = [], 1_000_000
    for number in range(count):
        time_ms += random.choice((0, 50, 300, 2 * SECOND, 30 * SECOND)) if random.random() < 0.3 else 20
        (partition,) = random.choices(range(PARTITIONS), share)
        key = next(
            key for key in map(str, range(number, 10_000)) if partition_for_key(key.encode(), PARTITIONS) == partition
        )
        value = JsonSerde().serialize(
            "", {"number": number, "to": random.choice("abcdef"), "then": random.choice("xyz")}
        )
        assert value is not None
        found.append((random.choice(topics), key.encode(), value, time_ms, partition))
    return found


def in_order(topology: Topology, given: list[Record]) -> Counter[tuple[bytes | None, bytes | None]]:
    """What a reader leaves behind that takes one record after the other, in order of time."""
    with TopologyTestDriver(topology, partitions=dict.fromkeys(["in", "other", "out"], PARTITIONS)) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic in {topic for topic, *_ in given}}
        for topic, key, value, time_ms, partition in given:
            topics[topic].pipe_bytes(key, value, time_ms, (), partition)
        assert driver.dropped("late") == 0
        return records_in(driver._kafka, ["out"], PARTITIONS)


def replayed(topology: Topology, given: list[Record], random: Random, aligned: bool = True) -> Replay:
    replay = Replay(topology, PARTITIONS, random, aligned)
    for topic, key, value, time_ms, partition in given:
        replay.kafka.append(topic, key, value, time_ms, partition=partition)
    replay.run()
    return replay


def in_micro_batches(topology: Topology, given: list[Record], limit: int) -> Counter[tuple[bytes | None, bytes | None]]:
    """What micro-batches leave behind, which the planner cuts at one time in all partitions."""
    logs: dict[tuple[str, int], list[Record]] = {}
    for one in given:
        logs.setdefault((one[0], one[4]), []).append(one)

    def read(
        places: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], list[Any]]:
        return {
            place: [SimpleNamespace(offset=n, timestamp_ms=logs[place][n][3], size=50) for n in range(at, ends[place])][
                :5
            ]
            for place, at in places.items()
        }

    at, ends = dict.fromkeys(logs, 0), {place: len(log) for place, log in logs.items()}
    samples = BacklogSamples(read)
    with TopologyTestDriver(topology, partitions=dict.fromkeys(["in", "other", "out"], PARTITIONS)) as driver:
        topics = {topic: driver.create_input_topic(topic) for topic, _ in logs}
        while at != ends:
            samples.begin(at)
            to = admit(at, ends, limit, samples, given[-1][3] + 1)
            with driver.batch():
                for place, log in logs.items():
                    for topic, key, value, time_ms, partition in log[at[place] : to[place]]:
                        topics[topic].pipe_bytes(key, value, time_ms, (), partition)
            at = to
        assert driver.dropped("late") == 0
        return records_in(driver._kafka, ["out"], PARTITIONS)


PROGRAMS = {
    counted: ["in"],
    beside_another_topic: ["in", "other"],
    joined: ["in", "other"],
    in_a_chain: ["in", "other"],
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(range(6)))
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_replay_drops_nothing_that_a_reader_in_order_of_time_keeps(
    program: Callable[[], Topology], seed: int
) -> None:
    random = Random(seed)
    given = records(PROGRAMS[program], random)
    replay = replayed(program(), given, random)
    assert replay.late == 0
    assert replay.results() == in_order(program(), given)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_with_the_grace_that_micro_batches_need_all_executions_agree(program: Callable[[int], Topology]) -> None:
    """What several tasks write into a repartition topic in one micro-batch is in no order there; live, little grace is enough."""
    random = Random(2)
    given = records(PROGRAMS[program], random)
    expected = in_order(program(MUCH_MS), given)
    assert replayed(program(MUCH_MS), given, random).results() == expected
    for limit in (20, 1000):
        assert in_micro_batches(program(MUCH_MS), given, limit) == expected


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_bounds_records_would_be_late(program: Callable[[], Topology]) -> None:
    random = Random(1)
    assert replayed(program(), records(PROGRAMS[program], random), random, aligned=False).late > 0


# --- The bounds.

MANY = 1_000_000


class Clock:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def alignment(program: Callable[[], Topology], tasks: int = 2) -> tuple[Alignment, list[str], Clock]:
    subs, clock = build_plan(program(), APP).sub_topologies, Clock()
    names = [sub.name for sub in subs]
    return Alignment(dict.fromkeys(names, tasks), readings(subs), clock), names, clock


def say(bounds: Alignment, sub: str, *times: int | None, behind: bool = True, asked: bool = True) -> None:
    bounds.hear(sub, [(task, time_ms, behind and time_ms is not None, asked) for task, time_ms in enumerate(times)])


def test_what_bounds_a_sub_topology() -> None:
    found = readings(build_plan(joined(), APP).sub_topologies)
    left, both, right = sorted(found, key=lambda name: "in left-repartition other".index(name.removeprefix(f"{APP}-")))
    # What both write meets behind them; what is read there holds up neither.
    assert found[left].bounded_by == found[right].bounded_by == {left, right}
    assert found[both].bounded_by == {left, both, right}
    assert found[both].above == {left, right}
    assert {one.allowance_ms for one in found.values()} == {3 * SECOND}
    alone = StreamsBuilder()
    alone.stream("in").group_by_key().windowed_by(windows(LITTLE_MS)).count().to_stream().to("out")
    found = readings(build_plan(alone.build(), APP).sub_topologies)
    assert found["in"].allowance_ms == MOST_MS, "its own partitions are in one order, whatever the others do"
    assert MOST_MS > MUCH_MS
    kept = readings(build_plan(joined(300 * MUCH_MS), APP).sub_topologies)
    assert {one.allowance_ms for one in kept.values()} == {150 * MUCH_MS}, "what is late by less is kept"
    bounds = Alignment({"in": 2}, found, Clock())
    bounds.hear("in", [(0, MANY, True, False)])
    assert bounds.bounds()["in"].of("in", 0, True) == inf, "it waits for no task that is still to be restored"


def test_at_the_ends_of_the_partitions_nobody_waits() -> None:
    bounds, (first, second), _ = alignment(counted)
    for sub in (first, second):
        say(bounds, sub, None, None, asked=False)
    assert bounds.bounds() == {}
    assert UNSAID.of(first, 0, has_backlog=False) == inf
    assert UNSAID.of(first, 0, has_backlog=True) == -inf


def test_the_slowest_waits_for_the_next_one_only() -> None:
    bounds, (first, second), _ = alignment(counted)
    say(bounds, second, None, None, asked=False)
    say(bounds, first, MANY, MANY + 500)
    bound = bounds.bounds()[first]
    assert (bound.of(first, 0, True), bound.of(first, 1, True)) == (MANY + 3500, MANY + 3000)
    say(bounds, first, MANY, None)
    bound = bounds.bounds()[first]
    assert (bound.of(first, 0, True), bound.of(first, 1, True)) == (inf, MANY + 3000)


def test_nobody_is_believed_to_have_nothing_who_was_not_asked() -> None:
    """Something may be on its way to a task behind a repartition topic that has said so before."""
    bounds, (first, second), _ = alignment(beside_another_topic)
    say(bounds, second, None, None, asked=False)
    say(bounds, first, MANY, None)
    assert bounds.bounds()[second].of(second, 0, True) < 0
    say(bounds, second, MANY, MANY)
    assert bounds.bounds()[second].of(second, 0, True) == MANY + 3000


def test_nobody_goes_on_before_all_have_said_where_they_are_but_not_for_ever() -> None:
    bounds, (first, second), clock = alignment(counted)
    say(bounds, first, MANY, MANY)
    bounds.hear(second, [(0, None, False, False)])
    assert bounds.bounds() == {}, "who has a backlog waits, and the others do not"
    clock.now = SILENT_S
    say(bounds, first, MANY, MANY)
    assert bounds.bounds()[first].of(first, 0, True) == MANY + 3000


def test_a_task_that_is_lost_or_paused_holds_up_the_others_for_some_time_at_most() -> None:
    bounds, (first, second), clock = alignment(counted)
    say(bounds, second, None, None)
    say(bounds, first, 0, MANY)
    assert bounds.bounds()[first].of(first, 1, True) == 3000
    assert bounds.bounds(paused=[first]) == {}
    clock.now = SILENT_S
    bounds.hear(first, [(1, MANY, True, True)])
    assert bounds.bounds()[first].of(first, 1, True) == inf


def test_a_bound_is_heard_as_it_was_said() -> None:
    for bound in (
        Bound(5.0, ("in", 1), 7.0, 3.0, asked=True),
        Bound(5.0, ("in", 1), asked=True),
        Bound(inf, asked=True),
    ):
        assert Bound.heard(orjson.loads(orjson.dumps(bound.said()))) == bound


def test_the_driver_answers_a_backlog_with_bounds_for_all_slots() -> None:
    bounds, (first, second), _ = alignment(counted, tasks=1)
    with LiveDriver("127.0.0.1", "127.0.0.1", lambda message: None) as driver:
        driver.align(bounds)
        links = [Link.to(driver.address) for _ in range(2)]
        for link in links:
            link.listen(WAIT_S)
        links[0].tell({"sub": second, REACHED: [(0, None, False, False)]})
        links[0].tell({"sub": first, REACHED: [(0, MANY, True, False)]})
        deadline = time.monotonic() + WAIT_S
        while not all(link.bound(first).asked for link in links):
            assert time.monotonic() < deadline
            for link in links:
                link.listen(0.01)
        for link in links:
            link.close()
