"""Event time that goes on with the wall clock: what it closes, when it does not move, what survives."""

from functools import cached_property

import pytest

from streams import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.model.record import Record, Windowed
from streams.operators.processor import Processor
from streams.testing import TopologyTestDriver

ON_CLOSE = EmitStrategy.on_window_close()
TUMBLING = TimeWindows.of_size_and_grace(100, 20)
HOPPING = TimeWindows.of_size_and_grace(100, 20).advance_by(50)
SLIDING = SlidingWindows.of_time_difference_and_grace(100, 20)
SESSIONS = SessionWindows.of_inactivity_gap_and_grace(100, 20)
JOINED = JoinWindows.of_time_difference_and_grace(100, 20)


def pair(left, right):
    return [left, right]


def windowed(builder, windows):
    return builder.stream("in").group_by_key().windowed_by(windows)


def final(windows):
    return lambda builder: windowed(builder, windows).emit_strategy(ON_CLOSE).count().to_stream()


def suppressed(windows):
    return lambda builder: windowed(builder, windows).count().suppress(Suppressed.until_window_closes()).to_stream()


def held_for_a_time(builder):
    table = builder.stream("in").group_by_key().count()
    return table.suppress(Suppressed.until_time_limit(120)).to_stream()


def left_join(builder):
    return builder.stream("in").left_join(builder.stream("other"), pair, JOINED)


def outer_join(builder):
    return builder.stream("other").outer_join(builder.stream("in"), lambda left, right: [right, left], JOINED)


def self_join(builder):
    stream = builder.stream("in")
    # No record meets itself, so that one alone is unmatched.
    return stream.left_join(stream, pair, JOINED.before(-1))


def join_with_grace(builder):
    table = builder.table("table", materialized=Materialized(name="table", history_retention=1000))
    return builder.stream("in").left_join(table, pair, Joined(grace=120))


def as_of(builder):
    return builder.stream("in").as_of_join(builder.stream("other"), pair, within=10, grace=119, left=True)


def expiring(builder):
    stream = builder.stream("in").to_table(Materialized(name="rows", ttl=120)).to_stream()
    return stream.filter(lambda value: value is None)


class Ticking(Processor):
    """Forwards the times at which it is called."""

    def init(self, ctx):
        super().init(ctx)
        ctx.schedule(120, "stream_time", lambda time: time and ctx.forward(Record("a", ctx.stream_time, time)))

    def process(self, record):
        pass


def ticking(builder):
    return builder.stream("in").process(Ticking)


# Each with what comes when time has moved on from 0 to 120 or 121, and the time of that.
KINDS = {
    "tumbling": (final(TUMBLING), ("a", 0, 100), 1, 0, 120),
    "hopping": (final(HOPPING), ("a", 0, 100), 1, 0, 120),
    "sliding": (final(SLIDING), ("a", 0, 100), 1, 0, 121),
    "sessions": (final(SESSIONS), ("a", 0, 0), 1, 0, 121),
    "tumbling suppressed": (suppressed(TUMBLING), ("a", 0, 100), 1, 0, 120),
    "sliding suppressed": (suppressed(SLIDING), ("a", 0, 100), 1, 0, 121),
    "sessions suppressed": (suppressed(SESSIONS), ("a", 0, 0), 1, 0, 121),
    "suppressed for a time": (held_for_a_time, "a", 1, 0, 120),
    "left join": (left_join, "a", ["x", None], 0, 121),
    "outer join": (outer_join, "a", ["x", None], 0, 121),
    "self-join": (self_join, "a", ["x", None], 0, 121),
    "table join with grace": (join_with_grace, "a", ["x", None], 0, 120),
    "as-of join": (as_of, "a", ["x", None], 0, 120),
    "rows that expire": (expiring, "a", None, 120, 120),
    "stream-time punctuation": (ticking, "a", 120, 120, 120),
}
# Compat mode closes the first two a millisecond earlier, and makes an inner join of the third.
ONLY_STRICT = ("sliding suppressed", "sessions suppressed", "self-join")


def start(build, **settings):
    builder = StreamsBuilder(optimize=True)  # a self-join is a node of its own
    build(builder).to("out")
    return Driver(builder.build(), **settings)


class Driver(TopologyTestDriver):
    @cached_property
    def out(self):
        return self.create_output_topic("out")


def rows(driver):
    """Those that are new."""
    return [(place(one.key), one.value, one.timestamp) for one in driver.out.read_records_to_list()]


def place(key):
    return (key.key, *key.window) if isinstance(key, Windowed) else key


def kinds():
    return [
        (mode, name) for mode in ("strict", "compat") for name in KINDS if mode == "strict" or name not in ONLY_STRICT
    ]


