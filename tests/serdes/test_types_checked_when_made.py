"""A typed serde is checked when it is made: a type whose values would come back as something else is refused, with the cure.

The cases are those of public reports: pydantic 4340, 10824, 10382, 9827, 9180 and pydantic-core 851, 1688 (unions, aliases,
computed fields, secrets, decimals of JSON numbers), orjson 356, 83, 313, 441 (fields with an underscore, NaN).
"""

from __future__ import annotations

import json
import pickle
import typing
import uuid
from collections import Counter, deque
from dataclasses import InitVar, dataclass, field
from datetime import date, datetime, time, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import pydantic
import pytest
import typing_extensions
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    Secret,
    SecretBytes,
    SecretStr,
    computed_field,
)

from streams import JsonSerde, SerdeError, TopologyError
from streams.serdes.base import kept


@dataclass
class Created:
    id: str


@dataclass
class Deleted:
    id: str


@dataclass
class CreatedList:
    ids: list[int]


@dataclass
class DeletedList:
    ids: list[str]


@dataclass
class Tagged:
    id: str
    kind: Literal["tagged"] = "tagged"


@dataclass
class Marked:
    id: str
    kind: Literal["marked"] = "marked"


class CreatedModel(BaseModel):
    id: str


class DeletedModel(BaseModel):
    id: str


class Place(NamedTuple):
    id: str


class Row(typing_extensions.TypedDict):
    id: str


class Size(Enum):
    SMALL = 1
    TEXT = "1"
    PAIR = (1, 2)


class Letter(Enum):
    A = "a"
    B = "b"


class Number(IntEnum):
    ONE = 1
    TWO = 2


class Rights(IntFlag):
    READ = 1
    WRITE = 2


ALIKE = (
    *(
        list[Created | Deleted],
        dict[str, Created | Deleted],
        tuple[int, Created | Deleted],
        Created | Place,
        Row | Created,
    ),
    *(
        datetime | str,
        date | str,
        time | str,
        Decimal | str,
        uuid.UUID | str,
        bytes | str,
        Letter | str,
        Letter | bytes,
    ),
    *(date | datetime | str, str | datetime, list[int] | set[int], list[int] | tuple[int, ...], Number | int),
    dict[int | str, int],
)


@pytest.mark.parametrize("kind", ALIKE, ids=repr)
def test_members_of_a_union_that_look_alike_in_json_are_refused(kind: Any) -> None:
    with pytest.raises(TopologyError, match=r"cannot be made: .* look alike here\. |would not be read back as a key"):
        JsonSerde(kind)


@pytest.mark.parametrize("kind", [Created | Deleted, Created | Deleted | None, CreatedModel | DeletedModel], ids=repr)
def test_classes_that_look_alike_are_named_where_they_are_the_whole_value(kind: Any) -> None:
    for serde in (JsonSerde(kind), JsonSerde(kind).kept(), pickle.loads(pickle.dumps(JsonSerde(kind)))):
        for one in typing.get_args(kind):
            if one is not type(None):
                value = one(id="1")
                data = serde.serialize("t", value)
                assert json.loads(data) == {"$type": one.__name__, "id": "1"}
                read = serde.deserialize("t", b" " + data)
                assert (type(read), read) == (one, value)
        with pytest.raises(SerdeError, match=r"\$type: expected one of"):
            serde.deserialize("t", b'{"id":"1"}')
        with pytest.raises(SerdeError, match="expected one of"):
            serde.serialize("t", Holder("1"))


@dataclass
class Holder:
    one: Any


APART = (
    (int | str, 5, "5"),
    (float | int, 5, 5.0, -0.0),
    (bool | int, True, 1),
    (str | None, None, "null"),
    (int | list[int] | dict[str, int], 1, [1], {"a": 1}),
    (Tagged | Marked, Tagged("1"), Marked("1")),
    (Annotated[Tagged | Marked, Field(discriminator="kind")], Tagged("1"), Marked("1")),
    (Created | CreatedList, Created("a"), CreatedList([])),
    (datetime | int, datetime(2024, 5, 1, tzinfo=timezone.utc), 5),
    (Literal["a", 1, True], "a", 1, True),
    (Number | str, Number.ONE, "1"),
    (Rights, Rights.READ | Rights.WRITE, Rights(0)),
    (deque[int], deque([1])),
    (dict[bool, int], {True: 1}),
    (dict[date, int], {date(2024, 5, 1): 1}),
    (dict[int, int], {2**70: 2**70, -1: 0}),
    (time, time(0, 0, 0, 10_000), time(12, tzinfo=timezone.utc)),
    (tuple[int, ...], (), (1, 2)),
    (tuple, ("a", [1])),
    (Decimal | float, Decimal("1.5"), 1.5, 0.1),
)


@pytest.mark.parametrize(
    ("kind", "values"), [(kind, values) for kind, *values in APART], ids=lambda one: repr(one)[:60]
)
def test_members_of_a_union_that_json_tells_apart_come_back(kind: Any, values: list[Any]) -> None:
    serde = kept(JsonSerde(kind))
    for value in values:
        found = serde.deserialize("t", serde.serialize("t", value))
        assert (found, type(found)) == (value, type(value))


