"""Random Avro schemas and values: what a kept value is read back as, and that reading and writing change no byte."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from streams import AvroSerde, SchemaRegistry, SerdeError
from streams.serdes.avro.values import AvroFixed, AvroRecord, AvroSymbol
from tests.budget import up_to
from tests.serdes.registry_server import running

Draw = Callable[[st.SearchStrategy[Any]], Any]

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4)
SINCE, UNTIL = (dt.datetime(year, 1, 1) for year in (1600, 2400))  # noqa: DTZ001
FIELDS = ("a", "b", "c")
SYMBOLS = ("X", "Y", "Z")

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": TEXTS,
    "bytes": st.binary(max_size=4),
}
LOGICAL: dict[tuple[str, str], st.SearchStrategy[Any]] = {
    ("int", "date"): st.dates(),
    ("int", "time-millis"): st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    ("long", "time-micros"): st.times(),
    ("long", "timestamp-millis"): st.datetimes(SINCE, UNTIL, timezones=st.just(dt.timezone.utc)).map(
        lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
    ),
    ("long", "timestamp-micros"): st.datetimes(SINCE, UNTIL, timezones=st.just(dt.timezone.utc)),
    ("long", "local-timestamp-micros"): st.datetimes(SINCE, UNTIL),
    ("string", "uuid"): st.uuids(),
}
DECIMALS = st.decimals(-9999, 9999, places=2)

# Values that somebody may give where they do not belong, or belong only after a conversion.
ODD = st.one_of(
    *PLAIN.values(),
    *LOGICAL.values(),
    DECIMALS,
    st.integers(),
    st.datetimes(),
    st.floats(),
    st.datetimes(timezones=st.timezones()),
    st.tuples(st.integers()),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from((*FIELDS, "d", 1)), st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(FIELDS), st.sampled_from((*SYMBOLS, None)), max_size=3),
)

# Values that a type nearly has.
ZONED = st.datetimes(timezones=st.sampled_from((dt.timezone.utc, dt.timezone(dt.timedelta(hours=2)))))
NEAR: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers() | st.booleans() | st.floats(),
    "long": st.integers() | st.booleans() | st.floats(),
    "float": st.floats() | st.integers(),
    "double": st.integers() | DECIMALS,
    "decimal": st.decimals(-99999, 99999, places=3) | st.integers(),
    "date": st.datetimes(),
    "time-millis": st.times(),
    "timestamp-millis": ZONED,
    "timestamp-micros": ZONED | st.datetimes(),
    "local-timestamp-micros": ZONED,
    "uuid": TEXTS,
}


class Making:
    """Schemas and values of one example; names are given once each."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._count = 0

    def schema(self, depth: int = 3, *, in_union: bool = False) -> Any:
        """A type: its JSON."""
        kinds = ["plain", "plain", "logical", "decimal", "enum", "fixed"]
        kinds += ["record", "record", "array", "map"] if depth else []
        kinds += ["union", "union"] if depth and not in_union else []
        return getattr(self, f"_{self._draw(st.sampled_from(kinds))}")(depth - 1)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def _plain(self, _: int) -> Any:
        return self._draw(st.sampled_from(sorted(PLAIN)))

    def _logical(self, _: int) -> Any:
        base, logical = self._draw(st.sampled_from(sorted(LOGICAL)))
        return {"type": base, "logicalType": logical}

    def _decimal(self, _: int) -> Any:
        made = {"logicalType": "decimal", "precision": 6, "scale": 2}
        if self._draw(st.booleans()):
            return {"type": "bytes", **made}
        return {"type": "fixed", "name": self._name("Amount"), "size": 3, **made}

    def _enum(self, _: int) -> Any:
        symbols = self._draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
        return {"type": "enum", "name": self._name("Enum"), "symbols": symbols}

    def _fixed(self, _: int) -> Any:
        return {"type": "fixed", "name": self._name("Fixed"), "size": self._draw(st.integers(1, 2))}

    def _record(self, depth: int) -> Any:
        names = self._draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True))
        fields = [{"name": name, "type": self.schema(depth)} for name in names]
        return {"type": "record", "name": self._name("Record"), "namespace": "shop", "fields": fields}

    def _array(self, depth: int) -> Any:
        return {"type": "array", "items": self.schema(depth)}

    def _map(self, depth: int) -> Any:
        return {"type": "map", "values": self.schema(depth)}

    def _union(self, depth: int) -> Any:
        found = [self.schema(depth, in_union=True) for _ in range(self._draw(st.integers(1, 3)))]
        if self._draw(st.booleans()):
            # Two types that differ by nothing but their names.
            found += [renamed(one, self._name("Twin")) for one in found if isinstance(one, dict) and "name" in one]
        unique: dict[str, Any] = {}
        for one in found:
            kind = one if isinstance(one, str) else one.get("name", one["type"])
            unique.setdefault(kind, one)
        return list(unique.values())

    def value(self, schema: Any, *, odd: bool = False) -> Any:
        """A value of a type, of which `odd` ones may not be."""
        if odd and self._draw(st.integers(0, 2)) == 0:
            name = (
                schema.get("logicalType") if isinstance(schema, dict) else schema if isinstance(schema, str) else None
            )
            return self._draw(NEAR[name] if name in NEAR and self._draw(st.booleans()) else ODD)
        if isinstance(schema, list):
            return self._of_branch(self._draw(st.sampled_from(schema)), odd=odd)
        if isinstance(schema, str):
            return self._draw(PLAIN[schema])
        match schema:
            case {"logicalType": "decimal"}:
                return self._draw(DECIMALS)
            case {"logicalType": logical, "type": base}:
                return self._draw(LOGICAL[base, logical])
            case {"type": "enum", "symbols": symbols}:
                return self._draw(st.sampled_from(symbols))
            case {"type": "fixed", "size": size}:
                return self._draw(st.binary(min_size=size, max_size=size))
            case {"type": "array", "items": items}:
                return [self.value(items, odd=odd) for _ in range(self._draw(st.integers(0, 2)))]
            case {"type": "map", "values": values}:
                return {
                    key: self.value(values, odd=odd) for key in self._draw(st.lists(TEXTS, max_size=2, unique=True))
                }
        return {field["name"]: self.value(field["type"], odd=odd) for field in schema["fields"]}

    def _of_branch(self, branch: Any, *, odd: bool) -> Any:
        value = self.value(branch, odd=odd)
        named = isinstance(branch, dict) and "name" in branch
        if not named or self._draw(st.booleans()):
            return value
        name = f"shop.{branch['name']}" if branch["type"] == "record" else branch["name"]
        kinds = {dict: AvroRecord, str: AvroSymbol, bytes: AvroFixed}
        kind = kinds.get(type(value))
        return value if kind is None else kind(name, value)


