"""`JsonSerde(T)`: values of a type are read back as written, and what does not fit is an error that says where."""

from __future__ import annotations

import subprocess
import sys
import typing
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pydantic
import pytest
import typing_extensions

from streams import JsonSerde, SerdeError, TopologyError, VersionedSerde
from streams.engine.graph.values import load_job
from streams.serdes.base import serde_identity


class Colour(Enum):
    RED = "red"


class Point(typing.NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass(frozen=True)
class Order:
    id: int
    amount: Decimal
    at: datetime
    day: date
    owner: uuid.UUID
    colour: Colour
    place: Point
    lines: list[Line]
    by_number: dict[int, Line] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    took: timedelta = timedelta(0)
    pair: tuple[int, str] | None = None
    note: str | None = None
    lined: bool = field(default=True, init=False)


class Item(typing.TypedDict):
    sku: str
    price: float


class Basket(typing.TypedDict, total=False):
    items: typing_extensions.Required[list[Item]]
    best: Item | None


class Payment(pydantic.BaseModel):
    id: int
    method: str = pydantic.Field(default="card", alias="paidBy")
    at: datetime | None = None


@dataclass
class Plain:
    id: int
    name: str = "nobody"


ORDER = Order(
    id=1,
    amount=Decimal("12.50"),
    at=datetime(2024, 5, 1, 12, tzinfo=timezone.utc),
    day=date(2024, 5, 1),
    owner=uuid.UUID("0f8fad5b-d9cb-469f-a165-70867728950e"),
    colour=Colour.RED,
    place=Point(1),
    lines=[Line("a"), Line("b", 2)],
    by_number={7: Line("c")},
    tags=frozenset({"x"}),
    took=timedelta(hours=1),
    pair=(1, "one"),
)
ITEM: Item = {"sku": "a", "price": 2.5}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Order, ORDER),
        (Point, Point(1, 2.5)),
        (Item, ITEM),
        (Basket, {"items": [ITEM], "best": None}),
        (Basket, {"items": []}),
        (Payment, Payment(id=1, paidBy="cash", at=datetime(2024, 5, 1, tzinfo=timezone.utc))),
        (list[Line], [Line("a"), Line("b", 2)]),
        (dict[str, Point], {"a": Point(1, 2.0)}),
        (Line | Point, Point(3)),
        (Line | None, Line("a")),
        (Decimal, Decimal("0.10")),
        (date, date(2024, 5, 1)),
        (Colour, Colour.RED),
        (tuple[int, str], (1, "a")),
    ],
)
def test_a_value_is_read_back_as_written(kind, value):
    serde = JsonSerde(kind)
    found = serde.deserialize("t", serde.serialize("t", value))
    assert (found, type(found)) == (value, type(value))


def test_a_type_changes_neither_the_bytes_nor_the_identity_of_a_store():
    value = Plain(1)
    assert JsonSerde(Plain).serialize("t", value) == JsonSerde().serialize("t", value) == b'{"id":1,"name":"nobody"}'
    assert serde_identity(JsonSerde(Plain)) == serde_identity(JsonSerde()) == "JsonSerde()"
    assert serde_identity(VersionedSerde(JsonSerde(Plain), 0)) == "JsonSerde()"


def test_serdes_of_different_types_are_different():
    assert JsonSerde(Plain) == JsonSerde(Plain) != JsonSerde(Order)
    assert JsonSerde() == JsonSerde() != JsonSerde(Plain)
    assert repr(JsonSerde()) == "JsonSerde()"
    assert repr(JsonSerde(list[Plain])) == "JsonSerde(list[Plain])"


@pytest.mark.parametrize("kind", [Plain, Payment, Point])
def test_fields_that_a_type_does_not_have_are_ignored(kind):
    found = JsonSerde(kind).deserialize("t", b'{"id":1,"x":1,"surplus":[1]}')
    assert not hasattr(found, "surplus")


def test_a_field_that_is_missing_gets_its_default():
    assert JsonSerde(Plain).deserialize("t", b'{"id":1}') == Plain(1, "nobody")


@pytest.mark.parametrize("data", [None, b"null", b" null\n"])
def test_null_is_none(data):
    assert JsonSerde(Plain).deserialize("t", data) is None


@pytest.mark.parametrize(
    ("kind", "data", "why"),
    [
        (
            Plain,
            b'{"id":"1"}',
            r"JsonSerde\(Plain\) cannot read 10 bytes .*id: Input should be a valid integer, not '1'",
        ),
        (Plain, b'{"id":true}', "id: Input should be a valid integer"),
        (Plain, b'{"name":"x"}', "id: Field required"),
        (Plain, b"[1]", "Input should be an object"),
        (Plain, b"{", "Invalid JSON"),
        (Plain, b"\xff", "Invalid JSON"),
        (list[Line], b'[{"sku":1}]', r"JsonSerde\(list\[Line\]\) .*0.sku: Input should be a valid string, not 1"),
        (Point, b'{"x":1.5}', "x: Input should be a valid integer"),
        (Basket, b'{"items":[{"sku":"a"}]}', "items.0.price: Field required"),
        (Payment, b'{"id":"one"}', "id: Input should be a valid integer"),
        (Colour, b'"blue"', "Input should be 'red'"),
    ],
)
def test_what_is_read_in_another_shape_is_an_error_that_names_the_field(kind, data, why):
    with pytest.raises(SerdeError, match=why):
        JsonSerde(kind).deserialize("orders", data)