class Aliased(BaseModel):
    a: int = Field(alias="A")


class Read(BaseModel):
    a: int = Field(validation_alias="A")


class Written(BaseModel):
    a: int = Field(serialization_alias="A")


class Choices(BaseModel):
    a: int = Field(default=0, validation_alias=AliasChoices("A", "b"))


class Deep(BaseModel):
    a: int = Field(default=0, validation_alias=AliasPath("x", "a"))


class ByName(BaseModel):
    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    a: int = Field(default=0, validation_alias=AliasChoices("A", "b"))


@dataclass
class AliasedField:
    a: Annotated[int, Field(alias="A")]


@pydantic.dataclasses.dataclass
class AliasedDataclass:
    a: int = Field(alias="A")


class Hidden(BaseModel):
    a: int
    b: int = Field(default=0, exclude=True)


class Computed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return 2 * self.a


class Login(BaseModel):
    token: SecretStr


class Raw(BaseModel):
    token: SecretBytes


class Pin(BaseModel):
    token: Secret[int]


@dataclass
class PlainLogin:
    token: SecretStr


class Nested(BaseModel):
    inner: list[Hidden]


class Cents(BaseModel):
    amount: int

    @pydantic.field_validator("amount")
    @classmethod
    def in_cents(cls, value: int) -> int:
        return value * 100


@dataclass
class Given:
    a: int
    b: InitVar[int]

    def __post_init__(self, b: int) -> None: ...


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Read, r"Read.a is written as 'a' and read as 'A'\. Give the field one name: alias=\.\.\. alone"),
        (Written, r"Written.a is written as 'A' and read as 'a'"),
        (Choices, r"Choices.a is written as 'a' and read as 'A' or 'b'.* ConfigDict\(validate_by_name=True"),
        (Deep, r"Deep.a is written as 'a' and read as nothing"),
        (AliasedField, r"AliasedField.a is written as 'a' and read as 'A'\. Leave the alias out"),
        (AliasedDataclass, r"AliasedDataclass.a is written as 'a' and read as 'A'"),
        (Hidden, r"Hidden.b is never written \(exclude=True\), and would be read back as its default"),
        (Nested, r"inner.b is never written"),
        (list[Hidden], r"Hidden.b is never written"),
        (Computed, r"Computed.twice is computed and written, and extra='forbid' does not let it be read"),
        (Login, r"token: a SecretStr would be read back changed: .* asterisks: declare the type of what is in it"),
        (Raw, "asterisks"),
        (Pin, "asterisks|cannot be read back"),
        (PlainLogin, "asterisks"),
        (Cents, r"amount: an int would be read back changed: \d+ as \d+00"),
        (Given, "b is an InitVar, which an object does not keep"),
        (Size, r"<Size.PAIR: \(1, 2\)> is written as .*, which cannot be read back"),
        (dict[tuple[int, int], int], "cannot be written as JSON"),
    ],
)
def test_a_field_that_does_not_come_back_is_refused_with_the_cure(kind: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        JsonSerde(kind)


class Private(BaseModel):
    a: int
    _seen: int = PrivateAttr(default=0)


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


@dataclass
class Document:
    _id: str
    text: str = ""
    _n: int = field(default=0)


class Outer(BaseModel):
    inner: Document


@dataclass
class Tree:
    name: str
    parts: list[Tree]
    at: Decimal | None = None


@pytest.mark.parametrize(
    "value",
    [
        Aliased(A=1),
        ByName(A=1),
        Private(a=1),
        Open(a=1, b=[2]),
        Document("x", "y", 3),
        Outer(inner=Document("x", "y", 3)),
        Tree("a", [Tree("b", [], Decimal("1.50"))]),
    ],
)
def test_what_comes_back_is_not_refused(value: Any) -> None:
    serde = kept(JsonSerde(type(value)))
    assert serde.deserialize("t", serde.serialize("t", value)) == value


# --- Values, each time that one is written.


@dataclass
class Base:
    a: int


@dataclass
class Special(Base):
    b: int = 0


@dataclass
class Order:
    id: int
    amount: float = 0.0
    tags: tuple[str, ...] = ()
    name: str = ""
    price: Decimal = Decimal(0)
    counts: dict[str, int] = field(default_factory=dict)
    base: Base | None = None
    more: Any = None


class Word(str):
    pass


def private(seen: int) -> Private:
    made = Private(a=1)
    made._seen = seen
    return made


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (Base, Special(1, 2), "a Special, .* would be read back as a Base"),
        (Order, Order(1, base=Special(1, 2)), "base: a Special"),
        (list[Base], [Base(1), Special(1, 2)], "1: a Special"),
        (Order, Order(1.0), "id: "),  # type: ignore[arg-type]
        (Order, Order("1"), "id: "),  # type: ignore[arg-type]
        (Order, Order(Number.ONE), "id: a Number.* would be read back as an int"),
        (Order, Order(True), "id: "),
        (Order, Order(1, tags=["a"]), "tags: a list, .* would be read back as a tuple"),  # type: ignore[arg-type]
        (Order, Order(1, name=Word("a")), "name: a Word"),
        (Order, Order(1, counts=Counter("a")), "counts: a Counter"),
        (Order, Order(1, counts={"a": 1.5}), "counts"),  # type: ignore[dict-item]
        (Order, Order(1, amount=float("nan")), "amount: nan is not finite, and JSON has no such number"),
        (Order, Order(1, amount=float("-inf")), "amount: -inf is not finite"),
        (Order, Order(1, price=Decimal("NaN")), "price: NaN is not finite"),
        (Order, Order(1, price=Decimal("Infinity")), "price: Infinity is not finite"),
        (Order, Order(1, more=[1, {"at": date(2024, 5, 1)}]), "more.1.at: a date, .* would be read back as a str"),
        (Order, Order(1, more={1: 2}), "more: an int, 1, would not be read back as a key"),
        (Row, {"id": "a", "b": 1}, "b: an int, 1, would not be read back"),
        (float, float("inf"), "inf is not finite"),
        (Private, private(3), "_seen: an int would be read back changed: 3 as 0"),
        (list[int], (1, 2), "list"),
        (Annotated[int, Field(gt=3)], 2, "greater than 3"),
    ],
)
def test_a_value_that_would_come_back_as_something_else_is_refused(kind: Any, value: Any, why: str) -> None:
    for serde in (JsonSerde(kind), kept(JsonSerde(kind))):
        with pytest.raises(SerdeError, match=why):
            serde.serialize("t", value)


