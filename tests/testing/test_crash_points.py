"""A task that dies anywhere in a commit changes nothing: no result is lost, none comes twice, state is whole."""

import random
from functools import cache

import pytest

from state.commit.crash_points import POINTS
from streams import (
    EmitStrategy,
    JoinWindows,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    agg,
)
from streams.testing import TopologyTestDriver


def program(persistent=True):
    """All kinds of stores, a re-key behind state, and a topic that is written and read by one sub-topology."""
    builder = StreamsBuilder(persistent=persistent)
    left, right, table = builder.stream("left"), builder.stream("right"), builder.table("table")
    counts = left.group_by_key().count(materialized=Materialized(name="counts", caching=False))
    counts.to_stream().to("counts")
    counts.to_stream().group_by(lambda count: f"n{count}").count(
        "by-count", Materialized(caching=False)
    ).to_stream().to("by-count")
    windows = TimeWindows.of_size_and_grace(20, 5)
    sums = left.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    sums.aggregate(total=agg.sum("v"), named="sums").to_stream().to("sums")
    sessions = right.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 5))
    sessions.count("sessions").suppress(Suppressed.until_window_closes(), "final").to_stream().to("sessions")
    near = JoinWindows.of_time_difference_and_grace(5, 5)
    left.left_join(right, lambda a, b: [a, b], near, StreamJoined(name="joined")).to("joined")
    right.join(table, lambda a, b: [a, b]).filter(lambda key, value: value[0]["v"] < 3).map_values(
        lambda value: {"v": value[0]["v"] + 10}
    ).to("right")
    return builder.build()


RESTORING = tuple(point for point in POINTS if point.startswith("restore_"))
ANYWHERE = tuple(point for point in POINTS if point not in RESTORING)
OUTPUTS = ("counts", "by-count", "sums", "sessions", "joined", "right")
STORES = ("counts", "by-count-store")


def inputs(seed):
    """Steps of one to three records."""
    drawn = random.Random(seed)

    def record(time):
        topic = drawn.choice(["left", "right", "table"])
        return topic, drawn.choice("abcd"), {"v": drawn.randrange(6)}, time + drawn.randrange(9)

    return [[record(time) for _ in range(drawn.randrange(1, 4))] for time in range(0, 90, 3)]


def played(seed, crash=None, persistent=True, **options):
    """After each step: the new records of each output topic, the rows of the stores, and how many crashes there were.

    Args:
        seed: Of the records.
        crash: `crash(driver, step)` may ask for a crash in the step.
        persistent: Whether the stores are.
        **options: Those of `TopologyTestDriver`.
    """
    with TopologyTestDriver(
        program(persistent), partitions=dict.fromkeys(("left", "right", "table"), 2), **options
    ) as driver:
        topics = {name: driver.create_output_topic(name) for name in OUTPUTS}
        for number, step in enumerate(inputs(seed)):
            if crash is not None:
                crash(driver, number)
            with driver.batch():
                for topic, key, value, time in step:
                    driver.create_input_topic(topic).pipe_input(key, value, time)
            outputs = {name: topic.read_records_to_list() for name, topic in topics.items()}
            rows = {name: sorted(map(str, driver.get_store(name).all())) for name in STORES}
            yield (outputs, rows), driver.crashes


@cache
def undisturbed(seed, tasks):
    steps = list(played(seed, tasks=tasks))
    assert steps[-1][1] == 0
    assert all(any(outputs[name] for (outputs, _), _ in steps) for name in OUTPUTS)
    return [step for step, _ in steps]


@pytest.mark.slow
@pytest.mark.parametrize("wipe", [False, True])
def test_once_at_each_point(wipe):
    """One point a step, and what each step has written and stored is compared at once.

    Nothing is wiped for the later points unless `wipe` asks for it, so that what a crash has damaged stays damaged.
    """
    points = [*RESTORING, *ANYWHERE]
    begin = len(inputs(1)) - len(points)

    def crash(driver, step):
        if step >= begin:
            point = points[step - begin]
            if point in RESTORING:
                # Only where something is missing is there something to restore.
                driver.crash_at("after_commit", wipe_state=True)
            driver.crash_at(point, wipe_state=wipe)

    crashes = 0
    for number, ((step, now), expected) in enumerate(zip(played(1, crash, tasks=1), undisturbed(1, 1), strict=True)):
        point = points[number - begin] if number >= begin else None
        assert now - crashes == (0 if point is None else 2 if point in RESTORING else 1), point
        assert step == expected, point
        crashes = now


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("persistent", "rocksdb"), [(True, True), (True, False), (False, True)])
def test_again_and_again_anywhere(seed, persistent, rocksdb):
    drawn = random.Random(seed)

    def crash(driver, step):
        if drawn.random() < 0.6:
            driver.crash_at(drawn.choice(ANYWHERE), drawn.choice([None, 0, 1]), wipe_state=drawn.random() < 0.3)
        if drawn.random() < 0.1:
            driver.restart(wipe_state=drawn.random() < 0.5)

    steps = list(played(seed, crash, persistent, rocksdb=rocksdb, tasks=2))
    assert steps[-1][1] > 5
    assert [step for step, _ in steps] == undisturbed(seed, 2)


def test_an_unknown_point_is_refused():
    with TopologyTestDriver(program()) as driver, pytest.raises(ValueError, match="'nowhere' is not a crash point"):
        driver.crash_at("nowhere")


class Ticker(Processor):
    def init(self, ctx):
        super().init(ctx)
        ctx.schedule(100, "wall_clock", self.tick)

    def process(self, record):
        pass

    def tick(self, time):
        ticks = self.ctx.state["ticks"] = self.ctx.state.get("ticks", 0) + 1
        self.ctx.forward(Record("tick", ticks, time))


@pytest.mark.parametrize("point", ["process_done", "after_commit", "store_applied"])
def test_in_a_step_without_records(point):
    builder = StreamsBuilder()
    builder.stream("in").process(Ticker).to("out")
    with TopologyTestDriver(builder.build(), partitions={"in": 2}) as driver:
        for _ in range(3):
            driver.crash_at(point, task=1)
            driver.advance_wall_clock_time(100)
        assert driver.crashes == 3
        assert sorted(driver.create_output_topic("out").read_values_to_list()) == [1, 1, 2, 2, 3, 3]
