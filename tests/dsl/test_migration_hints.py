"""Names that do not exist here, written from memory of Kafka Streams or of another library, are answered by a sentence."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

import streams
from streams import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    JoinWindows,
    KStream,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyBuilder,
    TopologyError,
    agg,
)
from streams.errors import UnknownNameError
from streams.migration_hints import OPERATORS, PACKAGE, SETTINGS, answer
from streams.topology.graph import StoreNode

TABLE = {**OPERATORS, **SETTINGS}
CLASSES: dict[str, type] = {
    **{owner: getattr(streams, owner) for owner in TABLE if hasattr(streams, owner)},
    "StoreNode": StoreNode,
    "AggregateFunctions": type(agg) if not isinstance(agg, type) else agg,
}


def objects() -> dict[str, Any]:
    """One object of each class with which a topology is built."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    grouped = stream.group_by_key()
    table = grouped.count()
    windows = TimeWindows.of_size_with_no_grace(5)
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    cogrouped = grouped.cogroup(lambda value, total: total)
    made = [
        builder,
        TopologyBuilder(),
        stream,
        table,
        builder.global_table("g"),
        grouped,
        grouped.windowed_by(windows),
        grouped.windowed_by(sessions),
        table.group_by(lambda key, value: (key, value)),
        cogrouped,
        cogrouped.windowed_by(windows),
        cogrouped.windowed_by(sessions),
        stream.split(),
        windows,
        sessions,
        SlidingWindows.of_time_difference_with_no_grace(5),
        JoinWindows.of_time_difference_with_no_grace(5),
        EmitStrategy.on_window_close(),
        Suppressed.until_window_closes(),
        BufferConfig.unbounded(),
        *(getattr(streams, name)() for name in ("Consumed", "Produced", "Grouped", "Repartitioned", "Materialized")),
        *(getattr(streams, name)() for name in ("Joined", "StreamJoined", "Branched", "UnlimitedWindows")),
        streams.Named("x"),
        Stores.key_value_store("s", streams.StringSerde(), streams.JsonSerde()),
    ]
    # What `col` makes has a class of its own.
    return {type(one).__name__: one for one in made} | {"Expression": streams.col("x")}


OBJECTS = objects()


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def sentence(owner: object, name: str) -> str:
    with pytest.raises(UnknownNameError) as caught:
        getattr(owner, name)
    return caught.value.args[0]


def test_the_table_has_the_names_that_people_write() -> None:
    assert sum(map(len, TABLE.values())) + len(PACKAGE) > 250


# One test for all names of a class: a test for each of 600 names takes longer than what it asks.


@pytest.mark.parametrize("owner", TABLE)
def test_a_class_answers_each_name_of_the_table(owner: str) -> None:
    for name, answered in TABLE[owner].items():
        assert sentence(CLASSES[owner], name) == f"{owner} has no '{name}': {answered}."


@pytest.mark.parametrize("owner", [owner for owner in TABLE if owner in OBJECTS])
def test_an_object_answers_each_name_of_the_table_as_java_writes_it(owner: str) -> None:
    asked = OBJECTS[owner]
    for name, answered in TABLE[owner].items():
        java = camel_case(name)
        assert sentence(asked, java) == f"{type(asked).__name__} has no '{java}': {answered}."


def test_objects_of_each_class_are_asked() -> None:
    assert TABLE.keys() - OBJECTS.keys() == {"Stores", "AggregateFunctions"}


def test_the_package_answers_each_name_of_the_table() -> None:
    for name, answered in PACKAGE.items():
        assert sentence(streams, name) == f"streams has no '{name}': {answered}."


def test_an_import_of_a_name_that_is_not_here_says_the_same() -> None:
    for name, answered in PACKAGE.items():
        with pytest.raises(ImportError, match=re.escape(f"streams has no '{name}': {answered}.")):
            exec(f"from streams import {name}")


CALLED = sorted(
    {call for names in TABLE.values() for text in names.values() for call in re.findall(r"\b([A-Za-z_]+)\(", text)}
)
OF_THE_USER = {"function_of_a_list", "range"}


def test_what_the_answers_advise_exists() -> None:
    known = [*CLASSES.values(), *OBJECTS.values(), agg, streams]
    missing = {call for call in CALLED if not any(hasattr(one, call) for one in known)}
    assert missing <= OF_THE_USER


