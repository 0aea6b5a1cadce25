"""Checks of values against the schema that they are written with, as strict as Java's.

fastavro takes 1.7 for a long, leaves out fields that the schema does not have, and writes a datetime without a zone as the local
time of the worker. Here such values are refused, with the path to the field. Values that fit are passed on with the branch of each
union.

There are two degrees. A value that leaves the application may be converted without loss: an int for a double, a tuple for an array,
a field left out that has a default. A value that is kept (`exact`) must be equal, in value and type, to what reading returns.
"""

from __future__ import annotations

import datetime
import decimal
import math
import numbers
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from streams.serdes.avro.schemas import (
    RECORDS,
    Marks,
    Names,
    Schema,
    base_of,
    in_words,
    logical_of,
    logical_readers,
    logical_writers,
    name_of,
)
from streams.serdes.avro.values import MARKED, AvroRecord, MisfitError, misfit
from streams.serdes.base import a_value, shown
from streams.wording import did_you_mean

Write: TypeAlias = Callable[[Any], Any]
"""Converts a value to the form that fastavro writes. Raises `MisfitError`."""

_BITS = {"int": 32, "long": 64}
_TYPE_HINT = "-type"
"""The key with which a dict names its record for fastavro."""
_ROUNDED = decimal.Context(prec=10_000, traps=[decimal.InvalidOperation, decimal.Inexact])


def writer_of(schema: Schema, *, exact: bool) -> Write:
    """The check of values of a whole schema.

    Args:
        schema: The parsed schema.
        exact: Whether a value must be exactly what reading returns.
    """
    if base_of(schema) == "bytes":
        # The registry's clients write bytes that are not part of anything as they are, whatever their logical type.
        return _bytes(None, exact)
    return writer_within(Names(schema), schema, exact=exact)


def writer_within(names: Names, schema: Schema, *, exact: bool) -> Write:
    """The check of values of a type that is a part of a schema; `names` are the schema's named types."""
    return _Writers(names).of(schema, exact)


