"""The type of what a function without an annotation makes, from its bytecode; programs are the same with a topic between."""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import pytest
from typing_extensions import TypedDict

from streams import Consumed, JsonSerde, Materialized, StreamsBuilder
from streams.dsl.nodes import bytecode_types
from streams.dsl.nodes.bytecode_types import Unknown
from streams.dsl.nodes.inferred_types import result_type
from streams.serdes.primitives import StringSerde
from streams.testing import TopologyTestDriver


@dataclass(frozen=True)
class Suspicion:
    user: str
    score: Decimal = Decimal(0)

    @classmethod
    def of(cls, value: Any) -> Suspicion:
        return cls(value["user"])

    def doubled(self) -> Suspicion:
        return dataclasses.replace(self, score=self.score * 2)


class Point(NamedTuple):
    x: int


class Row(TypedDict):
    x: int


class Region(str, Enum):
    EU = "eu"
    US = "us"


def make(value: Any) -> Suspicion:
    return Suspicion(value["user"])


def unknown(value):
    return value


def pair_or_none(key, value):
    if value is None:
        return None
    made = Suspicion(value["user"])
    return key, made


def one_for_each(key, value):
    for item in value:
        yield item, Suspicion(item)


def changed_in_a_loop(key, value):
    found = None
    for item in value:
        found = Suspicion(item) if found is None else Point(1)
    return found


PAIR: Any = tuple[Unknown, Suspicion]
S = Suspicion


@pytest.mark.parametrize(
    ("fn", "kind"),
    [
        (lambda k, v: (k, Suspicion(v["user"])), PAIR),
        (lambda k, v: (k, Suspicion(user=v["user"], score=v["score"] + 1)), PAIR),
        (lambda k, v: (k, Suspicion(*v)), PAIR),
        (lambda k, v: (k, Suspicion(**v)), PAIR),
        (
            lambda k, v: (v["a"].lower() + f"{k!r:>4}{v}", Suspicion(v["a"] if v else "", v.get("b") or Decimal(1))),
            PAIR,
        ),
        (
            lambda k, v: (
                k,
                Suspicion([x + 1 for x in v], {a: 1 for a, b in v}, sum(x for x in v), v[1:2], not v, k in v),
            ),
            PAIR,
        ),  # type: ignore[call-arg]
        (lambda k, v: (k, S(v)), PAIR),
        (lambda k, v: (k, Suspicion.of(v)), PAIR),
        (lambda k, v: (k, make(v)), PAIR),
        (lambda k, v: (k, copy.copy(v)), tuple[Unknown, Unknown]),
        (lambda k, v: (k, unknown(v)), tuple[Unknown, Unknown]),
        (lambda k, v: (k, Suspicion(v)) if v else (k, Point(1)), tuple[Unknown, Suspicion | Point]),
        (lambda k, v: (k, Suspicion(v) if v else Point(1)), tuple[Unknown, Suspicion | Point]),
        (lambda k, v: (k, Suspicion(v)) if v else None, PAIR),
        (lambda k, v: [(k, Suspicion(v)), (k, Suspicion(k))], list[PAIR]),
        (lambda k, v: [(x, Suspicion(x)) for x in v if x], list[PAIR]),
        (lambda k, v: ((x, Suspicion(x)) for x in v), Iterable[PAIR]),
        (lambda v: Suspicion(v), Suspicion),
        (lambda v: [Suspicion(x) for x in v], list[Suspicion]),
        (lambda v, total: (total[0] + 1, total[1] + v), tuple[Unknown, Unknown]),
        (lambda: (0, 0.0), tuple[Unknown, Unknown]),
        (lambda v, seen: (*seen, v), tuple[Unknown, ...]),
        (lambda v: v["a"], None),
        (lambda v: {**v, "a": 1}, None),
        (lambda v: type(v)(1), None),
        (pair_or_none, PAIR),
        (one_for_each, Iterable[PAIR]),
        (changed_in_a_loop, None),
    ],
)
def test_the_parts_of_a_result_are_known(fn: Any, kind: Any) -> None:
    found = result_type(fn)
    assert found == kind or (sys.version_info < (3, 11) and str(found) == f"{kind} | None")


