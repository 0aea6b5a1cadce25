"""What a serde is: two methods, checked while the topology is built, and inner serdes checked when the outer one is made."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
from streams.serdes.json_scan import normal_json
from tests.budget import up_to


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
            r"TimeWindowedSerde\(size_ms=-1\): the size of a window must not be negative",
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


# --- What serdes write occupies memory of its own size: a step holds hundreds of thousands of results.

MEASURE = """
import resource
from streams import JsonSerde
from streams.serdes.columns import write_all
values = [{"n": number} for number in range(40_000)]
write_all(JsonSerde(), "topic", values[:10])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kept = [JsonSerde().serialize("topic", value) for value in values[:20_000]], write_all(JsonSerde(), "topic", values)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_json_takes_no_more_memory_than_its_text() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 40_000  # KiB; 4 KiB a value would be 240 000


# --- JSON that may stay as it is: never where orjson would write anything else, and always in the usual cases.

PIECES = [
    *("{", "}", "[", "]", ",", ":", '"', '"a"', '"b":', '"a":', '""', " ", "\\n", "\\u00e9", "\u00e9", "\x7f", "\x01", "e", "E+"),
    *("0", "-", "-0", "1", "23", ".", ".0", "0.1", "00", "true", "false", "null", "123456789012345", "0.0001"),
]  # fmt: skip
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=4).map(str),
    st.integers(-(2**70), 2**70).map(str),
)
OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=2), inner),
)


def is_normal(text: bytes) -> bool:
    """With other rows around it, and a column that does not begin with its buffer."""
    column = pa.array([b"[]", b"[", text, None, b"1"], pa.binary())[1:]
    broken, normal, null, last = normal_json(column).tolist()
    assert (broken, null) == (False, False)
    assert last or not normal
    return normal


def written_anew(text: bytes) -> bytes | None:
    try:
        value = orjson.loads(text)
    except ValueError:
        return None
    return None if value is None else orjson.dumps(value)


@up_to(500)
@given(st.one_of(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), NUMBERS, st.text()))
@example("1e5")
@example('{"a":1,"b":2,"a":3}')
@example('{"a":{"a":1},"b":{"a":1}}')
@example("[" * 40 + "]" * 40)
@example("0.00001")
@example("-0.0")
def test_what_is_normal_is_what_orjson_writes(text: str) -> None:
    data = text.encode(errors="replace")
    assert not is_normal(data) or written_anew(data) == data


@pytest.mark.slow
@up_to(300)
@given(OBJECTS)
def test_written_values_are_left_as_they_are_or_uncertain(value: object) -> None:
    try:
        data = orjson.dumps(value)
    except TypeError:  # integers of more than 64 bits
        return
    assert not is_normal(data) or written_anew(data) == data


@pytest.mark.parametrize(
    "text",
    [
        b'{"n":10000001,"v":23.125,"pad":"xxxx"}',
        b'{"a":{"b":[1,-2,3.5,true,null]},"c":[],"d":{}}',
        '"h\u00e9"'.encode(),
        b"0.5",
        b"-12.0",
        b'[{"a":1},{"a":2}]',
    ],
)
def test_usual_values_are_normal(text: bytes) -> None:
    assert is_normal(text)


def test_a_text_that_is_not_utf8_makes_the_column_uncertain() -> None:
    assert normal_json(pa.array([b'"\xff"', b"1"], pa.binary())).tolist() == [False, False]
