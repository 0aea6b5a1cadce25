"""Avro's values: branches of unions, defaults, schema resolution, and what is refused when it is written."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from copy import copy, deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pytest

from streams import (
    AvroFixed,
    AvroRecord,
    AvroSerde,
    AvroSymbol,
    Consumed,
    Materialized,
    Produced,
    SchemaRegistry,
    SerdeError,
    StreamsBuilder,
)
from streams.serdes.base import comes_back
from streams.testing import TopologyTestDriver
from tests.serdes.registry_server import running

UTC = timezone.utc
ID = {"name": "id", "type": "long"}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


ALIKE = [record("Created", ID), record("Deleted", ID)]
MONEY = logical("bytes", "decimal", precision=6, scale=2)
MILLIS, MICROS = logical("long", "timestamp-millis"), logical("long", "timestamp-micros")
LEVEL = {"type": "enum", "name": "Level", "symbols": ["low", "high"]}
GRADE = {"type": "enum", "name": "Grade", "symbols": ["high", "top"]}
TREE = record("Tree", ID, field("next", ["null", "Tree"], default=None), field("body", ALIKE))


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running() as fake:
        yield SchemaRegistry(fake.url, {"max.retries": 0})


@pytest.fixture
def serde_of(registry: SchemaRegistry):
    return lambda schema, **more: AvroSerde(registry, json.dumps(schema), **more)


# Unions whose branches a bare value does not tell.


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ALIKE, AvroRecord("shop.Deleted", {"id": 1})),
        (record("Event", field("body", ALIKE)), {"body": AvroRecord("shop.Deleted", {"id": 1})}),
        ({"type": "array", "items": ["null", *ALIKE]}, [None, AvroRecord("shop.Deleted", {"id": 1})]),
        ({"type": "map", "values": ALIKE}, {"a": AvroRecord("shop.Deleted", {"id": 1})}),
        (["null", {"type": "map", "values": "long"}, record("Point", ID)], AvroRecord("map", {"id": 1})),
        (["string", LEVEL], AvroSymbol("Level", "low")),
        (record("R", field("x", [LEVEL, GRADE])), {"x": AvroSymbol("shop.Grade", "high")}),
        (["bytes", {"type": "fixed", "name": "Pair", "size": 2}], AvroFixed("Pair", b"ab")),
        (
            TREE,
            {
                "id": 1,
                "next": {"id": 2, "next": None, "body": AvroRecord("shop.Deleted", {"id": 1})},
                "body": AvroRecord("shop.Created", {"id": 1}),
            },
        ),
    ],
)
def test_a_value_keeps_its_branch_through_copies_and_pickles(serde_of, schema: Any, value: Any) -> None:
    serde = serde_of(schema)
    data = serde.kept().serialize("t", value)
    found = serde.deserialize("t", data)
    for one in (found, copy(found), deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (one, type(one), repr(one)) == (value, type(value), repr(value))
        assert serde.serialize("t", one) == serde.kept().serialize("t", one) == data


def test_a_changed_record_keeps_its_branch_and_a_bare_dict_has_none(serde_of) -> None:
    serde = serde_of(record("Event", field("body", ALIKE)))
    body = serde.deserialize("t", serde.serialize("t", {"body": ("shop.Deleted", {"id": 1})}))["body"]
    assert body == {"id": 1}
    assert body != AvroRecord("shop.Created", {"id": 1})
    assert orjson.dumps(body) == b'{"id":1}'
    for changed in (body | {"id": 2}, AvroRecord(body.branch, {**body, "id": 2}), {"-type": "shop.Deleted", "id": 2}):
        assert serde.deserialize("t", serde.serialize("t", {"body": changed}))["body"] == AvroRecord(
            "shop.Deleted", {"id": 2}
        )
    with pytest.raises(
        SerdeError,
        match=r"field 'body': it may be shop.Created or shop.Deleted: say which, as AvroRecord\('shop.Created'",
    ):
        serde.serialize("t", {"body": {**body, "id": 2}})
    with pytest.raises(SerdeError, match=r"it takes shop.Created or shop.Deleted, not shop.Closed"):
        serde.kept().serialize("t", {"body": AvroRecord("shop.Closed", {"id": 1})})


@pytest.mark.parametrize(
    ("union", "value"),
    [
        (["null", record("Order", ID)], {"id": 1}),
        ([record("A", ID), record("B", field("name", "string"))], {"name": "x"}),
        ([record("A", field("x", "int")), record("B", field("x", "string"))], {"x": "y"}),
        (
            [record("A", field("kind", LEVEL)), record("B", field("kind", {**GRADE, "symbols": ["top"]}))],
            {"kind": "top"},
        ),
        (["int", "string"], "5"),
        (["string", LEVEL], "low"),
        ([LEVEL, GRADE], "top"),
        (["int", "long"], 2**40),
        (["float", "double"], 0.1),
        (["null", {"type": "array", "items": "int"}], [1, 2]),
    ],
)
def test_where_the_value_tells_its_branch_it_stays_a_plain_one(serde_of, union: Any, value: Any) -> None:
    serde = serde_of(record("R", field("x", union)))
    found = serde.deserialize("t", serde.kept().serialize("t", {"x": value}))["x"]
    assert (found, type(found)) == (value, type(value))


def test_a_branch_goes_through_steps_stores_and_restarts(serde_of) -> None:
    serde = serde_of(record("Event", field("body", ALIKE)))
    builder = StreamsBuilder()
    events = builder.stream("in", Consumed(value_serde=serde))
    events.to_table(Materialized(name="last", value_serde=serde)).to_stream().map_values(lambda v: v).to(
        "out", Produced(value_serde=serde)
    )
    deleted = {"body": AvroRecord("shop.Deleted", {"id": 1})}
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in").pipe_input("a", deleted, 1)
        driver.restart()
        assert driver.get_store("last").get("a").value == deleted
        assert driver.create_output_topic("out").read_value() == deleted


# What a record lacks, or was written as something else.


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("bytes", "\u00ff", b"\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, "\u0001\u0002", b"\x01\x02"),
        (MONEY, "\u00ff\u0085", Decimal("-1.23")),
        (logical("fixed", "decimal", name="D", size=2, precision=4, scale=1), "\u0000\u0015", Decimal("2.1")),
        (MILLIS, 1, datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC)),
        (MICROS, -1, datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)),
        (logical("int", "date"), 1, date(1970, 1, 2)),
        (logical("int", "time-millis"), 1, time(0, 0, 0, 1000)),
        (logical("long", "time-micros"), 1, time(0, 0, 0, 1)),
        (logical("string", "uuid"), "0" * 31 + "1", UUID(int=1)),
        ("double", 0, 0.0),
        ("float", "NaN", None),
        ({"type": "array", "items": "double"}, [1, 2], [1.0, 2.0]),
        ({"type": "map", "values": MONEY}, {"a": "\u0001"}, {"a": Decimal("0.01")}),
        (
            record("In", field("a", "int"), field("b", MONEY, default="\u0007")),
            {"a": 1},
            {"a": 1, "b": Decimal("0.07")},
        ),
        (["double", "null"], 1, 1.0),
        (["null", "bytes"], None, None),
        (["null", "bytes"], "\u00ff", b"\xff"),
        (ALIKE, {"id": 1}, AvroRecord("shop.Created", {"id": 1})),
        (LEVEL, "low", "low"),
    ],
)
def test_a_default_is_a_value_of_its_type(serde_of, kind: Any, default: Any, value: Any) -> None:
    old = serde_of(record("Order", ID)).serialize("t", {"id": 1})
    serde = serde_of(record("Order", ID, field("x", kind, default=default)))
    found = serde.deserialize("t", old)
    assert list(found) == ["id", "x"]
    if default == "NaN":
        assert found["x"] != found["x"]
    else:
        assert (found["x"], type(found["x"])) == (value, type(value))
    # A record that leaves the field out is written with the same value.
    assert serde.serialize("t", {"id": 1}) == serde.serialize("t", found) == serde.kept().serialize("t", found)


def test_a_default_belongs_to_one_record(serde_of) -> None:
    old = serde_of(record("Order", ID)).serialize("t", {"id": 1})
    serde = serde_of(record("Order", ID, field("tags", {"type": "array", "items": "string"}, default=[])))
    serde.deserialize("t", old)["tags"].append("mine")
    assert serde.deserialize("t", old)["tags"] == []


def test_a_wrong_default_is_named(serde_of) -> None:
    old = serde_of(record("Order", ID)).serialize("t", {"id": 1})
    with pytest.raises(SerdeError, match=r"field 'x': its default 'Ā' is not a bytes"):
        serde_of(record("Order", ID, field("x", "bytes", default="\u0100"))).deserialize("t", old)


@pytest.mark.parametrize(
    ("written", "read", "value", "found"),
    [
        ("int", "double", 1, 1.0),
        ("string", "bytes", "é", b"\xc3\xa9"),
        ("long", MILLIS, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (MILLIS, "long", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1000),
        (MILLIS, MICROS, datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC)),
        (MONEY, MONEY | {"scale": 4, "precision": 8}, Decimal("1.25"), Decimal("1.25")),
        ("int", ["null", "double"], 1, 1.0),
        (["null", "int"], "double", 1, 1.0),
        (["int", "string"], ["string", "long"], 1, 1),
        (ALIKE[0], ALIKE, {"id": 1}, AvroRecord("shop.Created", {"id": 1})),
        (ALIKE[::-1], ALIKE, ("shop.Deleted", {"id": 1}), AvroRecord("shop.Deleted", {"id": 1})),
        (["null", ALIKE[0]], ["null", *ALIKE], {"id": 1}, AvroRecord("shop.Created", {"id": 1})),
        (ALIKE, ALIKE[1], ("shop.Deleted", {"id": 1}), {"id": 1}),
        (LEVEL, {**LEVEL, "symbols": ["other"], "default": "other"}, "low", "other"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1], [1.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "double"}, {"a": 1}, {"a": 1.0}),
        (record("In", ID), record("In", field("number", "double", aliases=["id"])), {"id": 1}, {"number": 1.0}),
        (record("Old", ID), record("New", ID) | {"aliases": ["Old"]}, {"id": 1}, {"id": 1}),
    ],
)
def test_a_value_is_read_as_the_readers_type(serde_of, written: Any, read: Any, value: Any, found: Any) -> None:
    old = serde_of(record("R", field("x", written))).serialize("t", {"x": value})
    got = serde_of(record("R", field("x", read))).deserialize("t", old)["x"]
    assert (got, type(got)) == (found, type(found))


def test_fields_have_the_readers_order_whatever_the_writers(serde_of) -> None:
    a, b = field("a", "int"), field("b", "int")
    old = serde_of(record("R", b, a)).serialize("t", {"a": 1, "b": 2})
    serde = serde_of(record("R", a, b))
    assert list(serde.deserialize("t", old)) == ["a", "b"]
    assert serde.serialize("t", serde.deserialize("t", old)) == serde.serialize("t", {"a": 1, "b": 2})


def test_a_type_that_contains_itself_is_resolved(serde_of) -> None:
    old = record("Node", field("n", "int"), field("next", ["null", "Node"]))
    new = record("Node", field("n", "double"), field("next", ["null", "Node"]), field("at", MILLIS, default=0))
    data = serde_of(old).serialize("t", {"n": 1, "next": {"n": 2, "next": None}})
    at = datetime(1970, 1, 1, tzinfo=UTC)
    inner = {"n": 2.0, "next": None, "at": at}
    assert serde_of(new).deserialize("t", data) == {"n": 1.0, "next": inner, "at": at}


@pytest.mark.parametrize(
    ("written", "read", "said"),
    [
        ("string", "int", "field 'x': it was written as a string, which cannot be read as an int"),
        (record("A", ID), record("B", ID), "it was written as a shop.A, which cannot be read as a shop.B"),
        (["string", LEVEL], "string", "field 'x': it was written as a shop.Level, which cannot be read as a string"),
        (["int", "string"], "int", "field 'x': it was written as a string, which cannot be read as an int"),
        (LEVEL, {**LEVEL, "symbols": ["other"]}, "field 'x': 'low' is not one of other, and there is no default"),
    ],
)
def test_what_cannot_be_read_is_told_by_field(serde_of, written: Any, read: Any, said: str) -> None:
    value: Any = {"id": 1} if isinstance(written, dict) and written["type"] == "record" else "low"
    value = ("shop.Level", "low") if isinstance(written, list) and LEVEL in written else value
    old = serde_of(record("R", field("x", written))).serialize("t", {"x": value})
    with pytest.raises(SerdeError, match=said):
        serde_of(record("R", field("x", read))).deserialize("t", old)


def test_small_values_are_read(serde_of) -> None:
    for schema, value in ((record("Nothing"), {}), ("bytes", b"")):
        serde = serde_of(schema)
        assert serde.deserialize("t", serde.serialize("t", value)) == value


# What is refused, and what is converted where a value leaves.

NAIVE = datetime(2024, 5, 1, 12)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (MILLIS, NAIVE, "has no time zone, so it is not a moment"),
        (MICROS, NAIVE, "has no time zone"),
        (MILLIS, date(2024, 5, 1), "takes a datetime, not a date"),
        (logical("long", "local-timestamp-millis"), NAIVE.replace(tzinfo=UTC), "has a time zone"),
        (logical("int", "date"), NAIVE, "takes a date, not a datetime"),
        (logical("int", "time-millis"), time(1, tzinfo=UTC), "has a time zone"),
        (logical("string", "uuid"), "no uuid", "takes a UUID"),
        ("long", 1.7, "takes an int \\(long\\), not a float: 1.7"),
        ("long", True, "takes an int \\(long\\), not a bool"),
        ("int", "5", "takes an int \\(int\\), not a str"),
        ("int", 2**31, "does not fit in the 32 bits of an int"),
        ("long", 2**63, "does not fit in the 64 bits of a long"),
        ("double", True, "takes a float, not a bool"),
        ("double", "1.5", "takes a float, not a str"),
        ("double", 2**53 + 1, "cannot become a float without loss|takes a float, not an int"),
        ("float", 1e300, "does not fit in the 32 bits of a float"),
        ("boolean", 1, "takes a bool, not an int"),
        ("string", b"x", "takes a str, not a bytes"),
        ("bytes", "x", "takes bytes, not a str"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "takes 2 bytes, not 3"),
        (LEVEL, "middle", "'middle' is not one of low, high"),
        (MONEY, 5, "takes a Decimal, not an int"),
        (MONEY, Decimal("1.234"), "has no form with 2 digits after the decimal point"),
        (MONEY, Decimal("12345.6"), "needs 7 digits with 2 behind the point, the schema has 6"),
        (MONEY, Decimal("NaN"), "NaN is not a number"),
        (
            logical("fixed", "decimal", name="D", size=1, precision=2),
            Decimal(-129),
            "needs 3 digits|not fit in the 1 byte",
        ),
        ({"type": "array", "items": "int"}, {1, 2}, "takes a list, not a set"),
        ({"type": "array", "items": "int"}, [1, "2"], r"field 'x\[1\]': it takes an int"),
        ({"type": "map", "values": "int"}, {1: 2}, "takes keys that are str, not an int"),
        ({"type": "map", "values": "int"}, {"a": None}, "field 'x.a': it takes an int"),
        (record("In", ID), {"id": 1, "idd": 2}, r"field 'x': shop.In has no field 'idd'. Did you mean 'id'?"),
        (record("In", ID), {}, "field 'x.id': it is missing"),
        (record("In", ID), [1], "takes a shop.In, a dict, not a list"),
        (["null", "long"], 1.5, "takes an int"),
        (["null", "long", "string"], 1.5, "takes null or long or string, not a float: 1.5"),
        (
            ["null", record("A", ID), record("B", field("n", "int"))],
            {"m": 1},
            "as shop.A, the field 'id': it is missing",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(serde_of, kind: Any, value: Any, said: str) -> None:
    serde = serde_of(record("R", field("x", kind)))
    for one in (serde, serde.kept()):
        with pytest.raises(SerdeError, match=said):
            one.serialize("t", {"x": value})


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("double", 1, 1.0),
        ("double", np.float32(0.5), 0.5),
        ("float", 0.1, 0.10000000149011612),
        ("long", np.int64(7), 7),
        ("boolean", np.bool_(True), True),
        ("string", AvroSymbol("E", "a"), "a"),
        ("bytes", bytearray(b"a"), b"a"),
        ({"type": "array", "items": "int"}, (1, 2), [1, 2]),
        (
            MILLIS,
            datetime(2024, 5, 1, 14, 0, 0, 1999, timezone(timedelta(hours=2))),
            datetime(2024, 5, 1, 12, 0, 0, 1000, UTC),
        ),
        (MILLIS, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (logical("int", "time-millis"), time(1, 2, 3, 4567), time(1, 2, 3, 4000)),
        (logical("int", "date"), "2024-05-01", date(2024, 5, 1)),
        (logical("string", "uuid"), str(UUID(int=1)), UUID(int=1)),
        (["null", record("A", ID)], ("shop.A", {"id": 1}), {"id": 1}),
        (["null", "double"], 1, 1.0),
        (
            [record("A", ID, field("by", "string", default="me")), record("B", field("n", "int"))],
            {"id": 1},
            {"id": 1, "by": "me"},
        ),
        (record("A", field("n", ["null", "int"])), {}, {"n": None}),
        (record("A", ID), AvroRecord("shop.A", {"id": 1}), {"id": 1}),
    ],
)
def test_what_leaves_is_converted_and_what_is_kept_refused(serde_of, kind: Any, value: Any, found: Any) -> None:
    serde = serde_of(record("R", field("x", kind)))
    got = serde.deserialize("t", serde.serialize("t", {"x": value}))["x"]
    assert (got, type(got)) == (found, type(found))
    kept = serde.kept()
    assert kept == serde
    assert hash(kept) == hash(serde)
    assert pickle.loads(pickle.dumps(kept)) == serde
    for one in (kept, pickle.loads(pickle.dumps(kept)), kept.kept()):
        with pytest.raises(SerdeError, match="field 'x"):
            one.serialize("t", {"x": value})


def test_decimals_of_equal_value_are_kept(serde_of) -> None:
    serde = serde_of(record("R", field("x", MONEY)))
    assert serde.deserialize("t", serde.kept().serialize("t", {"x": Decimal("1.0")})) == {"x": Decimal("1.00")}


def test_a_kept_mark_that_reading_would_not_give_is_refused(serde_of) -> None:
    serde = serde_of([record("A", ID), record("B", field("n", "int"))]).kept()
    with pytest.raises(SerdeError, match="it is read back as a dict, without a branch, so give dict"):
        serde.serialize("t", AvroRecord("shop.A", {"id": 1}))
    partly = serde_of([record("A", field("x", ["null", "int"])), record("B", field("x", ["null", "string"]))]).kept()
    with pytest.raises(SerdeError, match=r"it is read back with its branch, so give AvroRecord\('shop.A', value\)"):
        partly.serialize("t", {"x": 1})


@dataclass
class Order:
    id: int


def test_the_newest_schema_and_own_objects_are_checked_as_well(registry: SchemaRegistry, serde_of) -> None:
    serde_of(record("Order", ID)).serialize("newest", {"id": 1})
    with pytest.raises(SerdeError, match="has no field 'idd'"):
        AvroSerde(registry).serialize("newest", {"id": 1, "idd": 1})
    own = serde_of(record("Order", ID), to_dict=vars, from_dict=lambda found: Order(**found))
    assert own.deserialize("t", own.kept().serialize("t", Order(1))) == Order(1)
    with pytest.raises(SerdeError, match="field 'id': it takes an int"):
        own.serialize("t", Order("1"))  # type: ignore[arg-type]


def test_values_that_a_user_converts_are_shown_as_they_are_read(serde_of) -> None:
    plain = serde_of(record("Order", ID))
    assert comes_back(plain)
    assert comes_back(plain.kept())
    assert not comes_back(serde_of(record("Order", ID), to_dict=vars))
