"""What a serde is: two methods, checked while the topology is built, and inner serdes checked when the outer one is made."""

from datetime import timedelta

import pytest

from streams import (
    Int64Serde,
    ListSerde,
    SessionWindowedSerde,
    StringSerde,
    TimeWindowedSerde,
    TopologyError,
    VersionedSerde,
    Window,
    Windowed,
)
from streams.serdes.base import check_serde


class WithoutHeaders:
    def serialize(self, topic, value): ...

    def deserialize(self, topic, data): ...


class OneWay:
    def serialize(self, topic, value, headers=None): ...


class WithOtherNames:
    def serialize(self, where, what, these=None): ...

    def deserialize(self, *given): ...


@pytest.mark.parametrize(
    ("serde", "message"),
    [
        (StringSerde, r"Consumed\(key_serde=...\) takes an object, not the class StringSerde: write StringSerde\(\)\."),
        (str, r"takes an object, not the class str: write a serde such as StringSerde\(\)\."),
        ("utf-8", r"takes a serde such as StringSerde\(\), not 'utf-8': str has no serialize and no deserialize\."),
        (OneWay(), r"OneWay has no deserialize\. .* deserialize\(self, topic, data, headers=None\)\."),
        (
            WithoutHeaders(),
            r"WithoutHeaders.serialize\(topic, value\) .* write def serialize\(self, topic, value, headers=None\)\.",
        ),
    ],
)
def test_what_is_no_serde_is_refused_with_what_to_write(serde, message):
    with pytest.raises(TopologyError, match=message):
        check_serde(serde, "Consumed(key_serde=...)")


@pytest.mark.parametrize("serde", [StringSerde(), WithOtherNames()])
def test_whatever_can_be_called_as_a_serde_is_one(serde):
    check_serde(serde)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ListSerde(str), r"ListSerde\(inner\) takes an object, not the class str"),
        (lambda: SessionWindowedSerde("k"), r"SessionWindowedSerde\(inner\) takes a serde"),
        (lambda: TimeWindowedSerde(10), r"TimeWindowedSerde\(inner\) takes a serde"),
        (lambda: VersionedSerde(None, 0), r"VersionedSerde\(inner\) takes a serde"),
        (lambda: TimeWindowedSerde(StringSerde(), "1h"), "must be a timedelta or whole milliseconds"),
        (lambda: TimeWindowedSerde(StringSerde(), 1.5), "must be a timedelta or whole milliseconds"),
        (
            lambda: TimeWindowedSerde(StringSerde(), -1),
            r"TimeWindowedSerde\(size_ms=-1\): the size of a window is not negative",
        ),
    ],
)
def test_wrong_arguments_of_a_serde_are_errors_when_it_is_made(make, message):
    with pytest.raises(TopologyError, match=message):
        make()


def test_the_size_of_a_windowed_serde_is_a_timedelta_or_ms():
    serde = TimeWindowedSerde(Int64Serde(), timedelta(hours=1))
    assert serde == TimeWindowedSerde(Int64Serde(), size_ms=3_600_000)
    assert serde.deserialize("t", serde.serialize("t", Windowed(7, Window(0, 3_600_000)))) == Windowed(
        7, Window(0, 3_600_000)
    )
