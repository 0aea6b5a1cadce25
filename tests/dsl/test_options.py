"""Options: arguments without a name are told apart by their types, and what cannot be meant is refused by a sentence."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from streams import (
    Branched,
    Consumed,
    Grouped,
    Int64Serde,
    Joined,
    JsonSerde,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    Stores,
    StreamJoined,
    StreamsBuilder,
    StringSerde,
    TopologyError,
    UsePartitionTimeOnInvalidTimestamp,
)
from streams.dsl.options import Option

TEXT, JSON, LONG = StringSerde(), JsonSerde(), Int64Serde()
DAY = timedelta(days=1)


def first(topic: str, key: object, value: object, partitions: int) -> int:
    return 0


def two_days(record: object, partition_time: int) -> int:
    return 2


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (Grouped("by-region"), Grouped(name="by-region")),
        (Grouped(TEXT, JSON), Grouped(key_serde=TEXT, value_serde=JSON)),
        (Grouped("by-region", TEXT, JSON), Grouped(name="by-region", key_serde=TEXT, value_serde=JSON)),
        (Grouped(TEXT, JSON, "by-region"), Grouped(name="by-region", key_serde=TEXT, value_serde=JSON)),
        (Grouped(None, JSON), Grouped(value_serde=JSON)),
        (Grouped(JSON, key_serde=TEXT), Grouped(key_serde=TEXT, value_serde=JSON)),
        (Materialized("counts"), Materialized(name="counts")),
        (Materialized("counts", value_serde=LONG), Materialized(name="counts", value_serde=LONG)),
        (Materialized(TEXT, LONG), Materialized(key_serde=TEXT, value_serde=LONG)),
        (Materialized("counts", DAY), Materialized(name="counts", retention=DAY)),
        (Materialized(None, TEXT, LONG, None, False), Materialized(key_serde=TEXT, value_serde=LONG, caching=False)),
        (Materialized(None, LONG), Materialized(value_serde=LONG)),
        (StreamJoined(None, LONG, JSON), StreamJoined(value_serde=LONG, other_value_serde=JSON)),
        (Consumed("orders", JSON, value_serde=LONG), Consumed(name="orders", key_serde=JSON, value_serde=LONG)),
        (Consumed("latest"), Consumed(offset_reset="latest")),
        (Consumed(DAY), Consumed(offset_reset=DAY)),
        (Consumed(two_days), Consumed(timestamp_extractor=two_days)),
        (
            Consumed(UsePartitionTimeOnInvalidTimestamp()),
            Consumed(timestamp_extractor=UsePartitionTimeOnInvalidTimestamp()),
        ),
        (Produced("sink", first), Produced(name="sink", partitioner=first)),
        (Repartitioned("spread", 8), Repartitioned(name="spread", partitions=8)),
        (Joined("enrich", TEXT), Joined(name="enrich", key_serde=TEXT)),
        (Joined(DAY), Joined(grace=DAY)),
        (StreamJoined(TEXT, JSON, LONG), StreamJoined(key_serde=TEXT, value_serde=JSON, other_value_serde=LONG)),
        (StreamJoined("join", "rows"), StreamJoined(name="join", store_name="rows")),
        (Branched("late", id), Branched(name="late", function=id)),
    ],
)
def test_arguments_without_a_name_go_where_their_type_fits(short: Option, long: Option) -> None:
    assert short == long


class Swapped:
    """The methods of a serde without the headers."""

    def serialize(self, topic: str, value: object) -> bytes:
        return b""

    def deserialize(self, topic: str, data: bytes) -> object:
        return None


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Grouped("a", "b"), r"Grouped was given more than one name: 'b' is too many\."),
        (lambda: Grouped(StringSerde), r"Grouped\(key_serde=\.\.\.\) takes an object, not the class StringSerde"),
        (lambda: Grouped(Swapped()), r"write def serialize\(self, topic, value, headers=None\)"),
        (lambda: Produced(value_serde=Swapped()), r"write def serialize\(self, topic, value, headers=None\)"),
        (lambda: Grouped(TEXT, JSON, LONG), "more than one key_serde and value_serde: an Int64Serde is too many"),
        (lambda: Grouped(lambda value: value), r"takes key_serde=\.\.\., value_serde=\.\.\., name=\.\.\., but not a lambda\."),
        (lambda: Grouped(Materialized("x")), "takes .* but not a Materialized"),
        (
            lambda: Materialized(Stores.versioned_key_value_store("x", TEXT, LONG, DAY)),
            r"takes no store: give the store's name, as in Materialized\('x'\)",
        ),
        (lambda: Materialized(name=7), "7 cannot be the name of an operator or a store"),
    ],
)  # fmt: skip
def test_what_fits_nowhere_is_refused(make: Callable[[], Option], sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("shown", "option"),
    [
        ("Materialized()", Materialized()),
        ("Materialized(name='counts', caching=False)", Materialized("counts", caching=False)),
        ("Grouped(key_serde=StringSerde())", Grouped(TEXT)),
        ("Consumed(offset_reset='latest')", Consumed("latest")),
        ("Named(name='x')", Named("x")),
    ],
)
def test_an_option_shows_what_is_set(shown: str, option: Option) -> None:
    assert repr(option) == shown


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda option: pickle.loads(pickle.dumps(option)), replace]
)
def test_an_option_can_be_copied(again: Callable[[Option], Option]) -> None:
    option = Materialized("counts", LONG, changelog_config={"segment.ms": "1000"})
    assert again(option) == option


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (len, r"filter\(\) is the name of the operator: it takes text or Named\(...\), not the function len\."),
        (lambda value: value, "not a lambda"),
        (7, "not 7"),
        (TEXT, "not a StringSerde"),
    ],
)
def test_what_is_no_name_is_refused_in_few_words(given: object, sentence: str) -> None:
    with pytest.raises(TopologyError, match=sentence):
        StreamsBuilder().stream("in").filter(bool, given)


@pytest.mark.parametrize("option", [Materialized, StreamJoined])
def test_the_signature_that_help_shows_has_values_as_defaults(option: type[Option]) -> None:
    assert "changelog_config: 'Mapping[str, str]' = {}," in str(inspect.signature(option))
