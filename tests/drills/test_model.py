"""The model agrees with the engine in a run without faults, and detects lost and duplicate results."""

from __future__ import annotations

import random
from collections import Counter

from streams.drills.program import (
    CLOSED,
    GRACE_MS,
    INPUTS,
    KEYS,
    ORDERS,
    OUTPUTS,
    PARTITIONS,
    TOTALS,
    Event,
    build,
    differences,
    expected,
    out_of_order,
    result,
)
from streams.drills.topics import Read
from streams.drills.variants import wrong_joins
from streams.testing import TopologyTestDriver


def events(seed: int, count: int) -> list[tuple[str, Event]]:
    drawn = random.Random(seed)
    return [
        (
            drawn.choice(INPUTS),
            Event(f"key-{drawn.randrange(KEYS)}", f"id-{n}", 1_000_000 + 100 * n - drawn.randrange(900)),
        )
        for n in range(count)
    ]


def test_the_model_agrees_with_the_engine() -> None:
    given = events(1, 1500)
    end = max(event.time for _, event in given) + 2 * GRACE_MS
    # A key whose last order is long before the end of its task's time.
    given.append((ORDERS, Event("key-99", "only", 1_000_000 + 100 * 1500)))
    given += [(ORDERS, Event(f"key-{n}", f"last-{n}", end)) for n in range(KEYS)]
    with TopologyTestDriver(build(), partitions=dict.fromkeys(INPUTS, PARTITIONS)) as driver:
        with driver.batch():
            for topic, event in given:
                driver.create_input_topic(topic).pipe_input(event.key, {"id": event.id}, event.time)
        found = {}
        for topic in OUTPUTS:
            rows = driver.create_output_topic(topic).read_records_to_list()
            found[topic] = Counter((row.key, *row.value.values()) for row in rows)
    wanted = expected(*([event for topic, event in given if topic == name] for name in INPUTS))
    assert all(wanted.values())
    assert differences(wanted, found) == []


def test_lost_and_duplicate_results_are_reported() -> None:
    wanted = expected([Event("key-1", "a", 5), Event("key-1", "b", 9)], [])
    lost = {**wanted, TOTALS: Counter({("key-1", 1): 2})}
    assert differences(wanted, lost) == [
        "totals: 1 of 2 results missing, such as ('key-1', 2)",
        "totals: 1 of 2 results too many, such as ('key-1', 1)",
    ]
    assert out_of_order(TOTALS, [("a", 1), ("b", 1), ("a", 3)]) == ["totals: a has 3 after 1"]
    assert result(CLOSED, b"key-1", b'{"start":10,"count":2}') == ("key-1", 10, 2)


def test_a_row_that_a_key_no_longer_has_is_reported() -> None:
    def joined(*rows: bytes) -> list[Read]:
        return [Read(0, at, at, b"a", b'{"id":"orders-%d","row":%s}' % (at, row)) for at, row in enumerate(rows)]

    history = {"a": [None, 1, None, 2]}
    assert wrong_joins(history, joined(b"1", b"1", b"2")) == []
    assert wrong_joins(history, joined(b"1", b"null", b"1", b"3")) == [
        "orders-2 of a has the row 1, not one of [None, 2]",
        "orders-3 of a has the row 3, not one of [None, 2]",
    ]
