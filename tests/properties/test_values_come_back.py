"""What a serde has written comes back equal in value and type, at every depth, or writing it raises.

Types are made up, from leaves to classes of every library in classes of others. Values are of the type, or nearly: a part may be of
another type than the declared one.
"""

from __future__ import annotations

import dataclasses
import math
import typing
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from streams import (
    BooleanSerde,
    BytesSerde,
    Float32Serde,
    Float64Serde,
    Int16Serde,
    Int32Serde,
    Int64Serde,
    JsonSerde,
    ListSerde,
    SerdeError,
    SessionWindowedSerde,
    StringSerde,
    TopologyError,
    TupleSerde,
    UuidSerde,
    VersionedSerde,
    Window,
    Windowed,
    serde_for,
)
from streams.serdes.base import Serde, comes_back, kept
from tests.budget import up_to

CHECKED = up_to(150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


class Colour(Enum):
    RED = "red"
    ONE = 1


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Text(str):
    pass


class Number(int):
    pass


class Pair(typing.NamedTuple):
    left: int
    right: str


def shape(value: Any) -> Any:
    """A value and the types of all its parts, as something that can be compared."""
    kind = type(value)
    if dataclasses.is_dataclass(value):
        return kind, [(one.name, shape(getattr(value, one.name))) for one in dataclasses.fields(value)]
    if isinstance(value, msgspec.Struct):
        return kind, [(name, shape(getattr(value, name))) for name in value.__struct_fields__]
    if isinstance(value, pydantic.BaseModel):
        return kind, [(name, shape(getattr(value, name))) for name in kind.model_fields]
    if isinstance(value, dict):
        return kind, sorted(((repr(shape(key)), shape(part)) for key, part in value.items()), key=lambda one: one[0])
    if isinstance(value, list | tuple):
        return kind, [shape(part) for part in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(repr(shape(part)) for part in value)
    if isinstance(value, datetime):
        return kind, value.utcoffset(), value.isoformat()
    return kind, repr(value) if kind is float else value


def comes_back_or_raises(serde: Serde[Any], value: Any) -> bool:
    """Whether a value was written; it has come back then."""
    try:
        data = kept(serde).serialize("t", value)
    except SerdeError:
        return False
    assert shape(serde.deserialize("t", data)) == shape(value), data
    return True


# --- Types, each with values of it.

TEXT = st.text(st.characters(codec="utf-8"), max_size=6)
LOOKALIKES = st.sampled_from(
    ["1", "1.5", "true", "null", "2024-05-01", "2024-05-01T00:00:00", "12:00:00", "red", str(uuid.UUID(int=7))]
)
ZONES = st.sampled_from([None, timezone.utc, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("Europe/Berlin")])
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**80), 2**80),
    str: TEXT | LOOKALIKES,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    date: st.dates(),
    datetime: st.datetimes() | st.datetimes(datetime.fromisoformat("1901-01-01"), timezones=ZONES),
    time: st.times(),
    timedelta: st.timedeltas(timedelta(days=-1000), timedelta(days=1000)),
    uuid.UUID: st.uuids(),
    bytes: TEXT.map(str.encode),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
    typing.Literal["a", 1]: st.sampled_from(["a", 1]),
    type(None): st.none(),
}
KEYS = (int, str, bool, date, uuid.UUID)
HASHABLE = (int, str, date, uuid.UUID, Colour, Decimal)
STRANGE = st.sampled_from(
    [Text("a"), Number(1), Level.LOW, Colour.RED, math.nan, math.inf, Decimal("NaN"), Decimal("Infinity"), 5, 5.0, True, "5",
     None, b"\xff", (1, 2), [1, 2], {1, 2}, {"a": 1}, {1: 1}, Pair(1, "a"), date(2024, 5, 1), 2**64, object()]
)  # fmt: skip

LIST: Any = list
DICT: Any = dict
TUPLE: Any = tuple
FROZENSET: Any = frozenset
UNION: Any = typing.Union

Made = tuple[Any, st.SearchStrategy[Any]]
_count = iter(range(10**9))


def a_class(make: Callable[[str, dict[str, Any]], Any]) -> Callable[[list[Made]], Made]:
    """Makes a class with fields of given types, and its values."""

    def made(fields: list[Made]) -> Made:
        named = {f"f{at}": one for at, one in enumerate(fields)}
        kind = make(f"Made{next(_count)}", {name: of for name, (of, _) in named.items()})
        return kind, st.builds(kind, **{name: values for name, (_, values) in named.items()})

    return made


def a_typed_dict(name: str, fields: dict[str, Any]) -> Any:
    return typing_extensions.TypedDict(name, fields)  # type: ignore[operator]


CLASSES = (
    a_class(lambda name, fields: dataclasses.make_dataclass(name, list(fields.items()))),
    a_class(lambda name, fields: typing.NamedTuple(name, list(fields.items()))),
    a_class(lambda name, fields: pydantic.create_model(name, **{f: (of, ...) for f, of in fields.items()})),
    a_class(a_typed_dict),
)