def test_a_pydantic_model_is_read_by_its_own_configuration():
    assert JsonSerde(Payment).deserialize("t", b'{"id":"1"}') == Payment(id=1)


def test_an_error_names_three_fields_at_most():
    with pytest.raises(SerdeError, match=r"id: .*; amount: .*; at: .*; and 5 more"):
        JsonSerde(Order).deserialize("t", b"{}")


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Plain, {"id": 1}, r"JsonSerde\(Plain\) cannot write a dict to topic 'orders': .* instance of Plain"),
        (Point, (1, 2.0), "instance of Point"),
        (Item, {"sku": "a"}, "price: Field required"),
        (list[Line], [Line("a"), "b"], "1: Input should be"),
        (Plain, Plain(id=object()), "Type is not JSON serializable: object"),
    ],
)
def test_what_is_written_in_another_shape_is_an_error(kind, value, why):
    with pytest.raises(SerdeError, match=why):
        JsonSerde(kind).serialize("orders", value)


class Unreadable:
    pass


@dataclass
class Holds:
    it: Unreadable


@dataclass
class HoldsTypedDict:
    item: Item


@pytest.mark.parametrize(
    ("kind", "why"), [(Holds, r"JsonSerde\(Holds\) cannot be made: .*Unreadable"), (Unreadable, "It takes a dataclass")]
)
def test_a_type_that_json_cannot_be_read_as_is_refused_when_the_serde_is_made(kind, why):
    with pytest.raises(TopologyError, match=why):
        JsonSerde(kind)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="there pydantic takes every TypedDict")
def test_a_typed_dict_within_another_class_must_be_that_of_typing_extensions():
    with pytest.raises(TopologyError, match=r"use `typing_extensions.TypedDict` instead of `typing.TypedDict`"):
        JsonSerde(HoldsTypedDict)


def test_the_names_of_a_function_are_known_to_the_classes_in_it():
    @dataclass
    class Inner:
        n: int

    @dataclass
    class Outer:
        inner: Inner

    assert JsonSerde(Outer).deserialize("t", b'{"inner":{"n":1}}') == Outer(Inner(1))


def test_msgspec_structs_are_read_and_written_by_msgspec():
    msgspec = pytest.importorskip("msgspec")

    class Trade(msgspec.Struct, rename="camel"):  # type: ignore[name-defined]
        trade_id: int
        price: Decimal
        at: datetime | None = None

    serde = JsonSerde(Trade)
    value = Trade(1, Decimal("2.5"), datetime(2024, 5, 1, tzinfo=timezone.utc))
    assert serde.serialize("t", value) == b'{"tradeId":1,"price":"2.5","at":"2024-05-01T00:00:00Z"}'
    assert serde.deserialize("t", serde.serialize("t", value)) == value
    with pytest.raises(SerdeError, match=r"Expected `int`, got `str` - at `\$.tradeId`"):
        serde.deserialize("t", b'{"tradeId":"1","price":"2.5"}')
    with pytest.raises(SerdeError, match="cannot write a dict"):
        serde.serialize("t", {"tradeId": "1"})


PROGRAM = """
from __future__ import annotations
import sys
from dataclasses import dataclass
from datetime import datetime
from pydantic import BaseModel
from streams import JsonSerde
from streams.engine.graph.values import dump_job

@dataclass
class Line:
    at: datetime

@dataclass
class Order:
    lines: list[Line]

class Model(BaseModel):
    order: Order

job = [(serde := JsonSerde(Order), data := serde.serialize("t", Order([Line(datetime(2024, 5, 1))])))]
job.append((JsonSerde(Model), JsonSerde(Model).serialize("t", Model(order=Order([])))))
sys.stdout.buffer.write(dump_job(job))
"""


def test_classes_of_a_script_are_read_in_processes_that_cannot_import_it(tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM)
    job = subprocess.run([sys.executable, tmp_path / "program.py"], check=True, capture_output=True).stdout
    found = [(serde, data, serde.deserialize("t", data)) for serde, data in load_job(job)]
    assert [serde.serialize("t", value) for serde, _, value in found] == [data for _, data, _ in found]
    assert [str(value) for *_, value in found] == [
        "Order(lines=[Line(at=datetime.datetime(2024, 5, 1, 0, 0))])",
        "order=Order(lines=[])",
    ]