def test_an_int_in_a_field_of_floats_leaves_as_it_is_and_is_not_kept() -> None:
    serde = JsonSerde(Order)
    assert b'"amount":5,' in (serde.serialize("t", Order(1, amount=5)) or b"")
    with pytest.raises(
        SerdeError, match=r"amount: an int, 5, would be read back as a float, 5\.0\. Write float\(\.\.\.\)"
    ):
        kept(serde).serialize("t", Order(1, amount=5))


def test_structs_are_compared_with_what_is_read() -> None:
    class Trade(msgspec.Struct):
        id: int
        tags: frozenset[str] = frozenset()

    class Swap(Trade):
        other: int = 0

    serde = kept(JsonSerde(Trade))
    large = Trade(2**70, frozenset("ba"))
    assert serde.serialize("t", large) == b'{"id":1180591620717411303424,"tags":["a","b"]}'
    assert serde.deserialize("t", serde.serialize("t", large)) == large
    with pytest.raises(SerdeError, match="Swap"):
        serde.serialize("t", Swap(1))


# --- Numbers and sets.


class Amount(BaseModel):
    amount: Decimal
    rate: float = 0.0
    note: Any = None


@dataclass
class Price:
    price: Decimal | None
    other: float = 0.0


@pytest.mark.parametrize(
    "text", ["1234567890123456.78", "0.12345678901234567890", "1e400", "-1.5e-400", "1.10", "12345678901234567890123"]
)
def test_a_decimal_is_what_the_text_of_the_number_says(text: str) -> None:
    if "400" not in text:
        found = JsonSerde(Price).deserialize("t", f'{{"price":{text},"other":0.12345678901234567890}}'.encode())
        assert found == Price(Decimal(text), float("0.12345678901234567890"))
        model = JsonSerde(Amount).deserialize("t", f'{{"amount":{text},"rate":{text},"note":{text}}}'.encode())
        assert (model.amount, model.rate, type(model.note)) == (Decimal(text), float(text), type(json.loads(text)))
        assert JsonSerde(list[Decimal]).deserialize("t", f'[1.5, {text}, "{text}"]'.encode())[1:] == [Decimal(text)] * 2
    with pytest.raises(SerdeError):
        JsonSerde(tuple[Decimal, str]).deserialize("t", f"[1.5, {text}]".encode())


@dataclass(frozen=True)
class Edge:
    ends: frozenset[int]
    names: frozenset[str] = frozenset()


def test_equal_sets_have_the_same_bytes() -> None:
    serde = JsonSerde(Edge)
    assert serde.serialize("t", Edge(frozenset([8, 0]))) == serde.serialize("t", Edge(frozenset([0, 8])))
    assert (
        serde.serialize("t", Edge(frozenset([16, 8, 0]), frozenset("cab")))
        == b'{"ends":[0,8,16],"names":["a","b","c"]}'
    )
    pairs = JsonSerde(frozenset[tuple[str, int]])
    assert pairs.serialize("t", frozenset({("b", 1), ("a", 2)})) == b'[["a",2],["b",1]]'
    sets = JsonSerde(frozenset[frozenset[str]])
    assert sets.serialize("t", frozenset({frozenset("ba"), frozenset("c")})) == b'[["a","b"],["c"]]'
    assert JsonSerde(set[Letter | int]).serialize("t", {Letter.B, 1, Letter.A}) == b'["a","b",1]'
    assert typing.get_origin(serde.kind) is None
