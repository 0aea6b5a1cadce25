"""`streams check` finds what will hurt later, and is silent about what is right."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from streams import (
    ConfigError,
    Grouped,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    Repartitioned,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
)
from streams.application.prepare import plan_application
from streams.cli.main import app
from streams.cli.options import other_settings
from streams.config import StreamsConfig
from streams.topology.lint import Level, lint


class Stamping(Processor):
    """Looks at the clock."""

    def process(self, record) -> None:
        self.context.forward(record.with_value(time.time()))  # type: ignore[attr-defined]


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


def notes(define) -> list[str]:
    builder = StreamsBuilder()
    define(builder)
    return [one.rule for one in lint(builder.build()) if one.level is Level.NOTE]


def behind_a_join(kind: str, grace: int):
    def define(builder: StreamsBuilder) -> None:
        pairs = JoinWindows.of_time_difference_and_grace(10, 5).after(3)
        left, right = builder.stream("left"), builder.stream("right")
        joined = getattr(left, kind)(right, lambda x, y: [x, y], pairs, StreamJoined(name="pairs"))
        windows = TimeWindows.of_size_and_grace(10, grace)
        grouped = joined.group_by(lambda v: str(v), Grouped(name="by-v")).windowed_by(windows)
        grouped.count(materialized=Materialized(name="counts")).to_stream().to("out")

    return define


@pytest.mark.parametrize(
    ("kind", "grace", "found"),
    [
        ("left_join", 14, ["late-rows-of-a-join"]),
        ("outer_join", 0, ["late-rows-of-a-join"]),
        ("left_join", 15, []),
        ("join", 0, []),
    ],
)
def test_windows_that_are_too_short_for_a_join_are_noted(kind: str, grace: int, found: list[str]) -> None:
    assert [rule for rule in notes(behind_a_join(kind, grace)) if rule != "untyped-keys"] == found


def suppressed(filtered_first: bool):
    def define(builder: StreamsBuilder) -> None:
        windows = TimeWindows.of_size_with_no_grace(10)
        table = builder.stream("in").group_by_key().windowed_by(windows).count(materialized=Materialized(name="counts"))
        last = Suppressed.until_window_closes()
        if filtered_first:
            table.filter(lambda n: n > 1).suppress(last, named="last").to_stream().to("out")
        else:
            table.suppress(last, named="last").filter(lambda n: n > 1).to_stream().to("out")

    return define


def test_a_filter_in_front_of_suppress_is_noted() -> None:
    assert notes(suppressed(filtered_first=True)) == ["filter-before-suppress"]
    assert notes(suppressed(filtered_first=False)) == []


def test_a_filter_of_the_stream_of_a_table_is_noted() -> None:
    def table(builder: StreamsBuilder):
        return builder.table("in", materialized=Materialized(name="rows"))

    assert notes(lambda b: table(b).to_stream().filter(bool).to("out")) == ["filtered-rows"]
    assert notes(lambda b: table(b).filter(bool).to_stream().to("out")) == []
    assert notes(lambda b: table(b).to_stream().select_key(lambda v: str(v)).filter(bool).to("out")) == []
    assert notes(lambda b: b.stream("in").filter(bool).to("out")) == []


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
    assert "test_topology.py, line" in found.says


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


# What `streams check` says to write for a generated name, and that this ends it.

Define = Callable[[StreamsBuilder, dict[str, Any]], Any]
WINDOWS = JoinWindows.of_time_difference_with_no_grace(5)


def join(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    return builder.stream("in").join(builder.stream("other"), lambda a, b: a, WINDOWS, **joined)


def join_all(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    others = {"b": builder.stream("other"), "c": builder.stream("third")}
    return builder.stream("in").join_all(others, lambda values: values["b"], WINDOWS, **joined)


def as_of_join(builder: StreamsBuilder, joined: dict[str, Any]) -> Any:
    return builder.stream("in").as_of_join(builder.stream("other"), lambda a, b: a, within=5, **joined)


def deduplicate(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    return builder.stream("in").deduplicate(5, **named)


def suppress(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    counts: KTable[Any, int] = (
        builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(5)).count("counts")
    )
    return counts.suppress(Suppressed.until_window_closes(), **named).to_stream(lambda key, count: key.key)


def foreign_key_join(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    joined = builder.table("in").join(builder.table("other"), lambda v: str(v), lambda a, b: a, **named)
    return joined.to_stream()


def top(builder: StreamsBuilder, named: dict[str, Any]) -> Any:
    grouped = builder.table("in").group_by(lambda k, v: (str(v), v), Grouped(name="by-value"))
    return grouped.top(2, by=lambda v: v, **named).to_stream()


NAMED, JOINED = {"named": "given"}, {"joined": StreamJoined(name="given")}
CASES: list[tuple[Define, str, dict[str, Any]]] = [
    (join, "join(..., StreamJoined(name='...'))", JOINED),
    (join_all, "join_all(..., StreamJoined(name='...'))", JOINED),
    (as_of_join, "as_of_join(..., StreamJoined(name='...'))", JOINED),
    (deduplicate, "deduplicate(..., named='...')", NAMED),
    (suppress, "suppress(..., named='...')", NAMED),
    (foreign_key_join, "join(..., named='...')", NAMED),
    (top, "top(..., named='...')", NAMED),
]


def problems(define: Define, options: dict[str, Any]) -> list[str]:
    builder = StreamsBuilder()
    define(builder, options).to("out")
    return [one.says for one in lint(builder.build()) if one.level is Level.PROBLEM]


@pytest.mark.parametrize(("define", "advice", "followed"), CASES)
def test_a_generated_name_comes_with_the_option_of_its_operator(
    define: Define, advice: str, followed: dict[str, Any]
) -> None:
    found = problems(define, {})
    assert found
    assert [says for says in found if not says.endswith(f"as in {advice}")] == []


@pytest.mark.parametrize(("define", "advice", "followed"), CASES)
def test_the_option_that_is_named_ends_the_problem(define: Define, advice: str, followed: dict[str, Any]) -> None:
    assert problems(define, followed) == []


# `streams describe --format json` and `streams diff`.

TARGET = "topologies.word_count:build"


def streams(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})


@pytest.fixture
def old(tmp_path: Path) -> Path:
    result = streams("describe", "--format", "json", TARGET)
    assert result.exit_code == 0, result.output
    file = tmp_path / "old.json"
    file.write_text(result.output)
    return file


def test_the_same_program_is_safe(old: Path) -> None:
    result = streams("diff", str(old), TARGET)
    assert (result.exit_code, result.output.strip()) == (
        0,
        "no changes: safe; the engine starts, and continues with the state",
    )


def test_a_renamed_store_is_reported(old: Path) -> None:
    old.write_text(old.read_text().replace('"word-counts"', '"words"'))
    result = streams("diff", str(old), TARGET)
    assert result.exit_code == 3
    assert "loses state  by-word-repartition: store 'words' is gone" in result.output
    assert "Materialized(name='words')" in result.output
    assert result.output.strip().endswith("changes: loses state; the engine refuses to start")
    assert result.output.count("The engine refuses to start") == 1


def test_the_result_is_json_for_programs(old: Path) -> None:
    old.write_text(old.read_text().replace('"word-counts"', '"words"'))
    result = streams("diff", str(old), TARGET, "--json")
    assert result.exit_code == 3
    found = json.loads(result.output)
    assert (found["verdict"], found["engine"]) == ("loses state", "the engine refuses to start")
    change = {"severity": "loses state", "where": "by-word-repartition", "what": "store 'words'"}
    assert change.items() <= found["changes"][0].items()


@pytest.mark.parametrize(
    ("text", "said"), [("{", "is not JSON"), ("[1]", "not a description"), (None, "cannot be read")]
)
def test_files_that_are_none(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "old.json"
    if text is not None:
        file.write_text(text)
    result = streams("diff", str(file), TARGET)
    assert result.exit_code == 1
    assert said in result.output


def test_explicit_naming_is_a_setting() -> None:
    config = StreamsConfig(application_id="app", ensure_explicit_naming=True)
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count()
    nothing_asked: Any = None
    with pytest.raises(TopologyError, match="ensure_explicit_naming is on"):
        plan_application(builder.build(), config, nothing_asked)
    assert other_settings(["ensure_explicit_naming=true"]) == {"ensure_explicit_naming": True}
    with pytest.raises(ConfigError):
        other_settings(["ensure_explicit_naming=perhaps"])


def test_two_programs_in_place_of_a_description_get_the_command_that_makes_one(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text('"""A program."""\n')
    result = streams("diff", str(tmp_path / "app.py"), TARGET)
    assert result.exit_code == 1
    assert "`streams describe --format json`" in result.output
