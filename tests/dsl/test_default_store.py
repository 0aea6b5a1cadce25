"""Where stores lie: chosen for the whole topology, and per store; the results are the same."""

import pytest

from streams import (
    Joined,
    JoinWindows,
    Materialized,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
)
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.manifest import manifest


def built(persistent):
    builder = StreamsBuilder(persistent=persistent)
    stream, other = builder.stream("in"), builder.stream("other")
    counts = stream.group_by_key().count(materialized=Materialized(name="counts"))
    counts.suppress(Suppressed.until_time_limit(5), "waiting").to_stream().to("counts")
    windowed = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(materialized=Materialized(name="on-disk", persistent=True))
    stream.deduplicate(10, named="once").to("once")
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    stream.left_join(other, lambda a, b: [a, b], windows, StreamJoined(name="joined")).to("joined")
    table = builder.table("table", materialized=Materialized(name="versions", history_retention=100))
    stream.join(table, lambda a, b: [a, b], Joined(grace=5, name="as-of")).to("as-of")
    builder.table("rows", materialized=Materialized(name="in-memory", persistent=False))
    builder.global_table("names", materialized=Materialized(name="names"))
    builder.add_state_store(Stores.key_value_store("mine", StringSerde(), StringSerde()))
    return builder.build()


@pytest.mark.parametrize("persistent", [True, False])
def test_all_stores_that_say_nothing_follow_the_topology(persistent):
    topology = built(persistent)
    specs = {name: node.spec.persistent for name, node in topology.stores.items()}
    assert (specs.pop("on-disk"), specs.pop("in-memory"), specs.pop("mine")) == (True, False, True)
    assert len(specs) >= 9
    assert set(specs.values()) == {persistent}
    assert topology.global_tables["names"].store.spec.persistent is persistent


def test_results_and_restores_are_the_same():
    found = []
    for persistent in (True, False):
        with TopologyTestDriver(built(persistent), rocksdb=True) as driver:
            for time in (1, 7, 20, 15, 40):
                for topic in ("table", "in", "other"):
                    driver.create_input_topic(topic).pipe_input("k", time, time)
                driver.restart(wipe_state=persistent)
            found.append(
                [driver.create_output_topic(t).read_records_to_list() for t in ("counts", "once", "joined", "as-of")]
            )
    assert found[0] == found[1]
    assert all(found[0])


def test_moved_stores_are_reported():
    changes = compare(manifest(built(True)), built(False))
    assert any("into memory" in change.says for change in changes)
    assert worst(changes).value != "loses state"
