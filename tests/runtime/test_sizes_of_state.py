"""State that grows beyond what one Kafka record holds: told by store and key, or by operator, before anything is sent."""

import pytest

from streams import Materialized, Processor, SessionWindows, StreamsBuilder, TimeWindows
from streams.engine.graph.step_context import check_operator_state
from streams.errors import OperatorStateError, RecordFailedError
from streams.testing import TopologyTestDriver

LIMIT = 2_000


def growing_list(kind, caching):
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    store = Materialized(name="s", caching=caching)
    if kind == "windows":
        grouped = grouped.windowed_by(TimeWindows.of_size_with_no_grace(1_000))
    if kind == "sessions":
        grouped = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(1_000))
        table = grouped.aggregate(list, lambda v, agg: [*agg, v], lambda k, a, b: a + b, materialized=store)
    else:
        table = grouped.aggregate(list, lambda v, agg: [*agg, v], materialized=store)
    table.to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize("kind", ["table", "windows", "sessions"])
@pytest.mark.parametrize("policy", ["fail", "skip", "dlq"])
def test_a_row_that_its_changelog_does_not_take(policy, kind, caching):
    settings = {"processing": policy, "dead_letter_topic": "dead", "max_message_bytes": LIMIT}
    with TopologyTestDriver(growing_list(kind, caching), **settings) as driver:
        topic = driver.create_input_topic("in")
        topic.pipe_input("k", "x" * 1_000, 1)
        if policy == "fail":
            with pytest.raises(
                RecordFailedError, match=r"key b'k' for the changelog 'test-s-changelog' has \d+ bytes"
            ) as caught:
                topic.pipe_input("k", "x" * 1_000, 2)
            assert "max.message.bytes" in str(caught.value)
            return
        topic.pipe_input("k", "x" * 1_000, 2)
        topic.pipe_input("other", "x", 3)
        assert driver.create_output_topic("out").read_values_to_list() == [["x" * 1_000], ["x"]], "what was there stays"
        assert driver.dropped("processing") == 1
        assert len(driver.create_output_topic("dead").read_records_to_list()) == (policy == "dlq")


def test_the_changelogs_own_limit_counts():
    configs = {"test-s-changelog": {"max.message.bytes": "500"}}
    with TopologyTestDriver(growing_list("table", False), topic_configs=configs) as driver:
        pipe = driver.create_input_topic("in").pipe_input
        with pytest.raises(RecordFailedError, match=r"'test-s-changelog' has 51\d bytes, 379 fit"):
            pipe("k", "x" * 500, 1)


def test_a_store_without_a_changelog_has_no_limit():
    builder = StreamsBuilder()
    store = Materialized(name="s", caching=False, logging=False)
    builder.stream("in").group_by_key().aggregate(list, lambda v, agg: [*agg, v], materialized=store)
    with TopologyTestDriver(builder.build(), max_message_bytes=LIMIT) as driver:
        driver.create_input_topic("in").pipe_input("k", "x" * LIMIT, 1)
        assert driver.get_store("s").get("k").value == ["x" * LIMIT]


def test_operators_that_keep_too_much_are_named():
    class Greedy(Processor):
        def process(self, record):
            self.ctx.state.setdefault("seen", []).append(record.value)

    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named="small")
    builder.stream("in2").process(Greedy, named="greedy")
    with TopologyTestDriver(builder.build(), max_message_bytes=LIMIT) as driver:
        topic = driver.create_input_topic("in2")
        topic.pipe_input("k", "x" * 1_000, 1)
        with pytest.raises(
            OperatorStateError, match=r"operator 'greedy' of task \d_0 keep 20\d\d bytes .* takes 1800: .* store"
        ):
            topic.pipe_input("k", "x" * 1_000, 2)


def test_state_that_is_not_json_is_named():
    with pytest.raises(
        OperatorStateError, match=r"operator 'odd' of task 0_1 keeps something in ctx\.state that is not JSON"
    ):
        check_operator_state({"nodes": {"good": {"a": 1}, "odd": {"b": object()}}}, "0_1", 1_000)


def test_a_function_that_fails_in_a_session_leaves_the_session_as_it_was():
    def add(value, total):
        return total + 10 // value

    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(1_000))
    store = Materialized(name="s", caching=False)
    table = grouped.aggregate(lambda: 0, add, lambda key, one, other: one + other, materialized=store)
    table.to_stream().filter(lambda key, value: value is not None).map_values(lambda value: value).to("out")
    with TopologyTestDriver(builder.build(), processing="skip") as driver:
        for timestamp, value in enumerate((1, 0, 2)):
            driver.create_input_topic("in").pipe_input("k", value, timestamp)
        assert driver.create_output_topic("out").read_values_to_list() == [10, 15]