@pytest.mark.parametrize(
    ("owner", "name", "here"),
    [
        ("KStream", "mapValues", "map_values(...)"),
        ("KStream", "flatMapValues", "flat_map_values(...)"),
        ("KStream", "selectKey", "select_key(...)"),
        ("KStream", "groupByKey", "group_by_key(...)"),
        ("KStream", "leftJoin", "left_join(...)"),
        ("KStream", "toTable", "to_table(...)"),
        ("KStream", "filterNot", "filter_not(...)"),
        ("KTable", "toStream", "to_stream(...)"),
        ("KTable", "outerJoin", "outer_join(...)"),
        ("KTable", "transformValues", "transform_values(...)"),
        ("KTable", "storeName", "store_name"),
        ("KGroupedStream", "windowedBy", "windowed_by(...)"),
        ("TimeWindowedKStream", "emitStrategy", "emit_strategy(...)"),
        ("BranchedKStream", "defaultBranch", "default_branch(...)"),
        ("StreamsBuilder", "globalTable", "global_table(...)"),
        ("StreamsBuilder", "addStateStore", "add_state_store(...)"),
        ("TopologyBuilder", "addProcessor", "add_processor(...)"),
        ("Consumed", "withKeySerde", "Consumed(key_serde=...)"),
        ("Consumed", "with_timestamp_extractor", "Consumed(timestamp_extractor=...)"),
        ("Materialized", "withRetention", "Materialized(retention=...)"),
        ("StreamJoined", "withOtherValueSerde", "StreamJoined(other_value_serde=...)"),
        ("TimeWindows", "advanceBy", "advance_by(...)"),
        ("TimeWindows", "ofSizeAndGrace", "of_size_and_grace(...)"),
        ("JoinWindows", "ofTimeDifferenceWithNoGrace", "of_time_difference_with_no_grace(...)"),
        ("Suppressed", "untilWindowCloses", "until_window_closes(...)"),
    ],
)
def test_java_s_way_to_write_a_name_is_known(owner: str, name: str, here: str) -> None:
    assert sentence(OBJECTS[owner], name) == f"{owner} has no '{name}': use {here}."


@pytest.mark.parametrize(
    ("owner", "name", "guess"),
    [
        (OBJECTS["KStream"], "filtr", "did you mean filter or filter_not?"),
        (KStream, "map_valuse", "did you mean map_values"),
        (OBJECTS["StreamsBuilder"], "steam", "did you mean stream?"),
        (Materialized, "retension", "did you mean retention or history_retention?"),
        (Stores, "key_value_stor", "did you mean key_value_store"),
        (streams, "KStreams", "did you mean KStream"),
        (OBJECTS["KStream"], "xyzzy", "help(KStream) shows what it has"),
    ],
)
def test_a_name_that_is_like_another_leads_to_it(owner: object, name: str, guess: str) -> None:
    assert guess in sentence(owner, name)


def test_a_setting_that_an_option_does_not_have_is_answered_too() -> None:
    with pytest.raises(TopologyError, match="Consumed has no 'value_serd': did you mean value_serde"):
        Consumed(value_serd=None)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["__array__", "_repr_html_", "_ipython_canary_method_should_not_exist_"])
def test_python_s_own_questions_are_answered_as_always(name: str) -> None:
    for owner in [*CLASSES.values(), *OBJECTS.values()]:
        with pytest.raises(AttributeError) as caught:
            getattr(owner, name)
        assert not isinstance(caught.value, TopologyError), owner


@pytest.mark.parametrize("name", ["mapValues", "nothing_like_it"])
def test_has_and_get_with_a_default_work(name: str) -> None:
    assert (hasattr(OBJECTS["KStream"], name), getattr(KStream, name, None)) == (False, None)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_windows_can_be_copied(again: Callable[[object], object]) -> None:
    assert again(OBJECTS["TimeWindows"]) == OBJECTS["TimeWindows"]


def test_modules_of_the_package_are_imported_as_always() -> None:
    exec("from streams import testing, errors")


def test_nothing_is_like_a_name_of_no_letters() -> None:
    assert answer(KStream, "q9") is None
