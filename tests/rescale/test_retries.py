"""A rescale of an application that retries: records that wait are neither lost nor overtaken."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from streams import Processor, Retry, StreamsBuilder, StringSerde
from streams.testing import TopologyTestDriver

KEYS = "abcdefgh"
FIRST, SECOND = "test-ship-retry-1-repartition", "test-ship-retry-2-repartition"


class Ship(Processor):
    """Fails on values of which the class says so, at most so many times."""

    failures: ClassVar[dict[str, int]] = {}

    def process(self, record: Any) -> None:
        left = Ship.failures.get(record.value, 0)
        if left:
            Ship.failures[record.value] = left - 1
            raise ValueError(f"no truck for {record.value}")
        self.ctx.forward(record)


def shipping(keep_order: bool) -> Any:
    builder = StreamsBuilder(default_key_serde=StringSerde(), default_value_serde=StringSerde())
    retry = Retry((1_000, 10_000), dead_letters="orders.dlq", keep_order=keep_order)
    builder.stream("orders").process_values(Ship, named="ship", on_error=retry).to("shipped")
    return builder.build()


def shipped(keep_order: bool, rescales: dict[int, int]) -> dict[str, list[str]]:
    """Key -> its results in order: every first record fails twice, and tasks change in between."""
    Ship.failures = {f"{key}{number}": 2 for key in KEYS for number in (0, 3)}
    with TopologyTestDriver(shipping(keep_order), partitions={"orders": 2}, tasks=2, start_ms=100_000) as driver:
        orders = driver.create_input_topic("orders")
        for number in range(6):
            if number in rescales:
                driver.rescale(rescales[number])
            for key in KEYS:
                orders.pipe_input(key, f"{key}{number}", 100_000 + number)
            driver.advance_wall_clock_time(700)
        for number in range(6, 18):
            if number in rescales:
                driver.rescale(rescales[number])
            driver.advance_wall_clock_time(9_000)
        found = driver.create_output_topic("shipped").read_records_to_list()
        assert driver.create_output_topic("orders.dlq").is_empty
        results: dict[str, list[str]] = {}
        for record in found:
            results.setdefault(record.key, []).append(record.value)
        return results


@pytest.mark.parametrize("rescales", [{2: 3}, {1: 1, 4: 5}, {3: 4, 6: 2, 7: 3}, {2: 7, 8: 1}])
def test_records_that_wait_come_back_in_the_order_of_their_keys(rescales: dict[int, int]) -> None:
    assert shipped(True, rescales) == {key: [f"{key}{number}" for number in range(6)] for key in KEYS}


@pytest.mark.parametrize("rescales", [{2: 3}, {3: 4, 6: 2, 7: 3}])
def test_without_order_they_come_back_when_they_are_due(rescales: dict[int, int]) -> None:
    assert shipped(False, rescales) == shipped(False, {})
