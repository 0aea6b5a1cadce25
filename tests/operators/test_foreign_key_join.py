"""Foreign-key joins over several tasks: whatever the steps and restarts, the last result is that of the last rows."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streams import Consumed, Int64Serde, Materialized, StreamsBuilder
from streams.testing import TopologyTestDriver

changes = st.lists(
    st.tuples(
        st.sampled_from(["orders", "orders", "users"]),
        st.integers(0, 5),
        st.one_of(st.none(), st.tuples(st.one_of(st.none(), st.integers(0, 5)), st.integers(0, 9))),
        st.sampled_from(["", "", "step", "restart"]),
    ),
    max_size=40,
)


def last_rows(rows, left):
    tables = {"orders": {}, "users": {}}
    for topic, key, value, _ in rows:
        tables[topic][key] = value
    found = {}
    for key, order in tables["orders"].items():
        user = None if order is None or order[0] is None else tables["users"].get(order[0])
        if order is not None and (left or user is not None):
            found[str(key)] = [list(order), None if user is None else list(user)]
    return found


def built(left, caching):
    builder = StreamsBuilder()
    how = Materialized(caching=caching)
    orders = builder.table("orders", materialized=how)
    users = builder.table("users", Consumed(key_serde=Int64Serde()), how)
    join = orders.left_join if left else orders.join
    table = join(users, lambda a, b: [a, b], lambda order: order[0], named="fk", materialized=how)
    table.filter(lambda v: True).to_stream().to("out")
    return builder.build()


@settings(max_examples=40, deadline=None)
@given(changes, st.booleans(), st.booleans(), st.integers(1, 3))
def test_last_result(rows, left, caching, tasks):
    topology = built(left, caching)
    with TopologyTestDriver(topology, partitions={"orders": 2, "users": 3}, tasks=tasks) as driver:
        topics = {"orders": driver.create_input_topic("orders"), "users": driver.create_input_topic("users")}
        step = driver.batch()
        step.__enter__()
        for at, (topic, key, value, mark) in enumerate(rows):
            topics[topic].pipe_input(str(key) if topic == "orders" else key, value, at)
            if mark:
                step.__exit__(None, None, None)
                if mark == "restart":
                    driver.restart()
                step = driver.batch()
                step.__enter__()
        step.__exit__(None, None, None)
        found = driver.create_output_topic("out").read_key_values_to_map()
    assert {key: value for key, value in found.items() if value is not None} == last_rows(rows, left)


def test_its_topics_and_sub_topologies():
    topology = built(left=True, caching=True)
    text = topology.describe()
    assert text.count("Sub-topology") == 2
    for topic in ("fk-subscription-repartition", "fk-response-repartition"):
        assert text.count(f"(topic: {topic})") == text.count(f"(topics: [{topic}])") == 1
    assert "Processor: fk-subscription-processor (stores: [fk-subscription-store, users-STATE-STORE])" in text
