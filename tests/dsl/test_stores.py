"""`Stores`: Kafka Streams' names and shapes of arguments, and what does not fit."""

from datetime import timedelta

import pytest

from state.stores.spec import StoreKind
from streams import (
    Int64Serde,
    Joined,
    JoinWindows,
    Materialized,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    Suppressed,
    TimeWindows,
    TopologyError,
)
from streams.testing import TopologyTestDriver
from streams.topology.diff import compare, worst
from streams.topology.manifest import manifest

KEY, VALUE = StringSerde(), Int64Serde()
HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("method", "kind", "persistent"),
    [
        ("key_value_store", StoreKind.KEY_VALUE, True),
        ("persistent_key_value_store", StoreKind.KEY_VALUE, True),
        ("in_memory_key_value_store", StoreKind.KEY_VALUE, False),
        ("timestamped_key_value_store", StoreKind.TIMESTAMPED_KEY_VALUE, True),
        ("persistent_timestamped_key_value_store", StoreKind.TIMESTAMPED_KEY_VALUE, True),
    ],
)
def test_a_key_value_store_takes_two_serdes(method, kind, persistent):
    made = getattr(Stores, method)("s", KEY, VALUE)
    assert (made.name, made.spec.kind, made.spec.persistent) == ("s", kind, persistent)
    assert (made.key_serde, made.value_serde) == (KEY, VALUE)
    assert made == getattr(Stores, method)("s", value_serde=VALUE, key_serde=KEY)


@pytest.mark.parametrize(
    ("method", "kind", "persistent"),
    [
        ("window_store", StoreKind.WINDOW, True),
        ("persistent_window_store", StoreKind.WINDOW, True),
        ("in_memory_window_store", StoreKind.WINDOW, False),
        ("timestamped_window_store", StoreKind.TIMESTAMPED_WINDOW, True),
        ("persistent_timestamped_window_store", StoreKind.TIMESTAMPED_WINDOW, True),
        ("session_store", StoreKind.SESSION, True),
        ("persistent_session_store", StoreKind.SESSION, True),
        ("in_memory_session_store", StoreKind.SESSION, False),
        ("versioned_key_value_store", StoreKind.VERSIONED, True),
        ("versioned_store", StoreKind.VERSIONED, True),
        ("persistent_versioned_key_value_store", StoreKind.VERSIONED, True),
    ],
)
@pytest.mark.parametrize("retention", [HOUR, HOUR_MS])
def test_a_store_with_a_retention_takes_it_as_a_duration_or_in_milliseconds(method, kind, persistent, retention):
    name = "history_retention" if kind is StoreKind.VERSIONED else "retention"
    made = getattr(Stores, method)("s", KEY, VALUE, **{name: retention})
    assert (made.spec.kind, made.spec.persistent, made.spec.retention_ms) == (kind, persistent, HOUR_MS)
    assert (made.key_serde, made.value_serde) == (KEY, VALUE)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Stores.window_store(
            "s", retention=HOUR, window_size=300_000, retain_duplicates=True, key_serde=KEY, value_serde=VALUE
        ),
        lambda: Stores.window_store("s", KEY, VALUE, retention=HOUR, retain_duplicates=True),
    ],
)
def test_a_window_store_takes_a_window_size_and_duplicates(made):
    assert made() == Stores.window_store("s", KEY, VALUE, retention=HOUR_MS, retain_duplicates=True)
    assert made().spec.retain_duplicates


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda: Stores.key_value_store("s"),
            r"lacks key_serde, value_serde: write Stores.key_value_store\('s', key_serde, value_serde\)\.",
        ),
        (lambda: Stores.session_store("s", KEY, VALUE), r"Stores.session_store\('s', ...\) lacks retention"),
        (lambda: Stores.versioned_store("s", KEY, VALUE), r"lacks history_retention"),
        (
            lambda: Stores.versioned_store("s", KEY, VALUE, HOUR, HOUR),
            r"lacks history_retention: write Stores.versioned_key_value_store\('s', key_serde, value_serde, history_retention=",
        ),
        (
            lambda: Stores.session_store("s", KEY, VALUE, HOUR, retention=HOUR),
            r"takes only its name and two serdes without a keyword",
        ),
        (
            lambda: Stores.persistent_window_store("s", HOUR, HOUR, False),
            r"lacks retention: .*write Materialized\('s', retention=\.\.\.\)",
        ),
        (
            lambda: Stores.window_store("s", KEY, VALUE, retention="1h"),
            r"retention of the store 's' must be a timedelta or whole milliseconds \(int\), not '1h'",
        ),
        (
            lambda: Stores.window_store("s", KEY, VALUE, retention=1000, window_size=2000),
            r"less than its window size, 2000 ms",
        ),
        (lambda: Stores.key_value_store("s", HOUR, VALUE), r"key_serde of the store 's' takes a serde such as"),
        (
            lambda: Stores.session_store("s", KEY, VALUE, retention=-5),
            r"retention of the store 's' must not be negative",
        ),
        (
            lambda: Stores.window_store("s", KEY, StringSerde, retention=HOUR),
            r"takes an object, not the class StringSerde",
        ),
    ],
)
def test_what_does_not_fit_is_said(made, said):
    with pytest.raises(TopologyError, match=said):
        made()


# --- Where stores lie: chosen for the whole topology, and per store; the results are the same.


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


@pytest.mark.slow
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
