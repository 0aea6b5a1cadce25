"""Serdes of keys: one notation of plain JSON, and keys that Python calls equal."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark import cloudpickle

from streams import Consumed, Int64Serde, JsonSerde, Serde, SerdeError, StringSerde, TimeWindowedSerde, TupleSerde
from streams.model.same_key import same_key
from streams.serdes.base import kept, serde_identity
from streams.serdes.columns import normal_cells
from streams.serdes.exactness import always_canonical
from streams.serdes.keys import JsonKeySerde, as_key
from streams.serdes.primitives import UuidSerde

J = JsonKeySerde()
NAMES = st.text(st.sampled_from("abé\n"), max_size=3)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2).map(lambda x: round(x, 2)) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.booleans(), st.booleans())
@example({"b": 1, "a": 2}, False, False)
@example({"a": {"b": 1, "a": 2}}, False, False)
@example([{"ab": 1, "a": 2}, {"a": 1}], False, False)
def test_what_the_scan_takes_for_canonical_is_what_the_serde_writes(value: Any, spaces: bool, escapes: bool) -> None:
    text = json.dumps(value, separators=None if spaces else (",", ":"), ensure_ascii=escapes).encode()
    (normal,) = scanned(J, [text])
    written = J.serialize("t", J.deserialize("t", text))
    if normal:
        assert written == text
    # What is canonical is so again, and is what sorting by names gives.
    assert written is None or J.serialize("t", J.deserialize("t", written)) == written
    if written is not None:
        assert written == orjson.dumps(orjson.loads(text), option=orjson.OPT_SORT_KEYS)


def scanned(serde: Serde[Any], cells: list[bytes | None]) -> list[bool]:
    found = normal_cells(serde, pa.array(cells, pa.binary()))
    assert found is not None
    return list(map(bool, found))


def test_a_scan_knows_plain_keys_without_reading_them() -> None:
    cells = [b'{"a":1,"b":[{"c":"x"}]}', b'"k"', b"7", b'{"b":1,"a":2}', b'{"a": 1}', b"1e0", None]
    assert scanned(J, cells) == [True, True, True, False, False, False, True]
    made = "0a1b2c3d-0000-4000-8000-00000000abcd"
    texts = [made.encode(), made.upper().encode(), made.encode() + b"\n", b"x", None]
    assert scanned(UuidSerde(), texts) == [True, False, False, False, True]


def test_the_serde_of_keys_is_the_serde() -> None:
    option = Consumed(JsonSerde(), JsonSerde())
    assert type(option.key_serde) is JsonKeySerde
    assert type(option.value_serde) is JsonSerde
    assert option == Consumed(JsonKeySerde(), JsonSerde())
    for made in (J, pickle.loads(pickle.dumps(J)), cloudpickle.loads(cloudpickle.dumps(J)), kept(J)):
        assert type(made) is JsonKeySerde
        assert made == JsonSerde() == made
        assert hash(made) == hash(JsonSerde())
        assert (serde_identity(made), repr(made)) == (serde_identity(JsonSerde()), repr(JsonSerde()))
    assert JsonSerde(dict[str, int]) != J
    with pytest.raises(SerdeError, match="cannot keep"):
        kept(J).serialize("t", {1: "a"})
    with pytest.raises(SerdeError, match="cannot keep"):
        kept(J).serialize("t", [("a", {"b": 1})])
    inside = as_key(TupleSerde(StringSerde(), TimeWindowedSerde(JsonSerde(), 5)))
    assert inside == TupleSerde(StringSerde(), TimeWindowedSerde(JsonSerde(), 5))
    assert type(inside.entries[1].inner) is JsonKeySerde  # type: ignore[attr-defined]
    assert as_key(text := StringSerde()) is text


def test_serdes_with_one_notation() -> None:
    assert always_canonical(TimeWindowedSerde(TupleSerde(StringSerde(), Int64Serde()), 5))
    for serde in (J, UuidSerde(), JsonSerde(int), TupleSerde(StringSerde(), J), TimeWindowedSerde(UuidSerde(), 5)):
        assert not always_canonical(serde)


@dataclass(frozen=True)
class Priced:
    price: Any


NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
ELSEWHERE = NOON.astimezone(timezone(timedelta(hours=1)))
OTHERS = [(1, 1.0), (1, True), (0.0, -0.0), (Decimal("1.0"), Decimal("1.00")), (NOON, ELSEWHERE), ("a", "b"), (None, 0)]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_keys_that_are_written_as_other_bytes_are_others(one: Any, other: Any) -> None:
    for make in (lambda x: x, lambda x: (x,), lambda x: {"k": [x]}, Priced, lambda x: frozenset([x])):
        assert same_key(make(one), make(one))
        assert not same_key(make(one), make(other))
    assert same_key({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert same_key(float("nan"), float("nan"))
