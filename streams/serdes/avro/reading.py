"""Avro's schema resolution: a value that was written with one schema becomes a value of another one.

fastavro reads with the schema that a record was written with; the rest is done here, because fastavro returns a default as it is in
the schema's text, takes logical types from the writer, and does not return a record's branch if only the reader has a union. Rules:
https://avro.apache.org/docs/1.12.0/specification/#schema-resolution

Invariants: where both schemas agree, a value is passed on as it is, without a call. A default is a new object in each record.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from io import BytesIO
from typing import Any, TypeAlias

from streams.serdes.avro.schemas import (
    RECORDS,
    Marks,
    Names,
    Schema,
    base_of,
    in_words,
    is_named,
    logical_of,
    logical_readers,
    logical_writers,
    name_of,
)
from streams.serdes.avro.values import MisfitError
from streams.serdes.avro.writing import default_of
from streams.serdes.base import shown

Fix: TypeAlias = Callable[[Any], Any]
"""Converts a value of the writer's schema to one of the reader's."""

_PROMOTED: Mapping[tuple[str, str], Fix | None] = {
    ("int", "long"): None,
    ("int", "float"): float,
    ("int", "double"): float,
    ("long", "float"): float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}
_IMMUTABLE = (str, bytes, int, float, bool, type(None))


def reader_of(writer: Schema, reader: Schema) -> Callable[[BytesIO], Any]:
    """A function that reads the bytes of one schema as a value of another schema, or of the same.

    Args:
        writer: The parsed schema that the bytes were written with.
        reader: The parsed schema to read.

    Raises:
        MisfitError: No value of the writer's schema is a value of the reader's.
    """
    resolver = _Resolver(writer, reader)
    fix = resolver.fix(writer, reader) if resolver.is_needed else None
    read = importlib.import_module("fastavro").schemaless_reader
    named = resolver.has_names
    if base_of(writer) == "bytes":
        # The registry's clients write bytes that are not part of anything as they are.
        return lambda data: data.read() if base_of(reader) == "bytes" or fix is None else fix(data.read())
    if fix is None:
        return lambda data: read(data, writer)
    return lambda data: fix(read(data, writer, None, return_named_type=named))


class _Resolver:
    """The resolution of one pair of schemas.

    Attributes:
        is_needed: Whether a value that is read by the writer's schema has to be changed.
        has_names: Whether values of named types in unions have to be read with their names.
    """

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._writer, self._reader = Names(writer), Names(reader)
        self.is_needed = writer != reader or any(Marks(union, self._reader).any for union in self._reader.unions)
        self.has_names = any(map(self._writer.has_named, self._writer.unions))
        self._records: dict[tuple[str, str], Fix | None] = {}

    def fix(self, writer: Schema, reader: Schema) -> Fix | None:
        """A function that converts a value of one type to the other; None: nothing has to be done."""
        writer, reader = self._writer.whole(writer), self._reader.whole(reader)
        if isinstance(writer, list):
            return self._of_union(writer, reader)
        if isinstance(reader, list):
            return self._as_branch(writer, reader)
        return self._resolved(writer, reader)

    def _of_union(self, writer: list[Schema], reader: Schema) -> Fix | None:
        """The conversion for a union: that of the branch, found by the name if the type is named, else by the value's type."""
        named: dict[str, Fix | None] = {}
        typed: dict[type, Fix | None] = {}
        for branch in self._writer.branches(writer):
            try:
                found = self.fix(branch, reader)
            except MisfitError as error:
                found = _refusing(error)
            named[name_of(branch)] = found
            if not is_named(branch):
                typed.update({kind: found for kind in self._writer.types(branch) if kind not in typed})
        if not self._writer.has_named(writer) and not any(typed.values()):
            return None

        def fix(value: Any) -> Any:
            if type(value) is tuple:
                name, value = value
                found = named[name]
            else:
                found = typed.get(type(value))
            return value if found is None else found(value)

        return fix

    def _as_branch(self, writer: Schema, reader: list[Schema]) -> Fix | None:
        """The conversion to the first branch of the reader's union that resolves; a branch of the same name is tried first."""
        branches = self._reader.branches(reader)
        same = [one for one in branches if name_of(one) == name_of(writer)]
        chosen = None
        for branch in (*same, *branches):
            try:
                chosen, found = branch, self.fix(writer, branch)
            except MisfitError:
                continue
            break
        if chosen is None:
            raise _unreadable(writer, reader)
        marks, name = Marks(reader, self._reader), name_of(chosen)
        if not marks.any:
            return found
        return lambda value: marks.of(name, value if found is None else found(value))

    def _resolved(self, writer: Schema, reader: Schema) -> Fix | None:
        old, new = base_of(writer), base_of(reader)
        if old in RECORDS and new in RECORDS:
            return self._record(writer, reader)
        if old == new == "array":
            return _each(self.fix(writer["items"], reader["items"]))
        if old == new == "map":
            return _each_value(self.fix(writer["values"], reader["values"]))
        if old == new == "enum":
            _check_names(writer, reader)
            return _enum(writer, reader)
        if old == new == "fixed":
            _check_names(writer, reader)
            if writer["size"] != reader["size"]:
                raise _unreadable(writer, reader)
        elif old != new and (old, new) not in _PROMOTED:
            raise _unreadable(writer, reader)
        return self._converted(writer, reader, _PROMOTED.get((old, new)))

    def _converted(self, writer: Schema, reader: Schema, promote: Fix | None) -> Fix | None:
        """The conversion between logical types: the reader's type counts, as in Java."""
        old, new = logical_of(writer), logical_of(reader)
        if old is None and new is None:
            return promote
        if old == new or (old and new and self._writer.types(writer) == self._reader.types(reader)):
            return None

        def fix(value: Any) -> Any:
            raw = value if old is None else logical_writers()[old](value, writer)
            raw = raw if promote is None else promote(raw)
            return raw if new is None else logical_readers()[new](raw, reader, reader)

        return fix

    def _record(self, writer: Schema, reader: Schema) -> Fix | None:
        _check_names(writer, reader)
        pair = (writer["name"], reader["name"])
        if pair in self._records:
            # A type that contains itself finds its fix only when it is used.
            return lambda value: value if (found := self._records[pair]) is None else found(value)
        self._records[pair] = None
        self._records[pair] = found = self._fields(writer, reader)
        return found

    def _fields(self, writer: Schema, reader: Schema) -> Fix | None:
        written = {field["name"]: field for field in writer["fields"]}
        steps: list[tuple[str, Fix]] = []
        same = list(written) == [field["name"] for field in reader["fields"]]
        for field in reader["fields"]:
            name = field["name"]
            source = next((one for one in (name, *field.get("aliases", ())) if one in written), None)
            try:
                if source is None:
                    same = False
                    steps.append((name, self._default(field)))
                else:
                    fix = self.fix(written[source]["type"], field["type"])
                    same = same and fix is None
                    steps.append((name, _getting(source, fix)))
            except MisfitError as error:
                error.path.append(f".{name}")
                raise
        return None if same else _steps(steps)

    def _default(self, field: Mapping[str, Any]) -> Fix:
        if "default" not in field:
            raise MisfitError("the record was written without it, and the schema to read has no default")
        value = default_of(field["type"], field["default"], self._reader)
        if isinstance(value, _IMMUTABLE):
            return lambda _: value
        return lambda _: deepcopy(value)


