"""What a mistake in a program says: what is wrong, where, and what to write instead."""

from __future__ import annotations

import pickle
import subprocess
import sysconfig
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from streams import (
    Branched,
    Consumed,
    JoinWindows,
    KStream,
    Materialized,
    Named,
    Processor,
    Record,
    StreamsBuilder,
    StreamsError,
    StringSerde,
    TimeWindows,
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

    assert "has no attribute 'nowMs', use now_ms" in failure(lambda stream: stream.process(Hurried))


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


# --- The user's file and line in errors about the topology: that of the call that is wrong, wherever the engine finds out.


PROGRAMS: dict[str, str] = {
    "a method of a stream": "builder.stream('in').filter(7)",
    "the constructor of an option": "Materialized(name='no good')",
    "windows, whose constructor a decorator makes": "TimeWindows(0, 1, 0)",
    "the end of the program": "StreamsBuilder().build()",
    "a name that does not exist": "builder.stream('in').mapValues(len)",
}


@pytest.fixture
def run_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], TopologyError]:
    """Runs a program from a file `app.py` of the working directory and gives the error that it ends with."""
    monkeypatch.chdir(tmp_path)

    def run(last_line: str) -> TopologyError:
        app = tmp_path / "app.py"
        app.write_text(f"from streams import *\nbuilder = StreamsBuilder()\n\n{last_line}\n")
        with pytest.raises(TopologyError) as caught:
            exec(compile(app.read_text(), str(app), "exec"), {"__name__": "app", "__file__": str(app)})
        return caught.value

    return run


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_line_of_the_call_ends_the_message(run_program: Callable[[str], TopologyError], program: str) -> None:
    assert str(run_program(program)).endswith(" (app.py, line 4)")


def test_a_file_outside_the_working_directory_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TopologyError) as caught:
        Named("no good")
    assert f"({__file__}, line " in str(caught.value)


def test_the_innermost_function_of_the_user_counts() -> None:
    def declare(builder: StreamsBuilder) -> None:
        builder.stream("no good")

    with pytest.raises(TopologyError) as caught:
        declare(StreamsBuilder())
    assert caught.value.line is not None
    assert caught.value.line.endswith(f", line {declare.__code__.co_firstlineno + 1}")


def test_the_line_survives_the_way_between_processes() -> None:
    with pytest.raises(TopologyError) as caught:
        TimeWindows.of_size_with_no_grace(-1)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_the_text_alone_is_the_first_argument() -> None:
    with pytest.raises(TopologyError) as caught:
        Materialized(name="no good")
    assert "line" not in caught.value.args[0]


@pytest.mark.slow
def test_a_command_that_runs_no_code_of_the_user_s_names_no_line(tmp_path: Path) -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / "streams"), "describe", "nowhere:topology"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "TopologyError" in ran.stderr
    assert ", line " not in ran.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda stream: stream.split(name="by-"), "split() has no argument 'name': split(named=...)."),
        (lambda stream: stream.group_by(), "group_by() needs 'selector': group_by(selector, grouped=..., named=...)."),
        (lambda stream: stream.group_by(name="x"), "group_by() needs 'selector'"),
        (lambda stream: stream.left_join(), "left_join() needs 'other' and 'joiner'"),
        (
            lambda stream: stream.group_by_key().count(1, 2, 3),
            "count() takes at most 2 arguments by position, not 3: count(named=..., materialized=...).",
        ),
        (lambda _: StreamsBuilder().stream(), "stream() needs 'topics': stream(topics, consumed=...)."),  # type: ignore[call-arg]
    ],
)
def test_wrong_arguments_are_named_with_the_line_and_what_fits(call: Callable[[KStream], object], says: str) -> None:
    message = failure(call)
    assert message.startswith(says)
    assert "test_messages.py, line " in message


def test_a_type_error_of_the_user_s_own_code_stays() -> None:
    def fails(stream: KStream) -> KStream:
        return len(stream)  # type: ignore

    branched = Branched("all", function=fails)
    with pytest.raises(TypeError, match="has no len"):
        run(lambda stream: stream.split().branch(lambda value: True, branched).no_default_branch())
