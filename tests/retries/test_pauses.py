"""Pauses: recorded in Kafka, looked up by the planner, in force for one sub-topology or all."""

import pytest

from state.changelog import commits_topic, pauses_topic
from streams.application.pausing import parts
from streams.source.offsets import SourceOffsets
from streams.source.pauses import LOOK_MS, WHOLE, PauseWatch, pause_record, read_pauses
from streams.source.planner import BatchPlanner, SourceSpec
from streams.spark.ingest.query import PauseHold
from streams.spark.stopping import BatchInterruptedError
from streams.testing.simulation import SimulatedKafka


@pytest.fixture
def kafka():
    kafka = SimulatedKafka({"in": 1, "in-retry": 1})
    for time in (1_000, 1_500):
        kafka.append("in", b"k", b"v", time)
        kafka.append("in-retry", b"k", b"v", time)
    return kafka


def pause(kafka, name, since_ms):
    """Pauses a part of the application, or resumes it without a time."""
    kafka.create_topic(pauses_topic("app"), 1, "compact")
    kafka.append(pauses_topic("app"), *pause_record(name, since_ms), partition=0)


def planner(kafka, clock, **spec):
    source = SourceSpec(dict.fromkeys(["in", *spec.get("delays", ())], "earliest"), **spec)
    now = lambda: clock[0]  # noqa: E731
    return BatchPlanner(kafka, source, kafka.sample, None, now, paused=PauseWatch(kafka, "app", "in", now))


def test_a_paused_sub_topology_plans_nothing_until_it_is_resumed(kafka):
    clock = [10_000]
    plans = planner(kafka, clock, tick_ms=100)
    start = plans.initial()
    pause(kafka, "in", 9_000)
    assert plans.latest(start) == start, "neither records nor a tick"
    pause(kafka, "in", None)
    assert plans.latest(start) == start, "it looks once in a while"
    clock[0] += LOOK_MS
    assert plans.latest(start).topics["in"].offsets == (2,)


@pytest.mark.parametrize(("name", "paused"), [("in", True), (WHOLE, True), ("other", False)])
def test_a_pause_holds_the_one_it_names_or_all(kafka, name, paused):
    pause(kafka, name, 9_000)
    assert PauseWatch(kafka, "app", "in", lambda: 0)() is paused
    assert not PauseWatch(kafka, "another-app", "in", lambda: 0)()


def test_pauses_are_counted_from_the_first_one_that_holds(kafka):
    assert read_pauses(kafka, "app").since_ms == {}
    for name, since_ms in (("in", 5), ("other", 6), (WHOLE, 7), ("other", None)):
        pause(kafka, name, since_ms)
    pauses = read_pauses(kafka, "app")
    assert pauses.since_ms == {"in": 5, WHOLE: 7}
    assert (pauses.of("in"), pauses.of("other")) == (5, 7)


def test_a_planned_range_of_a_retry_topic_ends_before_the_first_record_that_is_not_due(kafka):
    clock = [1_999]
    plans = planner(kafka, clock, delays={"in-retry": 1_000})
    at = plans.initial()

    def offsets():
        nonlocal at
        at = plans.latest(at)
        return at.topics["in"].offsets, at.topics["in-retry"].offsets

    assert offsets() == ((2,), (0,))
    clock[0] = 2_000
    assert offsets() == ((2,), (1,))
    clock[0] = 2_499
    assert offsets() == ((2,), (1,))
    clock[0] = 2_500
    assert offsets() == ((2,), (2,))
    assert plans.latest(at) == at
    assert isinstance(at, SourceOffsets)


def test_retried_records_are_not_held_back_by_a_backlog():
    """Their time is that of the failure, later than all records of a backlog of old events."""
    kafka = SimulatedKafka({"in": 1, "in-retry": 1})
    for time in range(1_000):
        kafka.append("in", b"k", b"v", time)
    kafka.append("in-retry", b"k", b"v", 50_000)
    plans = planner(kafka, [60_000], delays={"in-retry": 1_000}, max_records=40)
    assert plans.latest(plans.initial()).topics["in-retry"].offsets == (1,)


def test_the_parts_of_an_application_are_known_by_their_commits():
    class Admin:
        def topic_names(self):
            sources = [
                "app-flights-repartition",
                commits_topic("app", "flights-ingest"),
                commits_topic("app", "x-ingest"),
            ]
            return ["in", pauses_topic("app"), commits_topic("app", "in"), "app-x-changelog", *sources]

    assert parts(Admin(), "app") == ["flights", "in", "x-ingest"], (
        "x-ingest is a topic's name, without an internal topic x"
    )
    assert parts(Admin(), "other") == []


class Gate:
    """A gate that is open, until it has been asked some times."""

    def __init__(self, times):
        self.left = times

    def enter(self):
        self.left -= 1
        if self.left < 0:
            raise BatchInterruptedError


@pytest.mark.parametrize(("name", "held"), [("flights", True), (WHOLE, True), ("flights-repartition", False)])
def test_a_batch_of_a_source_outside_kafka_waits_for_the_resume(kafka, name, held):
    pause(kafka, name, 9_000)
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            pause(kafka, name, None)

    hold = PauseHold(lambda: read_pauses(kafka, "app"), sleep)
    assert hold.holds("flights") is held
    hold.pass_when_resumed("flights", Gate(9))
    assert waited == ([LOOK_MS / 1000] * 3 if held else [])


def test_a_stop_ends_a_batch_that_is_held(kafka):
    pause(kafka, WHOLE, 9_000)
    with pytest.raises(BatchInterruptedError):
        PauseHold(lambda: read_pauses(kafka, "app"), lambda seconds: None).pass_when_resumed("flights", Gate(5))


def test_a_batch_that_was_resumed_while_the_query_stops_does_not_begin(kafka):
    with pytest.raises(BatchInterruptedError):
        PauseHold(lambda: read_pauses(kafka, "app"), lambda seconds: None).pass_when_resumed("flights", Gate(0))