def larger(inner: st.SearchStrategy[Made]) -> st.SearchStrategy[Made]:
    """Types that are made of others."""
    key = st.sampled_from(KEYS)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda one: (LIST[one[0]], st.lists(one[1], max_size=3))),
        inner.map(lambda one: (one[0] | None, st.none() | one[1]) if isinstance(one[0], type) else one),
        st.tuples(key, inner).map(
            lambda two: (DICT[two[0], two[1][0]], st.dictionaries(LEAVES[two[0]], two[1][1], max_size=3))
        ),
        st.sampled_from(HASHABLE).map(lambda one: (FROZENSET[one], st.frozensets(LEAVES[one], max_size=4))),
        some.map(lambda many: (TUPLE[tuple(one[0] for one in many)], st.tuples(*(one[1] for one in many)))),
        st.tuples(some, st.sampled_from(CLASSES)).map(lambda two: two[1](two[0])),
        st.lists(inner, min_size=2, max_size=2).map(lambda two: (UNION[two[0][0], two[1][0]], two[0][1] | two[1][1])),
    )


TYPES = st.recursive(st.sampled_from(list(LEAVES.items())), larger, max_leaves=5)


def nearly(value: Any, data: st.DataObject) -> Any:
    """The value, with one part of it replaced by something else."""
    if isinstance(value, list | dict) and value and data.draw(st.booleans()):
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = data.draw(st.sampled_from(list(keys)))
        changed = value.copy()
        changed[key] = nearly(changed[key], data)
        return changed
    if dataclasses.is_dataclass(value) and data.draw(st.booleans()):
        name = data.draw(st.sampled_from([one.name for one in dataclasses.fields(value)]))
        return dataclasses.replace(value, **{name: nearly(getattr(value, name), data)})
    return data.draw(STRANGE)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@CHECKED
@given(TYPES, st.data())
def test_values_of_any_type_come_back_or_are_refused(made: Made, data: st.DataObject) -> None:
    kind, values = made
    try:
        serde = JsonSerde(kind)
    except TopologyError:
        return
    assert comes_back(serde)
    value = data.draw(values)
    comes_back_or_raises(serde, value)
    comes_back_or_raises(serde, nearly(value, data))


SOUND = (int, str, bool, float, Decimal, date, datetime, uuid.UUID, Colour, Level, timedelta, time)


@pytest.mark.parametrize("kind", SOUND)
def test_values_of_plain_types_are_never_refused(kind: Any) -> None:
    @dataclasses.dataclass
    class Holds:
        one: kind
        many: list[kind]
        maybe: kind | None

    serde = JsonSerde(Holds)
    of = LEAVES[kind]

    @up_to(40)
    @given(st.builds(Holds, of, st.lists(of, max_size=3), st.none() | of))
    def check(value: Any) -> None:
        assert comes_back_or_raises(serde, value)

    check()


# --- Serdes of plain values, and what wraps them.

ANY = st.one_of(
    *LEAVES.values(), STRANGE, st.lists(st.integers() | st.none(), max_size=3), st.tuples(st.text(), st.integers())
)
SERDES: list[Serde[Any]] = [
    *(StringSerde(), BytesSerde(), UuidSerde(), BooleanSerde(), JsonSerde(), VersionedSerde(JsonSerde(), 0)),
    *(Int16Serde(), Int32Serde(), Int64Serde(), Float32Serde(), Float64Serde()),
    *(ListSerde(StringSerde()), ListSerde(Int64Serde()), ListSerde(Float32Serde())),
    *(TupleSerde(StringSerde(), Int64Serde()), TupleSerde(UuidSerde(), ListSerde(BooleanSerde()))),
]


def entries(serde: Serde[Any]) -> st.SearchStrategy[Any]:
    """Values that a serde may be given: right ones and wrong ones."""
    if isinstance(serde, ListSerde):
        inner = st.none() | entries(serde.inner)
        return ANY | st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple)
    if isinstance(serde, TupleSerde):
        return ANY | st.tuples(*(st.none() | entries(one) for one in serde.entries))
    return ANY


@pytest.mark.parametrize("serde", SERDES, ids=repr)
def test_values_of_plain_serdes_come_back_or_are_refused(serde: Serde[Any]) -> None:
    @up_to(60)
    @given(entries(serde))
    def check(value: Any) -> None:
        if value == value:  # a NaN is equal to none
            comes_back_or_raises(serde, value)
            comes_back_or_raises(SessionWindowedSerde(serde), Windowed(value, Window(0, 1)))

    assert comes_back(serde)
    assert kept(serde) == serde
    assert repr(kept(serde)) == repr(serde)
    check()


@CHECKED
@given(TYPES, st.data())
def test_values_of_derived_serdes_come_back_or_are_refused(made: Made, data: st.DataObject) -> None:
    kind, values = made
    try:
        serde = serde_for(kind)
    except TopologyError:
        return
    comes_back_or_raises(serde, data.draw(values | STRANGE))
