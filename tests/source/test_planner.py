"""The planner against a Kafka of dictionaries: what it plans, and what it refuses by name."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from state.errors import OffsetsLostError, TopicNotFoundError, TopicRecreatedError
from state.kafka.consumers import SampledRecord
from streams.driver.source import KafkaStreamReader
from streams.engine.source.log import STEP, now_ms
from streams.engine.source.offsets import FirstBatch, OffsetRange, SourceOffsets, TopicOffsets, batch_digest
from streams.engine.source.planner import BatchPlanner
from streams.engine.source.topics import SourceSpec
from streams.engine.step.read import (
    MOST_TOGETHER,
    SMALL_RECORDS,
    PlannedCall,
    PlannedPartition,
    PlannedRange,
    together,
)
from streams.errors import ConfigError

TP = tuple[str, int]


@dataclass
class Info:
    topic_id: str
    partitions: int


@dataclass
class FakeAdmin:
    topics: dict[str, Info]
    begin: dict[TP, int] = field(default_factory=dict)
    end: dict[TP, int] = field(default_factory=dict)
    deleted: dict[TP, int] = field(default_factory=dict)

    def describe_topics(self, names: Sequence[str]) -> Mapping[str, Info]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def begin_offsets(self, partitions: Sequence[TP]) -> Mapping[TP, int]:
        return {tp: self.begin.get(tp, 0) for tp in partitions}

    def end_offsets(self, partitions: Sequence[TP]) -> Mapping[TP, int]:
        return {tp: self.end.get(tp, 0) for tp in partitions}

    def offsets_for_times(self, times: Mapping[TP, int]) -> Mapping[TP, int]:
        return {tp: min(time_ms, self.end.get(tp, 0)) for tp, time_ms in times.items()}

    def delete_records(self, before: Mapping[TP, int]) -> None:
        self.deleted.update(before)


def read(at: Mapping[TP, int], end: Mapping[TP, int]) -> dict[TP, list[SampledRecord]]:
    """Records of 100 bytes that have their offsets as times."""
    return {tp: [SampledRecord(n, n, 100) for n in range(first, min(first + 20, end[tp]))] for tp, first in at.items()}


def planner(admin: FakeAdmin, **spec: object) -> BatchPlanner:
    settings: dict[str, object] = {"starting": dict.fromkeys(admin.topics, "earliest"), **spec}
    return BatchPlanner(admin, SourceSpec(**settings), read)  # type: ignore[arg-type]


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin(
        {"a": Info("id-a", 2), "b": Info("id-b", 1)},
        end={("a", 0): 100, ("a", 1): 50, ("b", 0): 10},
        begin={("a", 0): 5},
    )


def test_reading_begins_at_the_starting_offsets(admin: FakeAdmin) -> None:
    at = planner(admin, starting={"a": "earliest", "b": "latest"}).initial()
    assert (at.topics["a"].offsets, at.topics["b"].offsets) == ((5, 0), (10,))
    at = planner(admin, starting={"a": "timestamp:30", "b": "earliest"}).initial()
    assert at.topics["a"].offsets == (30, 30)


def test_a_query_begins_where_it_was_settled_that_it_does(admin: FakeAdmin) -> None:
    first = planner(admin).initial()
    admin.begin = {("a", 0): 70}
    kept = planner(admin, starting={"a": "latest", "b": "latest"}, first=FirstBatch(first))
    assert kept.initial() == first
    assert kept.latest(replace_offsets(first, "a", (80, 0))).topics["a"].offsets == (100, 50)


def replace_offsets(at: SourceOffsets, topic: str, offsets: tuple[int, ...]) -> SourceOffsets:
    return SourceOffsets({**at.topics, topic: TopicOffsets(at.topics[topic].topic_id, offsets)})


def test_a_checkpoint_that_takes_over_repeats_the_last_micro_batch_of_the_other_one(admin: FakeAdmin) -> None:
    start = planner(admin).initial()
    end = replace_offsets(start, "a", (40, 0))
    plan = planner(admin, first=FirstBatch(start, end))
    assert (plan.initial(), plan.latest(start)) == (start, end)
    # It counts as logged: tasks may have committed it, so all are called.
    assert plan.is_repeat(end)
    assert plan.latest(end).topics["a"].offsets == (100, 50)
    # If it has read nothing, it is planned as any other.
    assert planner(admin, first=FirstBatch(start, start)).latest(start).topics["a"].offsets == (100, 50)


def test_starts_a_duration_before_the_first_start(admin: FakeAdmin) -> None:
    spec = SourceSpec(starting={"a": "duration:30", "b": "duration:500"})
    plan = BatchPlanner(admin, spec, read, now_ms=lambda: 70)
    at = plan.initial()
    # The fake's records have their offsets as times; what lies before the epoch is all there is.
    assert (at.topics["a"].offsets, at.topics["b"].offsets) == ((40, 40), (0,))


def test_a_tick_is_an_offset_of_time(admin: FakeAdmin) -> None:
    now = 1000
    spec = SourceSpec(starting={"a": "latest", "b": "latest"}, tick_ms=100)
    plan = BatchPlanner(admin, spec, read, now_ms=lambda: now)
    at = plan.initial()
    first = plan.latest(at)
    # The first is due as the application starts: there is a micro-batch, though there is nothing to read.
    assert (first.tick, first.topics) == (1, at.topics)
    assert SourceOffsets.from_json(first.to_json()) == first
    now += 99
    assert plan.latest(first) is first
    admin.end["b", 0] += 1
    at = plan.latest(first)
    assert (at.tick, at.of("b", 0)) == (1, 11)
    now += 1
    assert plan.latest(at).tick == 2
    # Another start has a tick of its own; without the setting there is none, and the number stays.
    assert BatchPlanner(admin, spec, read, now_ms=lambda: now).latest(at).tick == 2
    assert planner(admin).latest(at) is at
    plan.freeze()
    now += 1000
    assert plan.latest(at) is at


@pytest.mark.parametrize(("policy", "position", "following"), [("earliest", 3, [(3, 9)]), ("latest", 7, [(7, 9)])])
def test_a_topic_new_under_a_pattern_begins_where_its_policy_says(
    admin: FakeAdmin, policy: str, position: int, following: list[tuple[int, int]]
) -> None:
    start = planner(admin, on_lost_offsets="fail").latest(planner(admin).initial())
    admin.topics["c"] = Info("id-c", 1)
    admin.begin["c", 0], admin.end["c", 0] = 3, 7
    plan = planner(admin, starting={"a": "earliest", "b": "earliest", "c": policy})
    first = plan.latest(start)
    assert first.topics["c"].offsets == (position,)
    assert plan.ranges(start, first) == []
    assert planner(admin, starting=dict.fromkeys("abc", policy), on_lost_offsets="latest").ranges(start, first) == []
    admin.end["c", 0] = 9
    assert [(r.start, r.end) for r in plan.ranges(first, plan.latest(first))] == following


def test_a_topic_out_of_sight_keeps_its_position_and_id(admin: FakeAdmin) -> None:
    logged = planner(admin).latest(planner(admin).initial())
    hidden = admin.topics.pop("b")
    # A start at which the pattern matches one topic less: reading goes on, and what is not seen stays in the log of offsets.
    plan = planner(admin)
    admin.end["a", 0] = 110
    without = plan.latest(SourceOffsets.from_json(logged.to_json()))
    assert (without.topics["a"].offsets, without.topics["b"]) == ((110, 50), logged.topics["b"])
    assert [r.topic for r in plan.ranges(logged, without)] == ["a"]
    admin.topics["b"], admin.end["b", 0] = hidden, 12
    back = planner(admin)
    assert [(r.topic, r.start, r.end) for r in back.ranges(without, back.latest(without))] == [("b", 10, 12)]
    admin.topics["b"] = Info("id-other", 1)
    with pytest.raises(TopicRecreatedError, match="id-other"):
        planner(admin).latest(without)


def test_a_partition_out_of_sight_keeps_its_position(admin: FakeAdmin) -> None:
    logged = planner(admin).latest(planner(admin).initial())
    admin.topics["a"] = Info("id-a", 1)
    admin.end["a", 0] = 110
    without = planner(admin).latest(logged)
    assert without.topics["a"].offsets == (110, 50)
    admin.topics["a"], admin.end["a", 1] = Info("id-a", 2), 53
    back = planner(admin)
    assert [(r.partition, r.start, r.end) for r in back.ranges(without, back.latest(without))] == [(1, 50, 53)]


def test_takes_all_when_it_fits_and_rests_when_there_is_nothing(admin: FakeAdmin) -> None:
    plan = planner(admin)
    start = plan.initial()
    end = plan.latest(start)
    assert [(r.topic, r.partition, r.start, r.end) for r in plan.ranges(start, end)] == [
        ("a", 0, 5, 100),
        ("a", 1, 0, 50),
        ("b", 0, 0, 10),
    ]
    assert plan.latest(end) is end


def test_limits_in_records_and_bytes(admin: FakeAdmin) -> None:
    for limits in ({"max_records": 40}, {"max_bytes": 4000}):
        plan = planner(admin, **limits)
        start = plan.initial()
        assert 0 < sum(r.end - r.start for r in plan.ranges(start, plan.latest(start))) <= 40


def test_tells_of_a_backlog(admin: FakeAdmin) -> None:
    plan = planner(admin, max_records=100)
    first = plan.latest(plan.initial())
    assert plan.leaves_backlog(first)
    second = plan.latest(first)
    assert not plan.leaves_backlog(second)
    assert planner(admin).leaves_backlog(second)  # logged by an earlier run: nobody knows
    assert planner(admin).is_repeat(second)
    assert not plan.is_repeat(second)
    admin.topics["c"], admin.end["c", 0] = Info("id-c", 1), 9
    plan = planner(admin)
    # A topic that is new under a pattern is read from the next micro-batch on.
    assert plan.leaves_backlog(plan.latest(second))


def test_available_now_reads_nothing_that_came_later(admin: FakeAdmin) -> None:
    plan = planner(admin)
    plan.freeze()
    admin.end["a", 0] = 1000
    end = plan.latest(plan.initial())
    assert end.topics["a"].offsets == (100, 50)
    assert plan.latest(end) is end


def test_new_partitions_are_read_from_their_beginning(admin: FakeAdmin) -> None:
    plan = planner(admin)
    start = plan.latest(plan.initial())
    admin.topics["b"] = Info("id-b", 2)
    admin.end["b", 1] = 3
    assert [(r.partition, r.start, r.end) for r in plan.ranges(start, plan.latest(start))] == [(1, 0, 3)]


def test_missing_recreated_and_lost_are_named(admin: FakeAdmin) -> None:
    plan = planner(admin)
    start = plan.latest(plan.initial())
    admin.begin["a", 0] = 120
    admin.end["a", 0] = 130
    with pytest.raises(OffsetsLostError, match="offset 100 is needed next"):
        plan.latest(start)
    assert planner(admin, on_lost_offsets="earliest").latest(start).topics["a"].offsets == (130, 50)
    # What a run has logged is planned again by the next one, and the topic may be another by then.
    logged = planner(admin, on_lost_offsets="earliest").latest(start)
    admin.topics["a"] = Info("id-other", 2)
    with pytest.raises(TopicRecreatedError, match="id-other"):
        plan.latest(start)
    with pytest.raises(TopicRecreatedError, match="id-other"):
        planner(admin).ranges(start, logged)
    del admin.topics["a"]
    with pytest.raises(TopicNotFoundError, match="'a'"):
        plan.latest(start)


def test_a_truncated_topic_is_not_taken_for_an_idle_one(admin: FakeAdmin) -> None:
    plan = planner(admin)
    start = plan.latest(plan.initial())
    admin.end["b", 0] = 4
    with pytest.raises(OffsetsLostError, match="truncated"):
        plan.latest(start)


@pytest.mark.parametrize(("policy", "left"), [("earliest", [(120, 130)]), ("latest", [])])
def test_going_on_after_a_loss(admin: FakeAdmin, policy: str, left: list[tuple[int, int]]) -> None:
    plan = planner(admin, on_lost_offsets=policy)
    start = plan.latest(plan.initial())
    admin.begin["a", 0], admin.end["a", 0] = 120, 130
    end = plan.latest(start)
    assert [(r.start, r.end) for r in plan.ranges(start, end)] == left
    # The jump is logged, so that the next batch begins where this one ended.
    admin.end["a", 0] = 140
    assert [(r.start, r.end) for r in plan.ranges(end, plan.latest(end))] == [(130, 140)]


@pytest.mark.parametrize(("policy", "left"), [("earliest", [(2, 40)]), ("latest", [])])
def test_going_on_in_a_truncated_topic(admin: FakeAdmin, policy: str, left: list[tuple[int, int]]) -> None:
    plan = planner(admin, on_lost_offsets=policy)
    start = plan.latest(plan.initial())
    admin.begin["a", 0], admin.end["a", 0] = 2, 40
    end = plan.latest(start)
    assert end.topics["a"].offsets == (40, 50)
    assert [(r.start, r.end) for r in plan.ranges(start, end)] == left
    assert plan.latest(end) is end


def test_no_start_without_a_policy(admin: FakeAdmin) -> None:
    with pytest.raises(ConfigError, match="'b' is read with offset_reset 'none'"):
        planner(admin, starting={"a": "earliest", "b": "none"}).initial()
    start = planner(admin).latest(planner(admin).initial())
    admin.topics["c"] = Info("id-c", 1)
    with pytest.raises(ConfigError, match=r"'c' .* has no position in it to continue from.* new under a pattern"):
        planner(admin, starting={"a": "earliest", "b": "earliest", "c": "none"}).latest(start)


def test_repartition_topics_are_trimmed_once_confirmed(admin: FakeAdmin) -> None:
    plan = planner(admin, trimmed=frozenset({"b"}))
    plan.confirmed(plan.latest(plan.initial()))
    assert admin.deleted == {("b", 0): 10}


def test_a_driver_that_slept_through_a_rescale_trims_no_new_topic(admin: FakeAdmin) -> None:
    plan = planner(admin, trimmed=frozenset({"b"}))
    end = plan.latest(plan.initial())
    admin.topics["b"] = Info("another id", 1)
    plan.confirmed(end)
    assert admin.deleted == {}


def test_offsets_as_spark_logs_them(admin: FakeAdmin) -> None:
    at = planner(admin).initial()
    assert SourceOffsets.from_json(at.to_json()) == at
    end = planner(admin).latest(at)
    assert batch_digest(at, end) == batch_digest(SourceOffsets.from_json(at.to_json()), end) != batch_digest(end, end)


def test_global_tables_are_read_to_where_they_end_when_a_batch_is_planned(admin: FakeAdmin) -> None:
    admin.topics["g"] = Info("id-g", 2)
    admin.end |= {("g", 0): 7, ("g", 1): 3}
    plan = planner(admin, starting={"a": "earliest", "b": "earliest"}, global_topics=("g",))
    start = plan.initial()
    assert start.to_json().keys() == {"format", "topics"}
    first = plan.latest(start)
    assert first.global_topics["g"].offsets == (7, 3)
    assert SourceOffsets.from_json(first.to_json()) == first
    admin.end["g", 0] = 9
    assert plan.latest(first) == first
    admin.end["b", 0] = 11
    second = plan.latest(first)
    assert second.global_topics["g"].offsets == (9, 3)
    other = SourceOffsets(second.topics, first.global_topics)
    assert plan.ranges(first, second) == plan.ranges(first, other)
    assert batch_digest(first, second) != batch_digest(first, other)
    admin.topics["g"] = Info("another", 2)
    with pytest.raises(TopicRecreatedError, match="'g'"):
        plan.ranges(first, other)
    del admin.topics["g"]
    admin.end["b", 0] = 12
    with pytest.raises(TopicNotFoundError, match="g"):
        plan.latest(second)


def test_a_run_over_existing_input_ends_at_the_given_offsets(admin: FakeAdmin) -> None:
    plan = planner(admin, until={("a", 0): 60, ("a", 1): 500})
    plan.freeze()
    assert plan.latest(plan.initial()).topics["a"].offsets == (60, 50)


def test_only_the_first_batch_of_a_run_may_be_a_repeated_one(admin: FakeAdmin) -> None:
    def reader() -> KafkaStreamReader:
        made = KafkaStreamReader(b"", b"")
        made._planner_or_none = planner(admin)
        return made

    first = reader()
    start = first.initialOffset()
    end = first.latestOffset(start, ReadAllAvailable())
    assert not calls_every_task(first, start, end)
    second = reader()
    for _ in range(2):  # Spark may ask for the same batch again
        assert calls_every_task(second, start, end)
    admin.end["a", 0] = 110
    following = second.latestOffset(end, ReadAllAvailable())
    assert not calls_every_task(second, end, following)


def calls_every_task(reader: KafkaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> bool:
    return any(isinstance(one, PlannedCall) for part in reader.partitions(start, end) for one in part.planned)  # type: ignore[attr-defined]


def test_when_a_batch_was_planned_is_logged_and_is_no_input(admin: FakeAdmin) -> None:
    spec = SourceSpec(starting=dict.fromkeys(admin.topics, "earliest"))
    plan = BatchPlanner(admin, spec, read, now_ms=lambda: 77)
    start = plan.initial()
    end = plan.latest(start)
    assert (start.now_ms, end.now_ms) == (None, 77)
    assert SourceOffsets.from_json(end.to_json()) == end
    assert batch_digest(start, end) == batch_digest(start, replace(end, now_ms=78))
    assert plan.latest(end) is end, "time alone makes no micro-batch"


# --- Small ranges of a micro-batch share a reader, large ones do not.


def planned(*sizes: int) -> list[PlannedPartition]:
    return [PlannedRange("batch", "id", OffsetRange("t", number, 7, 7 + size)) for number, size in enumerate(sizes)]


def sizes_of(groups: list[tuple[PlannedPartition, ...]]) -> list[list[int]]:
    return [[one.offsets.end - one.offsets.start for one in group if isinstance(one, PlannedRange)] for group in groups]


def test_small_ranges_share_a_reader() -> None:
    assert sizes_of(together(planned(10, 20, 30))) == [[10, 20, 30]]


def test_a_reader_has_no_more_than_what_is_small_in_total() -> None:
    half = SMALL_RECORDS // 2
    assert sizes_of(together(planned(half, half, 1, SMALL_RECORDS, half))) == [
        [half, half],
        [1],
        [SMALL_RECORDS],
        [half],
    ]


def test_a_large_range_has_a_reader_of_its_own() -> None:
    large = 10 * SMALL_RECORDS
    assert sizes_of(together(planned(large, 1, large))) == [[large], [1], [large]]


def test_a_reader_waits_for_few_brokers_only() -> None:
    assert [len(group) for group in together(planned(*[1] * (MOST_TOGETHER + 1)))] == [MOST_TOGETHER, 1]


def test_a_call_of_every_task_needs_no_reader_of_its_own() -> None:
    call = PlannedCall("batch")
    (group,) = together([*planned(5), call])
    assert group[-1] is call
    assert together([call]) == [(call,)]
    assert together([]) == []


def test_large_ranges_are_dealt_out_among_the_readers_that_work_at_once() -> None:
    a, b = 10 * SMALL_RECORDS, 11 * SMALL_RECORDS
    left, right = planned(a, a, a, a), planned(b, b, b, b)
    assert sizes_of(together([*left, *right], readers=2)) == [[a, a, b, b], [a, a, b, b]], (
        "each has half of either topic"
    )
    assert sizes_of(together(left, readers=4)) == [[a]] * 4


def test_uneven_ranges_are_taken_by_whoever_is_ready() -> None:
    large, small = 10 * SMALL_RECORDS, 2 * SMALL_RECORDS
    assert sizes_of(together(planned(large, small, large, small), readers=2)) == [[large], [small], [large], [small]]


def test_dealing_neither_loses_a_range_nor_reads_one_twice() -> None:
    ranges = planned(*[SMALL_RECORDS + number for number in range(12)])
    hands = together(ranges, readers=3)
    assert len(hands) == 3
    dealt = [one.offsets.partition for hand in hands for one in hand if isinstance(one, PlannedRange)]
    assert sorted(dealt) == list(range(12))


# --- The clock of micro-batches is the system's, unless a drill steps it.

HOURS_MS = 2 * 3_600_000


@pytest.mark.parametrize(("text", "step"), [(None, 0), ("", 0), (str(HOURS_MS), HOURS_MS), (str(-HOURS_MS), -HOURS_MS)])
def test_the_clock_is_stepped_by_what_the_file_says_now(
    text: str | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "step"
    monkeypatch.setenv(STEP, str(file))
    if text is not None:
        file.write_text(text)
    before = int(time.time() * 1000)
    assert before + step <= now_ms() <= int(time.time() * 1000) + step


def test_without_the_variable_it_is_the_systems_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STEP, raising=False)
    before = int(time.time() * 1000)
    assert before <= now_ms() <= int(time.time() * 1000)