@pytest.mark.parametrize(("mode", "name"), kinds())
def test_everything_that_time_drives_goes_on(mode, name):
    build, key, value, time, after = KINDS[name]
    with start(build, mode=mode, idle_timeout_ms=50) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(60)
        driver.advance_wall_clock_time(after - 61)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)
        assert rows(driver) == [(key, value, time)]
        driver.advance_wall_clock_time(10)
        assert rows(driver) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_with_stores_on_disk_that_are_restored(name):
    build, key, value, time, after = KINDS[name]
    with start(build, idle_timeout_ms=50, rocksdb=True) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(after - 50)
        driver.restart()
        driver.advance_wall_clock_time(0)
        assert rows(driver) == []
        driver.advance_wall_clock_time(50)
        assert rows(driver) == [(key, value, time)]


@pytest.mark.parametrize("name", KINDS)
def test_off_by_default(name):
    with start(KINDS[name][0]) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(10_000)
        assert rows(driver) == []
        (marker,) = driver._queries[0].markers
        assert "idle" not in marker.operator_state["task"]


def test_what_comes_behind_the_moved_time_is_late():
    def build(builder):
        counts = windowed(builder, TUMBLING).emit_strategy(ON_CLOSE).count(named="counts")
        counts.dropped().to("late")
        return counts.to_stream()

    with start(build, idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "x", 90)
        driver.advance_wall_clock_time(30)
        assert rows(driver) == []
        driver.advance_wall_clock_time(30)
        assert rows(driver) == [(("a", 0, 100), 1, 90)]
        topic.pipe_input("a", "y", 95)
        topic.pipe_input("a", "z", 149)
        assert driver.dropped("late") == 1
        (late,) = driver.create_output_topic("late").read_records_to_list()
        assert (late.value, dict(late.headers)["__streams.dropped.reason"]) == ("y", b"late")
        driver.advance_wall_clock_time(69)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)
        assert rows(driver) == [(("a", 100, 200), 1, 149)]


def test_tables_of_updates_and_duplicates_forget_as_well():
    def build(builder):
        once = builder.stream("in").deduplicate(40, grace=20)
        counts = once.group_by_key().windowed_by(TUMBLING).count()
        return counts.to_stream()

    with start(build, idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, 50)
        driver.advance_wall_clock_time(100)
        topic.pipe_input("a", 2, 129)
        assert driver.dropped("late") == 1
        topic.pipe_input("a", 3, 130)
        assert driver.dropped("late") == 1
        assert rows(driver) == [(("a", 0, 100), 1, 50), (("a", 100, 200), 1, 130)]


def test_built_in_aggregates_over_columns_close_their_windows():
    with start(lambda builder: windowed(builder, TUMBLING).count().to_stream(), idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", 1, 50)
        driver.advance_wall_clock_time(70)
        topic.pipe_input("b", 1, 60)
        assert driver.dropped("late") == 1


def test_a_task_is_not_idle_while_it_has_records():
    with start(final(TUMBLING), idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        for value in range(20):
            topic.pipe_input("a", value, 10)
            driver.advance_wall_clock_time(49)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)  # 50 ms after the last record
        driver.advance_wall_clock_time(59)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)
        assert rows(driver) == [(("a", 0, 100), 20, 10)]


def test_only_the_task_without_records_moves_on():
    with start(final(TUMBLING), tasks=8, partitions={"in": 8}, idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "x", 10)
        topic.pipe_input("c", "x", 10)  # another task's
        for value in range(5):
            driver.advance_wall_clock_time(40)
            topic.pipe_input("c", value, 10)
        assert rows(driver) == [(("a", 0, 100), 1, 10)]


def test_a_task_that_never_saw_a_record_has_nothing_to_close():
    with start(ticking, tasks=2, idle_timeout_ms=50) as driver:
        driver.advance_wall_clock_time(100)
        driver.advance_wall_clock_time(1000)
        assert rows(driver) == []
        driver.create_input_topic("in").pipe_input("a", "x", 7)
        assert rows(driver) == [("a", 7, 7)]
        driver.advance_wall_clock_time(50)
        driver.advance_wall_clock_time(63)
        assert rows(driver) == [("a", 120, 120)]


@pytest.mark.parametrize("name", sorted(KINDS.keys() - {"stream-time punctuation"}))
def test_a_new_task_that_takes_over_from_tasks_without_records_closes_what_it_has(name):
    build, key, value, time, after = KINDS[name]
    with start(build, tasks=3, idle_timeout_ms=50) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(10)
        driver.rescale(2)
        driver.advance_wall_clock_time(0)  # the first step after it
        driver.rescale(3)
        driver.advance_wall_clock_time(0)
        driver.advance_wall_clock_time(after - 1)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)
        assert rows(driver) == [(key, value, time)]


def test_until_then_no_record_is_late_in_it():
    with start(final(TUMBLING), tasks=3, idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "x", 1000)
        driver.rescale(2)
        for key in "abcdef":
            topic.pipe_input(key, "x", 10)
        assert driver.dropped("late") == 0


