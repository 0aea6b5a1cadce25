"""The Python values of Avro schemas: their types, and the branches of a union that need a mark because their values look alike.

fastavro has parsed the schemas. So names are full names, and a named type is defined where it is used first.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeAlias

from streams.serdes.avro.values import AvroFixed, AvroRecord, AvroSymbol

Schema: TypeAlias = Any
"""A name, a list of branches, or a dict with `type`."""

RECORDS = ("record", "error")
_NAMED = (*RECORDS, "enum", "fixed")

_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "string": (str,),
    "enum": (str,),
    "bytes": (bytes,),
    "fixed": (bytes,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
    "int-date": (datetime.date,),
    "int-time-millis": (datetime.time,),
    "long-time-micros": (datetime.time,),
    "long-timestamp-millis": (datetime.datetime,),
    "long-timestamp-micros": (datetime.datetime,),
    "long-local-timestamp-millis": (datetime.datetime,),
    "long-local-timestamp-micros": (datetime.datetime,),
    "bytes-decimal": (decimal.Decimal,),
    "fixed-decimal": (decimal.Decimal,),
    "string-uuid": (uuid.UUID,),
}
"""The Python types of values that are read. Other logical types were added to fastavro by the user."""


@cache
def logical_readers() -> Mapping[str, Any]:
    """Fastavro's functions that make values of logical types, by `<type>-<logical type>`."""
    found: Mapping[str, Any] = importlib.import_module("fastavro.read").LOGICAL_READERS
    return found


@cache
def logical_writers() -> Mapping[str, Any]:
    """Fastavro's functions that turn values of logical types into values of their base types."""
    found: Mapping[str, Any] = importlib.import_module("fastavro.write").LOGICAL_WRITERS
    return found


def base_of(schema: Schema) -> str:
    """The type below a logical type, such as `long` or `record`; `union` for a union."""
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def logical_of(schema: Schema) -> str | None:
    """The key of a logical type that fastavro converts, such as `long-timestamp-millis`; None: there is none."""
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return None
    key = f"{schema['type']}-{schema['logicalType']}"
    return key if key in logical_writers() else None


def is_named(schema: Schema) -> bool:
    """Whether a type has a name of its own."""
    return base_of(schema) in _NAMED


def name_of(schema: Schema) -> str:
    """A type's name in its union: the full name of a named type, else its type."""
    return str(schema["name"]) if is_named(schema) else base_of(schema)


def in_words(schema: Schema) -> str:
    """A type for messages, with its article."""
    name = str(schema.get("logicalType", name_of(schema))) if isinstance(schema, dict) else base_of(schema)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class Names:
    """The named types of a schema.

    Args:
        schema: The parsed schema.
    """

    def __init__(self, schema: Schema) -> None:
        self._found: dict[str, Schema] = {}
        self.unions: list[list[Schema]] = []
        self._collect(schema)
        self._alike: dict[tuple[int, int], bool] = {}

    def _collect(self, schema: Schema) -> None:
        if isinstance(schema, list):
            self.unions.append(schema)
            for branch in schema:
                self._collect(branch)
        elif isinstance(schema, dict):
            if is_named(schema):
                self._found[schema["name"]] = schema
            for part in (schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))):
                self._collect(part)

    def whole(self, schema: Schema) -> Schema:
        """The type itself, if a schema is only the name of a named type."""
        return self._found.get(schema, schema) if isinstance(schema, str) else schema

    def branches(self, union: list[Schema]) -> list[Schema]:
        """The types of a union."""
        return [self.whole(branch) for branch in union]

    def has_named(self, union: list[Schema]) -> bool:
        """Whether a union has a named type."""
        return any(map(is_named, self.branches(union)))

    def types(self, schema: Schema) -> frozenset[type]:
        """The Python types of a schema's values; `object` for logical types that the user has added."""
        schema = self.whole(schema)
        if isinstance(schema, list):
            return frozenset().union(*(self.types(branch) for branch in schema))
        return frozenset(_TYPES.get(logical_of(schema) or base_of(schema), (object,)))

    def disjoint(self, one: Schema, other: Schema) -> bool:
        """Whether no value belongs to both types."""
        one, other = self.whole(one), self.whole(other)
        if isinstance(one, list):
            return all(self.disjoint(branch, other) for branch in one)
        if isinstance(other, list):
            return all(self.disjoint(one, branch) for branch in other)
        if not self.types(one) & self.types(other):
            return True
        bases = {base_of(one), base_of(other)}
        if bases == {"enum"}:
            return not set(one["symbols"]) & set(other["symbols"])
        if bases == {"fixed"} and not logical_of(one):
            return bool(one["size"] != other["size"])
        return dict in self.types(one) and not self.alike(one, other)

    def alike(self, one: Schema, other: Schema) -> bool:
        """Whether a complete dict may belong to both types, which are records or maps."""
        pair = (id(one), id(other))
        if pair not in self._alike:
            self._alike[pair] = True  # of types that contain themselves
            self._alike[pair] = self._compared(one, other)
        return self._alike[pair]

    def _compared(self, one: Schema, other: Schema) -> bool:
        if base_of(one) == base_of(other) == "map":
            return True
        if base_of(one) == "map":
            one, other = other, one
        fields = {field["name"]: field["type"] for field in one["fields"]}
        if base_of(other) == "map":
            return not any(self.disjoint(kind, other["values"]) for kind in fields.values())
        others = {field["name"]: field["type"] for field in other["fields"]}
        return fields.keys() == others.keys() and not any(self.disjoint(fields[name], others[name]) for name in fields)


class Marks:
    """Decides which values of a union are marked with their branch, because nothing else shows it.

    Args:
        union: The union.
        names: The named types of its schema.
    """

    def __init__(self, union: list[Schema], names: Names) -> None:
        self._branches = names.branches(union)
        dicts = [branch for branch in self._branches if names.types(branch) == {dict}]
        plain = [base_of(branch) for branch in self._branches if not logical_of(branch)]
        self._dicts = {
            name_of(one) for one in dicts if any(one is not other and names.alike(one, other) for other in dicts)
        }
        self._symbols = dict(self._marked_symbols("string" in plain))
        self._fixed = set(self._marked_fixed("bytes" in plain))
        self.any = bool(self._dicts or self._fixed or any(self._symbols.values()))

    def of(self, branch: str, value: Any) -> Any:
        """The value, marked if that is needed."""
        if branch in self._dicts:
            return AvroRecord(branch, value)
        if value in self._symbols.get(branch, ()):
            return AvroSymbol(branch, value)
        return AvroFixed(branch, value) if branch in self._fixed else value

    def needed(self, branch: str, value: Any) -> bool:
        """Whether a value of a branch is read with a mark."""
        return branch in self._dicts or branch in self._fixed or value in self._symbols.get(branch, ())

    def _marked_symbols(self, in_string: bool) -> Iterator[tuple[str, frozenset[str]]]:
        enums = [branch for branch in self._branches if base_of(branch) == "enum"]
        for enum in enums:
            others = {symbol for other in enums if other is not enum for symbol in other["symbols"]}
            yield name_of(enum), frozenset(s for s in enum["symbols"] if in_string or s in others)

    def _marked_fixed(self, in_bytes: bool) -> Iterator[str]:
        fixed = [branch for branch in self._branches if base_of(branch) == "fixed" and not logical_of(branch)]
        for one in fixed:
            if in_bytes or any(other is not one and other["size"] == one["size"] for other in fixed):
                yield name_of(one)
