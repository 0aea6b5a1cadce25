"""Reads Avro values back from their JSON form (`streams.serdes.json_shown`), by their schema.

Dates, times, UUIDs and decimals are texts there, and bytes are base64. In a union, the branch is the one whose value has this form;
if several branches have, it is an error.

Only the registry's client knows the schema, and only when it writes the value. Until then the value is an `AskedFor`.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streams.model.iso import moment
from streams.serdes.avro.schemas import RECORDS, Marks, Names, Schema, base_of, in_words, logical_of, name_of
from streams.serdes.avro.values import MisfitError, misfit
from streams.serdes.avro.writing import writer_within
from streams.serdes.base import shown as text
from streams.serdes.json_forms import bytes_of, float_of


@dataclass(frozen=True, slots=True, repr=False)
class AskedFor:
    """A value that is known only by its JSON form. Avro serdes write the value itself.

    Attributes:
        data: Its JSON data.
        shown: Converts values to JSON data.
    """

    data: Any
    shown: Callable[[Any], Any]

    def __repr__(self) -> str:
        return repr(self.data)

    def value(self, schema: Schema) -> Any:
        """The value itself. Only its type is certain to be right, because the rest is checked when it is written.

        Args:
            schema: The parsed schema with which it is written.

        Raises:
            MisfitError: There is no such value, or there are several.
        """
        # Bytes that are not a part of anything are written as they are, whatever their logical type.
        if base_of(schema) == "bytes":
            return _by_form(bytes_of, self.data)
        return _Asked(Names(schema), self.shown).of(schema, self.data)


class _Asked:
    """The values of one schema."""

    def __init__(self, names: Names, shown: Callable[[Any], Any]) -> None:
        self._names, self._shown = names, shown

    def of(self, schema: Schema, data: Any) -> Any:
        """The value of one type."""
        schema = self._names.whole(schema)
        base, logical = base_of(schema), logical_of(schema)
        if base == "union":
            return self._of_union(schema, data)
        if logical is not None:
            return self._of_logical(schema, logical, data)
        if base in RECORDS or base == "map":
            if not isinstance(data, dict):
                raise misfit(data, f"an object, for {in_words(schema)}")
            types = {field["name"]: field["type"] for field in schema.get("fields", ())}
            # A field that the schema does not have is refused where the whole value is checked.
            return {
                name: self._part(schema.get("values") or types.get(name), name, part) for name, part in data.items()
            }
        if base == "array":
            if not isinstance(data, list):
                raise misfit(data, "an array")
            return [self.of(schema["items"], part) for part in data]
        if base in ("bytes", "fixed"):
            return _by_form(bytes_of, data)
        return _by_form(float_of, data) if base in ("float", "double") else data

    def _of_logical(self, schema: Schema, logical: str, data: Any) -> Any:
        kind = logical.partition("-")[2]
        if kind not in _LOGICAL:
            # A logical type that was added to fastavro, whose values are not known here.
            return data
        try:
            value = _LOGICAL[kind](data)
        except (ValueError, TypeError, AttributeError, decimal.DecimalException) as error:
            raise misfit(data, f"the text of {in_words(schema)}") from error
        # A time with more digits than the type has would be another time.
        writer_within(self._names, schema, exact=True)(value)
        return value

    def _part(self, schema: Schema | None, name: str, data: Any) -> Any:
        if schema is None:
            return data
        try:
            return self.of(schema, data)
        except MisfitError as error:
            error.path.append(f".{name}")
            raise

    def _of_union(self, union: list[Schema], data: Any) -> Any:
        marks, found = Marks(union, self._names), dict[Any, Any]()
        for branch in self._names.branches(union):
            try:
                bare = self.of(branch, data)
                writer_within(self._names, branch, exact=True)(bare)
            except MisfitError:
                continue
            value = marks.of(name_of(branch), bare)
            # An int is shown as an int, and a float as a float. Between two types of numbers, or for a float of 32 bits, the value
            # stays the same.
            if repr(self._shown(value)) == repr(data):
                found[type(value), getattr(value, "branch", ""), repr(value)] = value
        if len(found) != 1:
            why = "several of these are shown so" if found else "none of these is shown so"
            raise MisfitError(
                f"it takes {' or '.join(map(in_words, self._names.branches(union)))}, and {why}: {text(data)}"
            )
        return found.popitem()[1]


def _by_form(read: Callable[[Any], Any], data: Any) -> Any:
    try:
        return read(data)
    except ValueError as error:
        raise MisfitError(f"{error}: {text(data)}") from error


def _local(data: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(data)


def _moment(data: str) -> datetime.datetime:
    return moment(data).astimezone(datetime.timezone.utc)


_LOGICAL: Mapping[str, Callable[[Any], Any]] = {
    "date": datetime.date.fromisoformat,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
    "time-millis": datetime.time.fromisoformat,
    "time-micros": datetime.time.fromisoformat,
    "timestamp-millis": _moment,
    "timestamp-micros": _moment,
    "local-timestamp-millis": _local,
    "local-timestamp-micros": _local,
}
