"""The programs of docs/examples, each with the records that go in and what must come out."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from streams import BytesSerde, JsonSerde
from streams.testing import TopologyTestDriver
from streams.topology.lint import Level, lint

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
MINUTE = 60_000
S = timedelta(seconds=1)
M = timedelta(minutes=1)

Sent = tuple[str, "str | None", Any, "timedelta"]
"""Topic, key, value, time since the epoch."""


@dataclass
class Case:
    """What goes into a program, and what must come out: topic -> (key, value) in order."""

    sent: list[Sent]
    expected: dict[str, list[tuple[Any, Any]]]
    settings: dict[str, Any] = field(default_factory=dict)


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VIEWS = [
    ("article-views", None, {"industry": "tech", "article": article}, number * M)
    for number, article in enumerate(["a", "b", "b", "c", "c", "c"])
]

CASES: dict[str, Case] = {
    "word_count": Case(
        [("lines", None, "Kafka streams\n", 0 * S), ("lines", None, "kafka", 1 * S)],
        {"word-counts": [("kafka", 1), ("streams", 1), ("kafka", 2)]},
    ),
    "page_view_region": Case(
        [
            ("user-profiles", "ann", {"region": "eu"}, 0 * S),
            ("page-views", "ann", {"page": "p"}, 1 * S),
            ("page-views", "bob", {"page": "q"}, 70 * S),
        ],
        {
            "views-by-region": [("eu@0", 1), ("unknown@0", 1), ("unknown@60", 1)],
        },
    ),
    "top_articles": Case(
        VIEWS,
        {
            "top-articles": [
                ("tech", [["a", 1]]),
                ("tech", [["a", 1], ["b", 1]]),
                ("tech", [["b", 2], ["a", 1]]),
                ("tech", [["b", 2], ["a", 1]]),
                ("tech", [["b", 2], ["c", 2]]),
                ("tech", [["c", 3], ["b", 2]]),
            ]
        },
    ),
    "top_articles_built_in": Case(
        VIEWS,
        {
            "top-articles": [
                ("tech", [{"article": "a", "views": 1}]),
                ("tech", [{"article": "a", "views": 1}, {"article": "b", "views": 1}]),
                ("tech", [{"article": "b", "views": 2}, {"article": "a", "views": 1}]),
                ("tech", [{"article": "b", "views": 2}, {"article": "c", "views": 2}]),
                ("tech", [{"article": "c", "views": 3}, {"article": "b", "views": 2}]),
            ]
        },
    ),
    "play_sessions": Case(
        [
            ("plays", "ann", {"track": "x"}, 0 * M),
            ("plays", "ann", {"track": "y"}, 50 * M),
            ("plays", "ann", {"track": "z"}, 25 * M),
        ],
        {
            "sessions": [
                ("ann@0-0", 1),
                ("ann@3000-3000", 1),
                ("ann@0-0", None),
                ("ann@3000-3000", None),
                ("ann@0-3000", 3),
            ]
        },
    ),
    "fraud_processor": Case(
        [
            ("payments", "card", {"amount": 800}, 1 * S),
            ("payments", "card", {"amount": 300}, 2 * S),
            ("payments", "card", {"amount": 900}, 200 * S),
        ],
        {"alerts": [("card", {"spent": 1100})]},
    ),
    "orders_payments": Case(
        [
            ("orders", "1", {"item": "tea"}, 0 * S),
            ("payments", "1", {"amount": 3}, 60 * S),
            ("orders", "2", {"item": "jam"}, 70 * S),
            ("payments", "3", {"amount": 9}, 80 * S),
            ("orders", "4", {"item": "end"}, 20 * M),
        ],
        {
            "order-states": [
                ("1", {"item": "tea", "paid": 3}),
                ("2", {"item": "jam", "paid": None}),
                ("3", {"item": None, "paid": 9}),
            ]
        },
    ),
    "orders_customers": Case(
        [
            ("customers", "c1", {"name": "Ann"}, 0 * S),
            ("orders", "o1", {"customer_id": "c1", "amount": 5.0}, 1 * S),
            ("customers", "c1", {"name": "Anna"}, 2 * S),
        ],
        {"named-orders": [("o1", {"name": "Ann", "amount": 5.0}), ("o1", {"name": "Anna", "amount": 5.0})]},
    ),
    "prices_as_of": Case(
        [
            ("prices", "tea", {"price": 2}, 0 * S),
            ("prices", "tea", {"price": 3}, 60 * S),
            ("orders", "tea", {"count": 4}, 61 * S),
            ("orders", "tea", {"count": 4}, 59 * S),
        ],
        {"priced-orders": [("tea", {"count": 4, "total": 12}), ("tea", {"count": 4, "total": 8})]},
    ),
    "enrich_from_global_tables": Case(
        [
            ("airports", "JFK", {"name": "Kennedy"}, 0 * S),
            ("flights", "1", {"origin": "JFK", "dest": "LAX"}, 1 * S),
            ("flights", "2", {"origin": "XXX", "dest": "JFK"}, 2 * S),
        ],
        {"named-flights": [("1", {"origin": "JFK", "dest": "LAX", "from": "Kennedy", "to": None})]},
    ),
    "missing_heartbeats": Case(
        [
            *(("heartbeats", "fine", {}, second * S) for second in (1, 2, 3)),
            ("heartbeats", "weak", {}, 4 * S),
            ("heartbeats", "other", {}, 80 * S),
        ],
        {"silent-devices": [("weak", 1)]},
    ),
    "shopping_cart": Case(
        [
            ("added", "ann", {"item": "tea"}, 1 * S),
            ("added", "ann", {"item": "jam"}, 2 * S),
            ("removed", "ann", {"item": "tea"}, 3 * S),
            ("purchases", "ann", {"paid": 1}, 4 * S),
        ],
        {"carts": [("ann", {"tea": 1}), ("ann", {"tea": 1, "jam": 1}), ("ann", {"jam": 1}), ("ann", {})]},
    ),
    "deduplicate_events": Case(
        [
            ("events", "k", {"id": "e1"}, 0 * M),
            ("events", "k", {"id": "e1"}, 5 * M),
            ("events", "k", {"id": "e2"}, 6 * M),
            ("events", "k", {"id": "e1"}, 30 * M),
        ],
        {
            "by-hand": [("e1", {"id": "e1"}), ("e2", {"id": "e2"}), ("e1", {"id": "e1"})],
            "built-in": [("e1", {"id": "e1"}), ("e2", {"id": "e2"}), ("e1", {"id": "e1"})],
        },
    ),
    "command_validation": Case(
        [
            ("object-commands", "door", {"expects": 0, "value": "open"}, 1 * S),
            ("object-commands", "door", {"expects": 0, "value": "shut"}, 2 * S),
            ("object-commands", "door", {"expects": 1, "value": "shut"}, 3 * S),
        ],
        {
            "accepted-commands": [("door", {"version": 1, "value": "open"}), ("door", {"version": 2, "value": "shut"})],
            "rejected-commands": [("door", {"expects": 0, "value": "shut", "found": 1})],
        },
    ),
    "order_validation": Case(
        [
            ("orders", "1", {"customer": "ann", "quantity": 2, "price": 900.0}, 1 * S),
            ("stock-checks", "1", {"ok": True}, 2 * S),
            ("orders", "2", {"customer": "ann", "quantity": 0, "price": 5.0}, 3 * S),
            ("orders", "3", {"customer": "ann", "quantity": 1, "price": 500.0}, 4 * S),
            ("stock-checks", "3", {"ok": False}, 5 * S),
        ],
        {
            "validated-orders": [("1", {"customer": "ann", "quantity": 2, "price": 900.0, "in_stock": True})],
            "rejected-orders": [("2", {"customer": "ann", "quantity": 0, "price": 5.0, "why": "implausible"})],
            "order-warnings": [("ann", 2300.0)],
        },
        {"deserialization": "dlq", "processing": "dlq", "dead_letter_topic": "dead-orders"},
    ),
}


def read(driver: TopologyTestDriver, topic: str, wanted: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Keys and values of a topic; objects are read as the JSON that other programs see."""
    serde = JsonSerde() if any(isinstance(value, dict) for _, value in wanted) else None
    records = driver.create_output_topic(topic, value_serde=serde).read_records_to_list()
    return [(record.key, record.value) for record in records]