def test_time_in_which_the_application_does_not_run_is_no_idleness():
    with start(final(TUMBLING), idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(70)
        driver.restart()
        driver.advance_wall_clock_time(100_000)  # the first step after it
        driver.advance_wall_clock_time(49)
        assert rows(driver) == []
        driver.advance_wall_clock_time(1)
        assert rows(driver) == [(("a", 0, 100), 1, 0)]  # 70 before the restart, 50 after it
        driver.restart()
        topic.pipe_input("a", "y", 99)
        assert driver.dropped("late") == 1


@pytest.mark.parametrize("name", KINDS)
def test_a_step_that_fails_and_is_repeated_gives_the_same(name):
    build, key, value, time, after = KINDS[name]
    broken = []

    def fail_once(key, value):
        if broken:
            raise RuntimeError(broken.pop())

    with start(lambda builder: build(builder).peek(fail_once), idle_timeout_ms=50) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(60)
        broken.append("once")
        with pytest.raises(Exception, match="once"):
            driver.advance_wall_clock_time(after - 60)
        assert rows(driver) == []
        driver.advance_wall_clock_time(0)
        driver.advance_wall_clock_time(0)
        assert rows(driver) == [(key, value, time)]


LONG = TimeWindows.of_size_with_no_grace(1000)
WIDE = JoinWindows.of_time_difference_with_no_grace(1000)


def table_join(builder):
    table = builder.table("table", materialized=Materialized(name="table", history_retention=2000))
    return builder.stream("in").left_join(table, pair, Joined(grace=1000))


HOLDERS = {
    "tumbling": final(LONG),
    "sliding": final(SlidingWindows.of_time_difference_with_no_grace(1000)),
    "sessions": final(SessionWindows.of_inactivity_gap_and_grace(1000, 0)),
    "suppressed": suppressed(LONG),
    "suppressed for a time": lambda builder: (
        builder.stream("in").group_by_key().count().suppress(Suppressed.until_time_limit(1000)).to_stream()
    ),
    "left join": lambda builder: builder.stream("in").left_join(builder.stream("other"), pair, WIDE),
    "outer join": lambda builder: builder.stream("other").outer_join(builder.stream("in"), pair, WIDE),
    "self-join": lambda builder: (stream := builder.stream("in")).left_join(stream, pair, WIDE.before(-1)),
    "table join with grace": table_join,
    "as-of join": lambda builder: builder.stream("in").as_of_join(
        builder.stream("other"), pair, within=10, grace=1000, left=True
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [pytest.param(20, marks=pytest.mark.long), 70, pytest.param(130, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", HOLDERS)
def test_nothing_overtakes_what_an_operator_above_holds_back(name, step):
    """What is emitted long after its time is counted anew in short windows: their own time has to wait for it."""

    def build(builder):
        again = HOLDERS[name](builder).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
        return again.count().suppress(Suppressed.until_window_closes()).to_stream()

    with start(build, idle_timeout_ms=50) as driver:
        topic = driver.create_input_topic("in")
        for key, time in (("a", 905), ("b", 1005), ("c", 1015)):
            topic.pipe_input(key, "x", time)
        for _ in range(3000 // step):
            driver.advance_wall_clock_time(step)
        found = [(getattr(key[0], "key", key[0]), key[1:], time) for key, _, time in rows(driver)]
        assert found == [("a", (900, 910), 905), ("b", (1000, 1010), 1005), ("c", (1010, 1020), 1015)]
        assert driver.dropped("late") == 0


def test_behind_a_repartition_topic_only_records_move_time():
    """Silence there may mean that the step before is busy, or holds back what is older."""

    def build(builder):
        return final_of(builder.stream("in").repartition())

    def final_of(stream):
        return stream.group_by_key().windowed_by(TUMBLING).emit_strategy(ON_CLOSE).count().to_stream()

    with start(build, idle_timeout_ms=50) as driver:
        driver.create_input_topic("in").pipe_input("a", "x", 0)
        driver.advance_wall_clock_time(10_000)
        driver.advance_wall_clock_time(10_000)
        assert rows(driver) == []


class Holding(Processor):
    """Keeps records of the user's own kind until stream time is 100 past them."""

    def process(self, record):
        held = self.ctx.state.setdefault("held", [])
        held.append([record.key, record.value, record.timestamp])
        self.ctx.state["time"] = max(self.ctx.state.get("time", 0), record.timestamp)

    def advance(self, elapsed_ms, limit):
        self.ctx.state["time"] = time = self.ctx.state.get("time", 0) + elapsed_ms
        held = self.ctx.state.get("held", [])
        self.ctx.state["held"] = [one for one in held if one[2] + 100 > time]
        for one in held:
            if one[2] + 100 <= time:
                self.ctx.forward(Record(*one))
        return min([limit, *(one[2] for one in self.ctx.state["held"])])


@pytest.mark.parametrize("process", ["process", "process_values"])
def test_processors_of_ones_own_can_join_in(process):
    def build(builder):
        held = getattr(builder.stream("in"), process)(Holding)
        return held.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count().to_stream()

    with start(build, idle_timeout_ms=10) as driver:
        topic = driver.create_input_topic("in")
        for time in (0, 15, 30):
            topic.pipe_input("a", "x", time)
        for _ in range(15):
            driver.advance_wall_clock_time(10)
        assert [row[0][1:] for row in rows(driver)] == [(0, 10), (10, 20), (30, 40)]
        assert driver.dropped("late") == 0