def _steps(steps: Sequence[tuple[str, Fix]]) -> Fix:
    """Makes each field of a record from the whole record that was written."""

    def fix(value: Any) -> Any:
        made = {}
        for name, step in steps:
            try:
                made[name] = step(value)
            except MisfitError as error:
                error.path.append(f".{name}")
                raise
        return made

    return fix


def _each(item: Fix | None) -> Fix | None:
    return None if item is None else lambda value: [item(one) for one in value]


def _each_value(item: Fix | None) -> Fix | None:
    return None if item is None else lambda value: {key: item(one) for key, one in value.items()}


def _getting(name: str, fix: Fix | None) -> Fix:
    if fix is None:
        return lambda value: value[name]
    return lambda value: fix(value[name])


def _enum(writer: Schema, reader: Schema) -> Fix | None:
    symbols = frozenset(reader["symbols"])
    if symbols.issuperset(writer["symbols"]):
        return None

    def fix(value: str) -> str:
        if value in symbols:
            return value
        if "default" not in reader:
            raise MisfitError(f"{shown(value)} is not one of {', '.join(reader['symbols'])}, and there is no default")
        return str(reader["default"])

    return fix


def _check_names(writer: Schema, reader: Schema) -> None:
    """Checks that the names of named types agree: without namespaces, and with the reader's aliases, as specified."""
    aliases = {alias.rpartition(".")[2] for alias in reader.get("aliases", ())}
    if writer["name"].rpartition(".")[2] not in {reader["name"].rpartition(".")[2], *aliases}:
        raise _unreadable(writer, reader)


def _unreadable(writer: Schema, reader: Schema) -> MisfitError:
    to = " or ".join(map(in_words, reader)) if isinstance(reader, list) else in_words(reader)
    return MisfitError(f"it was written as {in_words(writer)}, which cannot be read as {to}")


def _refusing(error: MisfitError) -> Fix:
    def fix(_: Any) -> Any:
        raise MisfitError(str(error))

    return fix