def renamed(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """A copy under another name, as far as the names within allow one."""
    inner = json.dumps(schema.get("fields", []))
    return (
        schema
        if '"name": "E' in inner or "Fixed" in inner or "Record" in inner or "Amount" in inner
        else {**schema, "name": name}
    )


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in value and type, through and through."""
    if type(one) is not type(other) or one != other:
        return one != one and other != other and type(one) is type(other)
    if isinstance(one, dict):
        return all(same(value, other[key]) for key, value in one.items())
    return not isinstance(one, list) or all(map(same, one, other))


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with running() as fake:
        yield SchemaRegistry(fake.url, {"max.retries": 0})


ADMITTED = [HealthCheck.too_slow, HealthCheck.data_too_large]
USUAL = up_to(120, suppress_health_check=ADMITTED)


@USUAL
@given(st.data())
def test_a_kept_value_is_read_back_in_value_and_type_or_refused(registry: SchemaRegistry, data: st.DataObject) -> None:
    making = Making(data.draw)
    schema = making.schema()
    value = making.value(schema, odd=data.draw(st.booleans()))
    assert_kept_exactly(AvroSerde(registry, json.dumps(schema)), value)


@USUAL
@given(st.data())
def test_what_was_read_is_written_as_it_was(registry: SchemaRegistry, data: st.DataObject) -> None:
    making = Making(data.draw)
    schema = making.schema()
    serde = AvroSerde(registry, json.dumps(schema))
    try:
        written = serde.serialize("t", making.value(schema))
    except SerdeError as error:
        # A dict of which nothing tells the branch; and the clients know no whole values but bytes for bytes.
        if "it may be" not in str(error) and schema["type"] != "bytes":
            raise
        return
    found = serde.deserialize("t", written)
    for one in (found, deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert serde.serialize("t", one) == serde.kept().serialize("t", one) == written


@pytest.mark.parametrize("name", sorted(NEAR))
@up_to(60, suppress_health_check=ADMITTED)
@given(st.data())
def test_what_a_type_nearly_has_is_kept_exactly_or_refused(
    registry: SchemaRegistry, name: str, data: st.DataObject
) -> None:
    logical = {"decimal": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}}
    logical |= {name: {"type": base, "logicalType": name} for base, name in LOGICAL}
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": logical.get(name, name)}]}
    assert_kept_exactly(AvroSerde(registry, json.dumps(schema)), {"x": data.draw(NEAR[name])})


def assert_kept_exactly(serde: AvroSerde, value: Any) -> None:
    """Unless writing refuses the value, it is read back."""
    try:
        written = serde.kept().serialize("t", value)
    except SerdeError:
        return
    found = serde.deserialize("t", written)
    assert same(found, value), (value, found)
