"""Keys that are made anew in each attempt: refused where they choose the task, safe behind a repartition and at a sink."""

import itertools

import pytest

from state.commit.crash_points import POINTS
from state.errors import RoutingMismatchError
from streams import StreamsBuilder
from streams.testing import TopologyTestDriver

RECORDS = 12
COMMITTED = POINTS[POINTS.index("after_commit") :]


class Changing:
    """Another key at every call, as of a random number: but of few, so that keys meet."""

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, key, value):
        return f"k{next(self.calls) * 7 % 5}"


def run(build, point, task=0):
    """All values of the topic `out`, after a crash in a micro-batch of several records, over two partitions and three tasks."""
    builder = StreamsBuilder()
    build(builder.stream("in").select_key(Changing()))
    with TopologyTestDriver(builder.build(), partitions={"in": 2}, tasks=3) as driver:
        topic = driver.create_input_topic("in")
        driver.crash_at(point, task=task)
        with driver.batch():
            for number in range(RECORDS):
                topic.pipe_input(f"s{number}", number, timestamp=number, partition=number % 2)
        return driver.create_output_topic("out").read_values_to_list(), driver.crashes


def counted(stream):
    stream.group_by_key().count().to_stream().to("out")


@pytest.mark.parametrize("point", COMMITTED)
def test_where_such_a_key_chooses_the_task_the_repeated_step_is_refused(point):
    with pytest.raises(RoutingMismatchError, match=r"KSTREAM-KEY-SELECT-in.*repartition\(\)"):
        run(counted, point)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("restore_halfway", "restore_read")])
def test_behind_a_repartition_each_record_counts_once(point):
    def build(stream):
        stream.repartition().group_by_key().aggregate(lambda: [], lambda key, value, all: [*all, value]).to_stream().to(
            "out"
        )

    values, crashes = run(build, point)
    assert crashes == 1
    assert sorted(number for value in values for number in value) == list(range(RECORDS))


# There is no state: so nothing is restored, and nothing of it sent.
STATELESS = [point for point in POINTS if point not in ("restore_halfway", "restore_read", "changelog_half_sent")]


@pytest.mark.parametrize("point", STATELESS)
def test_what_only_goes_to_a_topic_is_written_once(point):
    values, crashes = run(lambda stream: stream.to("out"), point)
    assert crashes == 1
    assert sorted(values) == list(range(RECORDS))


@pytest.mark.parametrize("fails_first", [True, False])
def test_a_function_that_fails_in_one_attempt_alone_is_found_out(fails_first):
    """Otherwise the record would be a dead letter by the attempt of one task, and a result by that of another."""
    attempts = []

    def pipe_all(driver, topic):
        with driver.batch():
            for number in range(RECORDS):
                topic.pipe_input("s2", number, timestamp=number)

    def keyed(key, value):
        if value == 0:
            attempts.append(value)
            if (len(attempts) == 1) == fails_first:
                raise ConnectionError("the service that knows the key is away")
        return f"k{value % 5}"

    builder = StreamsBuilder()
    counted(builder.stream("in").select_key(keyed))
    with TopologyTestDriver(builder.build(), tasks=3, processing="dlq", dead_letter_topic="dead") as driver:
        topic = driver.create_input_topic("in")
        driver.crash_at("after_commit", task=1)
        with pytest.raises(RoutingMismatchError):
            pipe_all(driver, topic)
        assert len(attempts) > 1
        assert driver.crashes == 1
