"""What a table passes on is what it is: no update is lost, told twice, or left behind, whatever lies in a cache meanwhile.

Two laws that need no model. A table grouped anew holds exactly its rows (each update was subtracted as it had been told). And
its rows at the end do not depend on caches, steps and restarts, given the order of the records.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import (
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from streams.testing import TopologyTestDriver
from tests.properties.runs import Feed, feeds, last, place, some
from tests.properties.test_stream_joins import SIDES

WINDOWS = {
    "tumbling": TimeWindows.of_size_and_grace(10, 5),
    "hopping": TimeWindows.of_size_and_grace(10, 5).advance_by(4),
    "sliding": SlidingWindows.of_time_difference_and_grace(10, 5),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(10, 5),
}


def key_of(value: Any) -> str | None:
    """The key that a value refers to, or None."""
    return "abcd"[value["v"] % 4] if value["v"] % 5 else None


def sources(builder: Any, caching: Any) -> tuple[Any, Any]:
    """Two tables; `caching` tells it of each."""
    tables = [
        builder.table(topic, materialized=Materialized(caching=on)) for topic, on in zip(SIDES, caching, strict=True)
    ]
    return tables[0], tables[1]


def pair(left: Any, right: Any) -> list[Any]:
    """The joiner."""
    return [left, right]


def joined(kind: str, left: Any, right: Any) -> Any:
    """A join by key."""
    return getattr(left, kind)(right, pair)


def related(kind: str, builder: Any, caching: Any) -> Any:
    """Both sides are made of one table."""
    table = sources(builder, caching)[0]
    return joined(kind, table.filter(lambda value: value["v"] % 3), table.map_values(lambda value: value["v"] % 5))


def made_of(kind: str, builder: Any, caching: Any) -> Any:
    """One side is made of the other, and kept."""
    table = sources(builder, caching)[0]
    kept = Materialized(name="kept", caching=caching[1])
    return joined(kind, table.filter(lambda value: value["v"] % 3, materialized=kept), table)


def versioned(kind: str, builder: Any, caching: Any) -> Any:
    """One side is versioned, so that it has no cache."""
    left = builder.table("left", materialized=Materialized(history_retention=10_000))
    return joined(kind, left, builder.table("right", materialized=Materialized(caching=caching[1])))


def suppressed(kind: str, builder: Any, caching: Any) -> Any:
    """One side holds its updates back."""
    left, right = sources(builder, caching)
    return joined(kind, right, left.suppress(Suppressed.until_time_limit(10)))


def windowed(name: str, builder: Any, caching: Any) -> Any:
    """Counts in windows, joined with those of another stream."""
    counts = [
        builder.stream(topic).group_by_key().windowed_by(WINDOWS[name]).count(materialized=Materialized(caching=on))
        for topic, on in zip(SIDES, caching, strict=True)
    ]
    return joined("outer_join", *counts)


def nested(left: Any, right: Any) -> Any:
    """A join with one of its own sides."""
    return joined("outer_join", joined("join", left, right), left)


def by_foreign_key(left: Any, right: Any) -> Any:
    """Each left row with the right one that it refers to."""
    return left.join(right, pair, foreign_key=key_of)


KINDS = ("join", "left_join", "outer_join")
TABLES: dict[str, Any] = {
    **{f"{k}": lambda b, c, k=k: joined(k, *sources(b, c)) for k in KINDS},
    **{f"{k} of related": lambda b, c, k=k: related(k, b, c) for k in KINDS},
    **{f"{k} with what it is made of": lambda b, c, k=k: made_of(k, b, c) for k in KINDS},
    **{f"{k} of versioned": lambda b, c, k=k: versioned(k, b, c) for k in KINDS},
    **{f"{k} with suppressed": lambda b, c, k=k: suppressed(k, b, c) for k in KINDS},
    **{f"{k}, filtered": lambda b, c, k=k: joined(k, *sources(b, c)).filter(lambda v: "2" in str(v)) for k in KINDS},
    "join of a join": lambda b, c: nested(*sources(b, c)),
    "by foreign key": lambda b, c: by_foreign_key(*sources(b, c)),
    "suppressed": lambda b, c: joined("left_join", *sources(b, c)).suppress(Suppressed.until_time_limit(9)),
    **{f"{name} windows": lambda b, c, name=name: windowed(name, b, c) for name in WINDOWS},
    "windows, mapped and suppressed": lambda b, c: (
        b.stream("left")
        .group_by_key()
        .windowed_by(WINDOWS["hopping"])
        .count(materialized=Materialized(caching=c[0]))
        .map_values(lambda n: n * 2 if n % 3 else None)
        .suppress(Suppressed.until_window_closes())
    ),
    "windows, filtered and suppressed": lambda b, c: (
        b.stream("left")
        .group_by_key()
        .windowed_by(WINDOWS["hopping"])
        .count(materialized=Materialized(caching=c[0]))
        .filter(lambda n: n % 2)
        .suppress(Suppressed.until_window_closes())
    ),
}


def run(name: str, feed: Feed, caching: tuple[bool, bool]) -> tuple[list[Any], list[Any]]:
    """The table's updates, and the list of rows that an aggregation keeps of it."""
    builder = StreamsBuilder()
    table = TABLES[name](builder, caching)
    table.to_stream().to("out")
    rows = table.group_by(lambda key, value: ("all", [str(place(key)), value]))
    rows.aggregate(list, lambda value, held: [*held, value], without).to_stream().to("rows")
    topology = builder.build()
    read = {topic for source in topology.sources() for topic in source.topics}
    with TopologyTestDriver(topology) as driver:
        at = 0
        for step in feed.steps:
            with driver.batch():
                for topic, _, key, value, time in step:
                    if topic in read:
                        driver.create_input_topic(topic).pipe_input(key, value, time)
            at += len(step)
            if feed.cuts[at - 1] == 2:
                driver.restart()
        updates = [
            (place(r.key), r.value, r.timestamp) for r in driver.create_output_topic("out").read_records_to_list()
        ]
        held = driver.create_output_topic("rows").read_values_to_list()
        return updates, held[-1] if held else []


def without(value: Any, held: list[Any]) -> list[Any]:
    """The list without a value that it must hold."""
    held = list(held)
    held.remove(value)
    return held


def in_order(feed: Feed) -> Feed:
    """The same records at growing times, so that a step's order is that of the log."""
    log = [entry._replace(time=10 * number + entry.time % 7) for number, entry in enumerate(feed.log)]
    return Feed(log, feed.cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
@some
@given(
    feed=feeds(SIDES, partitions=1, keys=("a", "b", "c")),
    caching=st.tuples(st.booleans(), st.booleans()),
    ordered=st.booleans(),
)
def test_updates_and_rows(name, feed, caching, ordered):
    """Grouped anew it holds the last row of each key; in order of time these are the rows of one record a step without caches."""
    feed = in_order(feed) if ordered else feed
    updates, held = run(name, feed, caching)
    wanted = [[str(key), value] for key, (value, _) in last(updates).items()]
    assert sorted(map(repr, held)) == sorted(map(repr, wanted))
    if ordered:
        plain, _ = run(name, feed.one_by_one(), (False, False))
        values = [{key: value for key, (value, _) in last(rows).items()} for rows in (updates, plain)]
        assert values[0] == values[1]