@pytest.mark.parametrize(
    ("fn", "of", "kind"),
    [
        (lambda k, v: (k, v.doubled()), Suspicion, tuple[str, Suspicion]),
        (lambda k, v: (k, dataclasses.replace(v, user="a")), Suspicion, tuple[str, Suspicion]),
        (lambda k, v: (v.user, v.score), Suspicion, tuple[str, Decimal]),
        (lambda v: v._replace(x=2), Point, Point),
        (lambda k, v: (k, v["x"]), Row, tuple[str, int]),
    ],
)
def test_what_is_read_of_a_typed_value_is_known(fn: Any, of: Any, kind: Any) -> None:
    assert result_type(fn, StringSerde(), JsonSerde(of)) == kind


def test_an_instruction_without_a_known_effect_makes_the_result_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bytecode_types, "_TAKEN_AND_LEFT", {})
    assert result_type(lambda k, v: (k, Suspicion(v < 1))) is None


# --- In programs.

MAKERS = {
    "map": lambda stream: stream.map(lambda k, v: (k, Suspicion(v["user"], Decimal(v["score"])))),
    "flat_map": lambda stream: stream.flat_map(lambda k, v: [(k, Suspicion(v["user"], Decimal(v["score"])))]),
    "flat_map, one by one": lambda stream: stream.flat_map(
        lambda k, v: ((k, Suspicion(u, Decimal(v["score"]))) for u in [v["user"]])
    ),
    "map_values": lambda stream: stream.map_values(lambda v: Suspicion(v["user"], Decimal(v["score"]))),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda v: [Suspicion(v["user"], Decimal(v["score"]))]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("between", [False, True])
def test_the_type_of_a_value_does_not_depend_on_a_topic_between_two_operators(make: Any, between: bool) -> None:
    builder = StreamsBuilder()
    made = make(builder.stream("in"))
    made = made.repartition() if between else made
    made.map_values(lambda v: f"{type(v).__name__} {v.score + 1}").to("out", value_serde=StringSerde())
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in").pipe_input("k", {"user": "a", "score": "1.50"})
        assert driver.create_output_topic("out", value_serde=StringSerde()).read_values_to_list() == ["Suspicion 2.50"]


def total(value: Any, counts: dict[int, int]) -> dict[int, int]:
    return {**counts, value: counts.get(value, 0) + 1}


def last_two(value: Any, pair: tuple[int, list[tuple[int, str]]]) -> tuple[int, list[tuple[int, str]]]:
    return pair[0] + 1, [*pair[1], (value, "seen")][-2:]


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(
    ("initial", "add", "expected"),
    [
        (dict, total, {404: 2, 200: 1}),
        (lambda: (0, []), last_two, (3, [(200, "seen"), (404, "seen")])),
        (lambda: (0, 0), lambda v, a: (a[0] + 1, a[1] + v), (3, 1008)),
        (lambda: (), lambda v, a: (*a, v), (404, 200, 404)),
    ],
)
def test_an_aggregate_is_the_same_in_one_step_and_in_many(batch: bool, initial: Any, add: Any, expected: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().aggregate(initial, add, materialized=Materialized("counts"))
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        topic = driver.create_input_topic("in")
        if batch:
            with driver.batch():
                topic.pipe_key_value_list([("k", v) for v in (404, 200, 404)])
        else:
            topic.pipe_key_value_list([("k", v) for v in (404, 200, 404)])
        found = driver.get_store("counts").get("k").value
    assert (found, type(found)) == (expected, type(expected))


def region(value: Any) -> Region:
    return Region(value)


def test_keys_that_are_members_of_an_enum_of_texts_are_members_behind_a_topic() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", Consumed(value_serde=StringSerde())).select_key(region).repartition()
    keyed.map_values(lambda k, v: k.name).to("out", value_serde=StringSerde())
    with TopologyTestDriver(builder.build(), rocksdb=False) as driver:
        driver.create_input_topic("in", value_serde=StringSerde()).pipe_input("k", "eu")
        assert driver.create_output_topic("out", value_serde=StringSerde()).read_key_values_to_list() == [("eu", "EU")]