class _Writers:
    """The checks of the types of one schema.

    Args:
        names: Its named types.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._records: dict[tuple[str, bool], Write | None] = {}

    def of(self, schema: Schema, exact: bool) -> Write:
        """The check of one type, in one degree."""
        schema = self._names.whole(schema)
        base, logical = base_of(schema), logical_of(schema)
        if base == "union":
            return self._union(schema, exact)
        if logical is not None:
            return self._logical(schema, logical, exact)
        if base in RECORDS:
            return self._record(schema, exact)
        if base == "array":
            return _array(self.of(schema["items"], exact), exact)
        if base == "map":
            return _map(self.of(schema["values"], exact), exact)
        return _plain(schema, base, exact)

    def _logical(self, schema: Schema, logical: str, exact: bool) -> Write:
        base, kind = base_of(schema), logical.partition("-")[2]
        if kind == "decimal":
            return _decimal(schema, exact)
        if kind in _LOGICAL:
            return _LOGICAL[kind](_plain(schema, base, exact), exact)
        # A logical type that was added to fastavro, whose values are not known here.
        raw = self._record(schema, False) if base in RECORDS else _plain(schema, base, False)
        prepare = logical_writers()[logical]

        def write(value: Any) -> Any:
            raw(prepare(value, schema))
            return value

        return write

    def _record(self, schema: Schema, exact: bool) -> Write:
        place = (schema["name"], exact)
        if place in self._records:

            def later(value: Any) -> Any:
                # A type that contains itself has no check yet.
                return self._records[place](value)  # type: ignore[misc]

            return later
        self._records[place] = None
        self._records[place] = write = self._fields(schema, exact)
        return write

    def _fields(self, schema: Schema, exact: bool) -> Write:
        fields = []
        for field in schema["fields"]:
            item = self.of(field["type"], exact)
            fields.append((field["name"], item, _left_out(field, item, self._names, exact)))
        known = frozenset(name for name, _, _ in fields)

        def write(value: Any) -> Any:
            if type(value) is not dict and (exact or not isinstance(value, Mapping)):
                raise misfit(value, f"{in_words(schema)}, a dict")
            written = {}
            for name, item, left_out in fields:
                try:
                    written[name] = item(value[name]) if name in value else left_out()
                except MisfitError as error:
                    error.path.append(f".{name}")
                    raise
            if not known.issuperset(value):
                _refuse_unknown(schema, value, known, exact)
            return written

        return write

    def _union(self, schema: list[Schema], exact: bool) -> Write:
        branches = self._names.branches(schema)
        real = [branch for branch in branches if base_of(branch) != "null"]
        if len(real) == 1 and len(branches) == 2:
            item = _only_branch(name_of(real[0]), self.of(real[0], exact), exact)
            return lambda value: None if value is None else item(value)
        keep = {name_of(one): self.of(one, True) for one in branches}
        take = {} if exact else {name_of(one): self.of(one, False) for one in branches}
        return _Union(branches, self._names, keep, take).write


def _only_branch(name: str, item: Write, exact: bool) -> Write:
    """Writes the only branch of a nullable value; the value may still name its branch."""

    def write(value: Any) -> Any:
        if type(value) is tuple and not exact and len(value) == 2 and value[0] == name:
            value = value[1]
        return name, item(value)

    return write


class _Union:
    """Finds the branch of each value of a union.

    Each branch first takes only exactly its own values; for values that leave, it then also takes all that it can convert without
    loss. If two records both take a dict, neither is chosen.

    Args:
        branches: The types.
        names: The named types.
        keep: The exact check of each branch.
        take: The check of values that leave; empty: values are kept.
    """

    def __init__(
        self, branches: list[Schema], names: Names, keep: Mapping[str, Write], take: Mapping[str, Write]
    ) -> None:
        self._exact = not take
        self._marks = Marks(branches, names)
        self._named = take or keep
        # Of numbers and texts the first type is taken, but a double before a float, and a text before an enum.
        order = [name_of(one) for one in sorted(branches, key=lambda one: base_of(one) in ("float", "enum", "fixed"))]
        types = {name_of(one): names.types(one) for one in branches}
        self._keep = [(name, keep[name], types[name]) for name in order]
        self._take = [(name, take[name]) for name in order if take]
        self._nullable = "null" in self._named
        # Where several of these take a value, it has no meaning of its own.
        self._alike = {name_of(one) for one in branches if base_of(one) in (*RECORDS, "map", "enum", "fixed")}

    def write(self, value: Any) -> Any:
        """The value with its branch."""
        if value is None and self._nullable:
            return None
        kind = type(value)
        if kind in MARKED and (self._exact or value.branch in self._named):
            return self._marked(value, MARKED[kind](value))
        if not self._exact:
            if kind is tuple and len(value) == 2 and isinstance(value[0], str) and value[0] in self._named:
                return value[0], self._named[value[0]](value[1])
            if isinstance(value, Mapping) and value.get(_TYPE_HINT) in self._named:
                return value[_TYPE_HINT], self._named[value[_TYPE_HINT]](value)
        return self._chosen(value, kind)

    def _marked(self, value: Any, bare: Any) -> Any:
        if value.branch not in self._named:
            raise MisfitError(f"it takes {self._text()}, not {value.branch}: {shown(bare)}")
        if self._exact and not self._marks.needed(value.branch, bare):
            bare_type = MARKED[type(value)].__name__
            raise MisfitError(f"it is read back as a {bare_type}, without a branch, so give {bare_type}(value)")
        return value.branch, self._named[value.branch](bare)

    def _chosen(self, value: Any, kind: type) -> Any:
        reasons: dict[str, MisfitError] = {}
        keep = [(name, item) for name, item, types in self._keep if kind in types or object in types]
        for branches in (keep, self._take):
            fitting: list[tuple[str, Any]] = []
            for name, item in branches:
                try:
                    found = name, item(value)
                except MisfitError as error:
                    reasons[name] = error
                    continue
                if name not in self._alike:
                    return found
                fitting.append(found)
            if len(fitting) == 1:
                return self._bare(fitting[0], value)
            if fitting:
                raise self._ambiguous(value, [name for name, _ in fitting])
        reported = "".join(f"; as {name}, {reasons[name]}" for name, _ in keep)
        raise MisfitError(f"it takes {self._text()}, not {a_value(value)}: {shown(value)}{reported}")

    def _bare(self, found: tuple[str, Any], value: Any) -> Any:
        if self._exact and self._marks.needed(found[0], value):
            raise MisfitError(f"it is read back with its branch, so give {_mark(value, found[0])}")
        return found

    def _ambiguous(self, value: Any, names: Sequence[str]) -> MisfitError:
        return MisfitError(
            f"it may be {' or '.join(names)}: say which, as {_mark(value, names[0])}, or keep the branch that was read by "
            f"value | {{...}}, where {{**value, ...}} loses it; {shown(value)}"
        )

    def _text(self) -> str:
        return " or ".join(self._named)


def _mark(value: Any, branch: str) -> str:
    """The Python expression for a value of a branch, for messages."""
    kind = next((kind for kind, bare in MARKED.items() if isinstance(value, bare)), AvroRecord)
    return f"{kind.__name__}({branch!r}, value)"


def _left_out(field: Mapping[str, Any], item: Write, names: Names, exact: bool) -> Callable[[], Any]:
    """Makes the value that is written for a field that a record lacks."""
    optional = "null" in field["type"] if isinstance(field["type"], list) else field["type"] == "null"

    @cache
    def write() -> Any:
        if exact or ("default" not in field and not optional):
            raise MisfitError("it is missing" + (", and reading gives its default" if "default" in field else ""))
        return item(default_of(field["type"], field["default"], names) if "default" in field else None)

    return write


def _refuse_unknown(schema: Schema, value: Mapping[Any, Any], known: frozenset[str], exact: bool) -> None:
    unknown = [name for name in value if name not in known and (exact or name != _TYPE_HINT)]
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise MisfitError(f"{schema['name']} has no field {names}.{did_you_mean(str(unknown[0]), known)}".rstrip("."))


# Types with parts.


def _array(item: Write, exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not list:
            is_row = hasattr(value, "__len__") and hasattr(value, "__getitem__")
            if exact or not is_row or isinstance(value, str | bytes | bytearray | Mapping):
                raise misfit(value, "a list")
        written: list[Any] = []
        try:
            for one in value:
                written.append(item(one))
        except MisfitError as error:
            error.path.append(f"[{len(written)}]")
            raise
        return written

    return write


def _map(item: Write, exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not dict and (exact or not isinstance(value, Mapping)):
            raise misfit(value, "a dict")
        written = {}
        for key, one in value.items():
            if type(key) is not str and (exact or not isinstance(key, str)):
                raise misfit(key, "keys that are str")
            try:
                written[key] = item(one)
            except MisfitError as error:
                error.path.append(f".{key}")
                raise
        return written

    return write


# Types without parts.


def _plain(schema: Schema, base: str, exact: bool) -> Write:
    if base in _BITS:
        return _integer(_BITS[base], base, exact)
    if base == "enum":
        return _enum(schema, exact)
    if base == "fixed":
        return _bytes(schema["size"], exact)
    if base == "null":
        return _null
    makers = {"boolean": _boolean, "float": _float, "double": _double, "string": _string}
    return makers[base](exact) if base in makers else _bytes(None, exact)


def _null(value: Any) -> None:
    if value is not None:
        raise misfit(value, "None")


def _boolean(exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not bool:
            item = getattr(value, "item", None)  # NumPy's
            if exact or type(value).__name__ not in ("bool", "bool_") or item is None:
                raise misfit(value, "a bool")
            return item()
        return value

    return write


def _integer(bits: int, name: str, exact: bool) -> Write:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    wanted = f"an int ({name})"

    def write(value: Any) -> Any:
        if type(value) is not int:
            if exact or isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise misfit(value, wanted)
            value = int(value)
        if not low <= value <= high:
            raise MisfitError(
                f"{shown(value)} does not fit in the {bits} bits of {'an int' if bits == 32 else 'a long'}"
            )
        return value

    return write


def _double(exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is float:
            return value
        if exact or isinstance(value, bool) or not isinstance(value, numbers.Real | decimal.Decimal):
            raise misfit(value, "a float")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if number != value and not math.isnan(number):
            raise MisfitError(
                f"{shown(value)} cannot become a float without loss: give float(value), or a decimal's schema"
            )
        return number

    return write


def _float(exact: bool) -> Write:
    double = _double(exact)

    def write(value: Any) -> Any:
        value = double(value)
        try:
            (kept,) = struct.unpack("<f", struct.pack("<f", value))  # without the byte order, it would be infinite
        except OverflowError:
            raise MisfitError(
                f"{value!r} does not fit in the 32 bits of a float: give the field the type double"
            ) from None
        if exact and kept != value and not math.isnan(value):
            raise MisfitError(
                f"{value!r} is read back from the 32 bits of a float as {kept!r}: give the field the type double, or round the "
                f"value (float(numpy.float32(value)))"
            )
        return value

    return write


def _string(exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not str and (exact or not isinstance(value, str)):
            raise misfit(value, "a str")
        return value

    return write


def _bytes(size: int | None, exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is not bytes:
            if exact or not isinstance(value, bytes | bytearray | memoryview):
                raise misfit(value, "bytes")
            value = bytes(value)
        if size is not None and len(value) != size:
            raise MisfitError(f"it takes {size} bytes, not {len(value)}: {shown(value)}")
        return value

    return write


def _enum(schema: Schema, exact: bool) -> Write:
    symbols, text = frozenset(schema["symbols"]), _string(exact)

    def write(value: Any) -> Any:
        if text(value) not in symbols:
            raise MisfitError(f"{shown(value)} is not one of {', '.join(schema['symbols'])}")
        return value

    return write


# Logical types. When a value leaves the application, the value of the type below them is also accepted.


def _decimal(schema: Schema, exact: bool) -> Write:
    scale, precision, size = schema.get("scale", 0), schema["precision"], schema.get("size")
    raw, unit = _bytes(size, exact), decimal.Decimal(1).scaleb(-scale)

    def write(value: Any) -> Any:
        if type(value) is not decimal.Decimal:
            if exact or not isinstance(value, bytes | bytearray):
                raise misfit(value, "a Decimal")
            return raw(value)
        if not value.is_finite():
            raise MisfitError(f"{value} is not a number")
        try:
            scaled = value.quantize(unit, context=_ROUNDED)
        except decimal.DecimalException:
            raise MisfitError(f"{value} has no form with {scale} digits after the decimal point") from None
        digits = scaled.as_tuple().digits
        if len(digits) > precision:
            raise MisfitError(
                f"{value} needs {len(digits)} digits with {scale} behind the point, the schema has {precision}"
            )
        if size is not None and abs(int(scaled.scaleb(scale, _ROUNDED))) >= 2 ** (8 * size - 1):
            raise MisfitError(f"{value} does not fit in the {size} bytes of the schema")
        return scaled

    return write


def _timestamp(whole_millis: bool, zone: bool) -> Callable[[Write, bool], Write]:
    def make(raw: Write, exact: bool) -> Write:
        def write(value: Any) -> Any:
            if not isinstance(value, datetime.datetime):
                if exact or isinstance(value, datetime.date):
                    raise misfit(value, "a datetime")
                return raw(value)
            offset = value.utcoffset()
            if zone and offset is None:
                raise MisfitError(
                    f"{value} has no time zone, so it is not a moment: give it one, such as value.replace(tzinfo=timezone.utc)"
                )
            if not zone and value.tzinfo is not None:
                raise MisfitError(f"{value} has a time zone, and the schema takes local times without one")
            if exact:
                _check_kept_time(value, whole_millis)
                if offset:
                    raise MisfitError(f"{value} is read back in UTC: give value.astimezone(timezone.utc)")
            return value

        return write

    return make


def _time(whole_millis: bool) -> Callable[[Write, bool], Write]:
    def make(raw: Write, exact: bool) -> Write:
        def write(value: Any) -> Any:
            if not isinstance(value, datetime.time):
                if exact:
                    raise misfit(value, "a time")
                return raw(value)
            if value.tzinfo is not None:
                raise MisfitError(f"{value} has a time zone, and the schema takes times of a day without one")
            if exact:
                _check_kept_time(value, whole_millis)
            return value

        return write

    return make


def _check_kept_time(value: Any, whole_millis: bool) -> None:
    if whole_millis and value.microsecond % 1000:
        raise MisfitError(f"{value} has microseconds, and the schema keeps milliseconds")
    if type(value) not in (datetime.datetime, datetime.time):
        raise misfit(value, "a datetime or time of Python's own class")


def _date(raw: Write, exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is datetime.date:
            return value
        if exact or isinstance(value, datetime.date):
            raise misfit(value, "a date")
        if isinstance(value, str):
            try:
                return datetime.date.fromisoformat(value)
            except ValueError:
                raise misfit(value, "a date") from None
        return raw(value)

    return write


def _uuid(raw: Write, exact: bool) -> Write:
    def write(value: Any) -> Any:
        if type(value) is uuid.UUID:
            return value
        if exact:
            raise misfit(value, "a UUID")
        try:
            uuid.UUID(raw(value))
        except ValueError as error:
            raise misfit(value, "a UUID") from error
        return value

    return write


_LOGICAL: Mapping[str, Callable[[Write, bool], Write]] = {
    "date": _date,
    "uuid": _uuid,
    "time-millis": _time(True),
    "time-micros": _time(False),
    "timestamp-millis": _timestamp(True, True),
    "timestamp-micros": _timestamp(False, True),
    "local-timestamp-millis": _timestamp(True, False),
    "local-timestamp-micros": _timestamp(False, False),
}


# Defaults are JSON in the schema, and become values as if they had been written and read.


def default_of(schema: Schema, given: Any, names: Names) -> Any:
    """Converts a field's default to a value.

    Raises:
        MisfitError: The default is not a value of the type.
    """
    schema = names.whole(schema)
    if isinstance(schema, list):
        return _default_of_union(schema, given, names)
    base, logical = base_of(schema), logical_of(schema)
    try:
        value = _default_parts(schema, base, given, names)
        if logical is not None:
            value = logical_readers()[logical](value, schema, schema)
        writer_within(names, schema, exact=False)(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise MisfitError(f"its default {shown(given)} is not {in_words(schema)}: {error}") from error
    return value


def _default_parts(schema: Schema, base: str, given: Any, names: Names) -> Any:
    if base in RECORDS and isinstance(given, dict):
        return _default_record(schema, given, names)
    if base == "array" and isinstance(given, list):
        return [default_of(schema["items"], one, names) for one in given]
    if base == "map" and isinstance(given, dict):
        return {key: default_of(schema["values"], one, names) for key, one in given.items()}
    if base in ("bytes", "fixed") and isinstance(given, str):
        # Each character stands for the byte of its code point.
        return given.encode("latin-1")
    # "NaN" and "Infinity" have no number in JSON.
    if base in ("float", "double") and isinstance(given, int | float | str) and not isinstance(given, bool):
        return float(given)
    return given


def _default_record(schema: Schema, given: Mapping[str, Any], names: Names) -> dict[str, Any]:
    made = {}
    for field in schema["fields"]:
        name = field["name"]
        if name not in given and "default" not in field:
            raise MisfitError(f"its default {shown(given)} has no '{name}'")
        made[name] = default_of(field["type"], given[name] if name in given else field["default"], names)
    return made


def _default_of_union(union: list[Schema], given: Any, names: Names) -> Any:
    """The default of the first branch that takes it."""
    first: MisfitError | None = None
    for branch in names.branches(union):
        try:
            return Marks(union, names).of(name_of(branch), default_of(branch, given, names))
        except MisfitError as error:
            first = first or error
    raise first or MisfitError(f"its default {shown(given)} is of no branch")
