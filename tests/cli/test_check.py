"""`streams check` finds what will hurt later, and is silent about what is right."""

from __future__ import annotations

import json
import random
import time
from datetime import datetime, timezone
from uuid import uuid4

import pytest

from streams import Grouped, KStream, Materialized, Processor, Repartitioned, StreamsBuilder
from streams.topology.lint import Level, lint


class Stamping(Processor):
    """Looks at the clock."""

    def process(self, record) -> None:
        self.context.forward(record.with_value(time.time()))


def rules(define) -> list[str]:
    builder = StreamsBuilder()
    define(builder.stream("in"))
    return [one.rule for one in lint(builder.build()) if one.level is Level.PROBLEM]


def good(stream: KStream) -> None:
    stream.map_values(str).group_by(lambda v: v, Grouped(name="by-v")).count(
        materialized=Materialized(name="counts")
    ).to_stream().to("out")


def again(stream: KStream) -> None:
    stream.filter(lambda v: v).to("in")


def around(stream: KStream) -> None:
    stream.repartition(Repartitioned(name="again")).to("in")


def unnamed_store(stream: KStream) -> None:
    stream.group_by_key().count().to_stream().to("out")


def unnamed_repartition(stream: KStream) -> None:
    totals = stream.group_by_key().count(materialized=Materialized(name="totals")).to_stream()
    totals.group_by(lambda v: str(v)).count(materialized=Materialized(name="counts")).to_stream().to("out")


def nowhere(stream: KStream) -> None:
    stream.to("out")
    stream.filter(lambda v: v)


def random_keys(stream: KStream) -> None:
    stream.select_key(lambda v: str(random.random())).to("out")


def clock_keys(stream: KStream) -> None:
    def minute(value: object) -> str:
        return datetime.now(timezone.utc).isoformat()

    stream.group_by(minute, Grouped(name="by-minute")).count(materialized=Materialized(name="counts")).to_stream().to(
        "out"
    )


@pytest.mark.parametrize(
    ("define", "found"),
    [
        (good, []),
        (again, ["loop"]),
        (around, ["loop"]),
        (unnamed_store, ["generated-store-name"]),
        (unnamed_repartition, ["generated-repartition-name"]),
        (nowhere, ["dead-end"]),
        (random_keys, ["changing-function"]),
        (clock_keys, ["changing-function"]),
    ],
)
def test_problems(define, found: list[str]) -> None:
    assert rules(define) == found


def test_a_loop_through_another_topic_is_found() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("between")
    builder.stream("between").to("in")
    assert {one.rule for one in lint(builder.build())} == {"loop"}


def test_a_topic_between_two_parts_is_no_loop() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("between")
    builder.stream("between").to("out")
    assert lint(builder.build()) == []


@pytest.mark.parametrize(
    ("define", "called"),
    [
        (lambda stream: stream.map_values(lambda v: uuid4()), "uuid.uuid4"),
        (lambda stream: stream.map_values(lambda v: [time.time() for _ in v]), "time.time"),
        (lambda stream: stream.process(Stamping), "time.time"),
    ],
)
def test_results_that_change_from_attempt_to_attempt_are_noted(define, called: str) -> None:
    builder = StreamsBuilder()
    define(builder.stream("in")).to("out")
    (found,) = lint(builder.build())
    assert (found.level, found.rule) == (Level.NOTE, "changing-function")
    assert f"calls {called}" in found.says
    assert "test_check.py, line" in found.says


def test_keys_of_unknown_type_are_noted() -> None:
    builder = StreamsBuilder()
    good(builder.stream("in"))
    assert ("untyped-keys", Level.NOTE) in [(one.rule, one.level) for one in lint(builder.build())]


def country(order: dict[str, str]) -> str:
    return order["country"]


def test_keys_that_are_known_to_be_text_are_not_noted() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(country).count(materialized=Materialized("counts")).to_stream().to("out")
    assert "untyped-keys" not in [one.rule for one in lint(builder.build())]


@pytest.mark.parametrize(("attribute", "code"), [("stateless", 0), ("build", 0), ("careless", 1)])
def test_the_exit_code_says_whether_there_is_a_problem(streams, attribute: str, code: int) -> None:
    result = streams("check", f"tests.cli.topology:{attribute}", "--json")
    assert result.exit_code == code, result.output
    assert any(one["level"] == "problem" for one in json.loads(result.output)) == bool(code)


def test_findings_are_sentences(streams) -> None:
    result = streams("check", "tests.cli.topology:careless")
    assert "problem  loop: KSTREAM-SINK-events: what is written to the topic 'events' is read again" in result.output
    assert "1 problem, 0 notes" in result.output
