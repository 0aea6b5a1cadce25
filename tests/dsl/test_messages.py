"""What a mistake in a program says: what is wrong, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest

from streams import (
    Consumed,
    JoinWindows,
    KStream,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    StringSerde,
    TopologyError,
    timestamp_field,
)
from streams.testing import TopologyTestDriver
from streams.wording import a_or_an, described

VALUE = {"id": 1, "at": "2026-01-01T00:00:00Z"}


def run(declare: Callable[[KStream], object], value: object = VALUE, consumed: Consumed | None = None) -> None:
    """Runs a topology over one record of topic `in`."""
    builder = StreamsBuilder()
    declare(builder.stream("in", consumed))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", value, timestamp=1)


def failure(declare: Callable[[KStream], object], value: object = VALUE, consumed: Consumed | None = None) -> str:
    with pytest.raises(StreamsError) as caught:
        run(declare, value, consumed)
    return str(caught.value)


def a_pair_in_a_dict(key: str, value: dict[str, Any]) -> Any:
    return {"key": key, "value": value}


def nothing(value: object) -> Any:
    return None


def no_list(key: str, value: object) -> Any:
    return key, value


LINES = {fn: f"({__file__}, line {fn.__code__.co_firstlineno})" for fn in (a_pair_in_a_dict, nothing, no_list)}


@pytest.mark.parametrize(
    ("method", "fn", "said"),
    [
        ("map", a_pair_in_a_dict, "map must give a tuple (key, value), it gave {'key': 'a', 'value':"),
        ("map", nothing, "map must give a tuple (key, value), it gave None"),
        ("flat_map", no_list, "flat_map must give a list of tuples (key, value), it gave 'a'"),
        ("flat_map", nothing, "flat_map must give a list of tuples (key, value), [] for none, it gave None"),
        ("flat_map_values", nothing, "flat_map_values must give a list of values, [] for none, it gave None"),
    ],
)
def test_a_result_of_the_wrong_shape_is_shown_with_the_line_of_its_function(
    method: str, fn: Callable[..., Any], said: str
) -> None:
    message = failure(lambda stream: getattr(stream, method)(fn).to("out"))
    assert (said in message, LINES[fn] in message) == (True, True)


@pytest.mark.parametrize("gave", [["k", "v"], ("k", "v")])
def test_map_takes_any_sequence_of_two(gave: Any) -> None:
    run(lambda stream: stream.map(lambda key, value: gave).to("out"))


def test_an_error_inside_the_function_is_not_taken_for_a_wrong_shape() -> None:
    message = failure(lambda stream: stream.map(lambda key, value: (key, int("x"))).to("out"))
    assert "ValueError: invalid literal for int()" in message


def test_text_in_a_field_of_numbers_leads_to_the_unit() -> None:
    message = failure(lambda stream: stream.to("out"), consumed=Consumed(timestamp_extractor=timestamp_field("at")))
    assert "For ISO 8601 text: timestamp_field('at', unit='iso')" in message


def test_text_that_is_no_time_leads_nowhere() -> None:
    extractor = Consumed(timestamp_extractor=timestamp_field("id"))
    assert "ISO" not in failure(lambda stream: stream.to("out"), {"id": "later"}, extractor)


@pytest.mark.parametrize(
    "moment",
    [datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc), datetime(1970, 1, 1, 0, 0, 1), 1000],  # noqa: DTZ001
)
def test_an_extractor_may_give_a_datetime(moment: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed(timestamp_extractor=lambda record: moment)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", 1, timestamp=1)
        assert driver.create_output_topic("out").read_record().timestamp == 1000


def refused(declare: Callable[[StreamsBuilder, KStream], object]) -> str:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    with pytest.raises(TopologyError) as caught:
        declare(builder, stream)
    return str(caught.value)


def test_the_same_aggregation_twice_names_the_first_one_s_line() -> None:
    def twice(builder: StreamsBuilder, stream: KStream) -> None:
        group = stream.group_by_key()
        group.count()
        group.count()

    message = refused(twice)
    first = twice.__code__.co_firstlineno + 2
    assert (f"test_messages.py, line {first}. The same call twice" in message, f"line {first + 1})" in message) == (
        True,
        True,
    )


def joiner(left: object, right: object) -> object:
    return left


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (
            lambda b, s: s.join(b.table("t"), joiner, JoinWindows.of_time_difference_with_no_grace(5)),
            "A join with a table takes no windows: the table's value at the time of the record counts.",
        ),
        (lambda b, s: s.join(b.stream("other"), joiner), "A join of two streams needs JoinWindows, not None:"),
        (lambda b, s: s.merge(b.table("t")), "This argument takes a stream, not a KTable: a table has to_stream()."),
        (lambda b, s: s.map_values({"a": 1}), "The value mapper must be a function, not a dict."),
        (
            lambda b, s: s.group_by_key().aggregate(int, lambda acc, order: acc),
            "The aggregator '<lambda>(acc, order)' is called with (value, aggregate), the aggregate last",
        ),
        (
            lambda b, s: s.group_by_key().aggregate(int, lambda key, total, value: total),
            "is called with (value, aggregate), the aggregate last",
        ),
        (
            lambda b, s: s.group_by_key().aggregate(int, lambda count, value: count),
            "swap them, or rename 'count' if it is the value",
        ),
        (
            lambda b, s: s.group_by_key().reduce(lambda value, aggregate: aggregate),
            "The reducer '<lambda>(value, aggregate)' is called with (aggregate, value), the aggregate first",
        ),
        (lambda b, s: s.group_by_key().cogroup(lambda agg, v: agg), "The aggregator '<lambda>(agg, v)' is called"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_with_what_to_write(declare: Callable[[StreamsBuilder, KStream], object], said: str) -> None:
    assert said in refused(declare)


@pytest.mark.parametrize(
    "aggregator",
    [
        lambda value, total: total,
        lambda state, count: count,
        lambda key, value, acc: acc,
        lambda one, other: other,
        lambda *arguments: 0,
        lambda acc, total: total,
        max,
    ],
)
def test_names_that_say_nothing_about_the_order_are_taken(aggregator: Callable[..., Any]) -> None:
    StreamsBuilder().stream("in").group_by_key().aggregate(int, aggregator)


def test_a_context_answers_unknown_names_too() -> None:
    class Hurried(Processor):
        def process(self, record: Record) -> None:
            self.ctx.nowMs()  # type: ignore[attr-defined]

    assert "has no attribute 'nowMs', here it is now_ms" in failure(lambda stream: stream.process(Hurried))


def test_an_attribute_of_the_user_s_own_objects_is_not_answered() -> None:
    assert "'dict' object has no attribute 'items_' (" in failure(lambda stream: stream.map_values(lambda v: v.items_))


@pytest.mark.parametrize(
    ("noun", "article"),
    [
        ("int", "an int"),
        ("str", "a str"),
        ("UUID", "a UUID"),
        ("Order", "an Order"),
        ("User", "a User"),
        ("KTable", "a KTable"),
    ],
)
def test_nouns_get_their_article(noun: str, article: str) -> None:
    assert a_or_an(noun) == article


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (7, "7"),
        ("x" * 100, "'" + "x" * 59 + "..."),
        (StringSerde(), "a StringSerde"),
        (StringSerde, "the class StringSerde"),
        (joiner, "the function joiner"),
        (lambda: 0, "a lambda"),
        ({"a": 1}, "a dict"),
    ],
)
def test_values_are_described_in_few_words(value: object, words: str) -> None:
    assert described(value) == words