def test_every_example_has_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_an_example_has_no_problem_that_check_finds(name: str) -> None:
    assert [found for found in lint(load(name).build()) if found.level is Level.PROBLEM] == []


@pytest.mark.parametrize("name", CASES)
def test_an_example_gives_what_it_promises(name: str) -> None:
    case = CASES[name]
    with TopologyTestDriver(load(name).build(), settings=case.settings) as driver:
        topics = {
            topic: driver.create_input_topic(topic, value_serde=JsonSerde() if isinstance(value, dict) else None)
            for topic, _, value, _ in case.sent
        }
        for topic, key, value, time in case.sent:
            topics[topic].pipe_input(key, value, timestamp=time)
        found = {topic: read(driver, topic, wanted) for topic, wanted in case.expected.items()}
    assert found == case.expected


def test_the_settings_of_order_validation_send_bad_records_to_the_dead_letters() -> None:
    module = load("order_validation")
    with TopologyTestDriver(module.build(), settings=module.SETTINGS) as driver:
        driver.create_input_topic("orders").pipe_bytes(b"1", b"not json", timestamp=1000)
        driver.create_input_topic("orders", value_serde=JsonSerde()).pipe_input("2", {"quantity": 1}, timestamp=2000)
        dead = driver.create_output_topic("dead-orders", key_serde=BytesSerde(), value_serde=BytesSerde())
        assert [record.key for record in dead.read_records_to_list()] == [b"1", b"2"]


def test_every_example_is_listed_on_its_page() -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in CASES if f"({name}.py)" not in page] == []
