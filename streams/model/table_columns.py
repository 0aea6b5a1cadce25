"""Tables outside Kafka: types of columns, the cells of a row as JSON, and `RowLayout`, which maps a record to a row.

A row travels through an internal topic as a JSON object with a cell for each column. Each type has its name in Spark SQL, converts
a value to a cell (`cell`, which refuses a value that does not fit), and reads the cell back (`read`). Equal values have the same
cell, because the cells of a key choose its partition. Invariants: `read(cell(value))` is the same for equal values in every
process; types are frozen and picklable.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from streams.errors import RowError
from streams.model import iso
from streams.model.record import Record, Windowed

_INT64 = 2**63
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=60, traps=[InvalidOperation])
_LAST_DIGIT = Decimal("1e-18")

Cell: TypeAlias = Any
"""A value that JSON has: text, number, boolean, None, or a list of these."""


def _text(value: Any) -> Cell:
    if type(value) is str and value.isascii():
        return value
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, UUID):
        value = str(value)
    if not isinstance(value, str):
        raise TypeError
    value.encode()  # a lone surrogate is not text in any file
    return value


def _whole(value: Any) -> Cell:
    number = value.item() if type(value) is not int and hasattr(value, "item") else value
    if type(number) is not int or not -_INT64 <= number < _INT64:
        raise TypeError
    return number


def _number(value: Any) -> Cell:
    number = value.item() if type(value) is not float and hasattr(value, "item") else value
    if type(number) not in (int, float):
        raise TypeError
    return float(number) + 0.0 if math.isfinite(number) else str(float(number))  # -0.0 + 0.0 is 0.0


def _boolean(value: Any) -> Cell:
    found = value.item() if hasattr(value, "item") else value
    if type(found) is not bool:
        raise TypeError
    return found


def _bytes(value: Any) -> Cell:
    return base64.b64encode(memoryview(value)).decode()


def _moment(value: Any) -> Cell:
    """Converts a `datetime` (no zone: UTC), ISO 8601 text, or milliseconds since 1970 to microseconds since 1970."""
    if type(value) is int:
        return _whole(value * 1000)
    if isinstance(value, str):
        value = iso.moment(value)
    if not isinstance(value, datetime):
        raise TypeError
    moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
    return (moment - _EPOCH) // _MICROSECOND


def _day(value: Any) -> Cell:
    """Converts a `date` or ISO 8601 text to days since 1970."""
    if isinstance(value, str):
        value = iso.day(value)
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError
    return value.toordinal() - _EPOCH.toordinal()


def _decimal(value: Any) -> Cell:
    if type(value) is bool or not isinstance(value, Decimal | int | str):
        raise TypeError
    number = Decimal(value)
    if not number.is_finite() or number.copy_abs() >= 10**20 or number != number.quantize(_LAST_DIGIT, context=_EXACT):
        raise TypeError
    return f"{_EXACT.add(number, Decimal()).normalize(_EXACT):f}"  # without trailing zeros, and without the sign of -0


def _same(cell: Cell) -> Any:
    return cell


SCALARS: Mapping[str, tuple[Callable[[Any], Cell], Callable[[Cell], Any]]] = {
    "STRING": (_text, _same),
    "BIGINT": (_whole, _same),
    "DOUBLE": (_number, float),
    "BOOLEAN": (_boolean, _same),
    "BINARY": (_bytes, base64.b64decode),
    "TIMESTAMP": (_moment, _same),
    "DATE": (_day, _same),
    "DECIMAL(38,18)": (_decimal, Decimal),
}
"""Name of a type -> the functions that convert a value to a cell, and a cell to a value."""


class ColumnType(ABC):
    """The type of a column, or of a part of a column."""

    __slots__ = ()

    @property
    @abstractmethod
    def sql(self) -> str:
        """The type's name in Spark SQL."""

    @abstractmethod
    def cell(self, value: Any) -> Cell:
        """Converts a value other than None to a cell. Raises `RowError` if the value does not fit."""

    def read(self, cell: Cell) -> Any:
        """Converts a cell other than None to a value that Arrow accepts."""
        return cell


def misfit(value: object, sql: str) -> RowError:
    """The error for a value that does not fit a type."""
    text = repr(value)
    return RowError(f"{text if len(text) <= 60 else text[:60] + '...'} is not a valid {sql}")


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarType(ColumnType):
    """A type without parts, such as text or a number."""

    name: str

    @property
    def sql(self) -> str:
        """The type's name in Spark SQL."""
        return self.name

    def cell(self, value: Any) -> Cell:
        """Converts a value to a cell. Raises `RowError` if the value does not fit."""
        try:
            return SCALARS[self.name][0](value)
        except (TypeError, ValueError, OverflowError, InvalidOperation):
            raise misfit(value, self.name) from None

    def read(self, cell: Cell) -> Any:
        """Converts a cell to a value."""
        return SCALARS[self.name][1](cell)


@dataclasses.dataclass(frozen=True, slots=True)
class ListType(ColumnType):
    """An array."""

    item: ColumnType

    @property
    def sql(self) -> str:
        """`ARRAY<...>`."""
        return f"ARRAY<{self.item.sql}>"

    def cell(self, value: Any) -> Cell:
        """Converts each item to a cell. The cells of a set are sorted, because its order differs between processes."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | set | frozenset):
            raise misfit(value, self.sql)
        cells = [None if one is None else self.item.cell(one) for one in value]
        return _sorted(cells) if isinstance(value, set | frozenset) else cells

    def read(self, cell: Cell) -> Any:
        """Converts each cell to an item."""
        return [None if one is None else self.item.read(one) for one in cell]


@dataclasses.dataclass(frozen=True, slots=True)
class MapType(ColumnType):
    """A map whose keys are texts."""

    item: ColumnType

    @property
    def sql(self) -> str:
        """`MAP<STRING, ...>`."""
        return f"MAP<STRING, {self.item.sql}>"

    def cell(self, value: Any) -> Cell:
        """Converts a mapping to pairs of key and cell."""
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise misfit(value, self.sql)
        return [[name, None if one is None else self.item.cell(one)] for name, one in value.items()]

    def read(self, cell: Cell) -> Any:
        """Converts each pair to a pair of key and value."""
        return [(name, None if one is None else self.item.read(one)) for name, one in cell]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A named part of a value.

    Attributes:
        name: The part's name.
        type: The part's type.
        nullable: Whether the part may be None or missing.
    """

    name: str
    type: ColumnType
    nullable: bool = True

    def cell(self, value: Any) -> Cell:
        """Converts this part of `value` to a cell. Raises `RowError` if the part is missing or does not fit."""
        part = part_of(value, self.name)
        if part is None:
            if self.nullable:
                return None
            raise RowError(f"the field {self.name!r} is missing or None, and its type has no `| None`")
        try:
            return self.type.cell(part)
        except RowError as error:
            raise RowError(f"the field {self.name!r}: {error}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class StructType(ColumnType):
    """An object with named parts."""

    fields: tuple[Field, ...]

    @property
    def sql(self) -> str:
        """`STRUCT<...>`."""
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {field.type.sql}' for field in self.fields)}>"

    def cell(self, value: Any) -> Cell:
        """Converts the parts to cells, in the order of the fields."""
        check_has_parts(value)
        return [field.cell(value) for field in self.fields]

    def read(self, cell: Cell) -> Any:
        """Converts the cells to a dictionary of the parts."""
        pairs = zip(self.fields, cell, strict=True)
        return {field.name: None if part is None else field.type.read(part) for field, part in pairs}


def quoted(name: str) -> str:
    """Quotes a name so that Spark SQL accepts any character in it."""
    return "`" + name.replace("`", "``") + "`"


def check_has_parts(value: Any) -> None:
    """Raises `RowError` unless a value has named parts."""
    if isinstance(value, str | bytes | int | float | list | bool):
        raise RowError(f"{value!r:.60} has no fields")


def part_of(value: Any, name: str) -> Any:
    """Reads a part of a dictionary or of an object; None if it is missing."""
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


_BY_TYPE: Mapping[Any, str] = {
    str: "STRING",
    UUID: "STRING",
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    bytes: "BINARY",
    datetime: "TIMESTAMP",
    date: "DATE",
    Decimal: "DECIMAL(38,18)",
}


def column_type(kind: Any) -> ColumnType | None:
    """The column type for a Python type; None if there is none."""
    bare, _ = without_none(kind)
    if isinstance(bare, type) and issubclass(bare, Enum):
        return ScalarType("STRING")
    name = _BY_TYPE.get(bare) if isinstance(bare, typing.Hashable) else None
    if name is not None:
        return ScalarType(name)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and len(arguments) == 2 and arguments[1] is ...):
        item = column_type(arguments[0])
        return None if item is None else ListType(item)
    if origin in (dict, Mapping) and without_none(arguments[0])[0] is str:
        item = column_type(arguments[1])
        return None if item is None else MapType(item)
    fields = fields_of(bare)
    return None if fields is None else StructType(fields)


def fields_of(kind: Any) -> tuple[Field, ...] | None:
    """The fields of a dataclass, TypedDict, NamedTuple or model; None if it has no fields, or one of them has no column type."""
    bare, _ = without_none(kind)
    if not isinstance(bare, type) or bare.__module__ == "builtins" or not getattr(bare, "__annotations__", None):
        return None
    try:
        hints = typing.get_type_hints(bare)
    except Exception:  # an annotation may be anything
        return None
    found = []
    for name, hint in hints.items():
        if typing.get_origin(hint) is typing.ClassVar or name.startswith("__"):
            continue
        of = column_type(hint)
        if of is None:
            return None
        found.append(Field(name, of, without_none(hint)[1]))
    return tuple(found) or None


def without_none(kind: Any) -> tuple[Any, bool]:
    """A type without `None`, `Annotated`, `Required` and `NewType`, and whether the type allows None."""
    supertype = getattr(kind, "__supertype__", None)
    if supertype is not None:
        return without_none(supertype)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated or str(origin).endswith((".Required", ".NotRequired")):
        bare, optional = without_none(arguments[0])
        return bare, optional or str(origin).endswith(".NotRequired")
    if origin is typing.Literal and all(isinstance(one, str) for one in arguments):
        return str, False
    if type(None) in arguments and len(arguments) == 2:
        (other,) = (one for one in arguments if one is not type(None))
        return without_none(other)[0], True
    return kind, False


class RecordPart(Enum):
    """The part of a record that a column is taken from."""

    KEY = "key"
    WINDOW_START = "window start"
    WINDOW_END = "window end"
    TIMESTAMP = "timestamp"
    FIELD = "field of the value"
    VALUE = "value"


_END_OF_9999 = 253_402_300_799_999
"""The end of a window that never ends, in milliseconds since 1970: the last millisecond that tables and SQL can show."""
_OF_THE_KEY = (RecordPart.KEY, RecordPart.WINDOW_START, RecordPart.WINDOW_END)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table.

    Attributes:
        name: The column's name; a column of a field has the field's name.
        type: The column's type.
        origin: The part of a record that the column is taken from.
        nullable: Whether the column may be null.
    """

    name: str
    type: ColumnType
    origin: RecordPart
    nullable: bool = True

    @property
    def of_the_key(self) -> bool:
        """Whether the column is taken from the record's key."""
        return self.origin in _OF_THE_KEY

    def cell(self, record: Record[Any, Any]) -> Cell:
        """The cell of a column that is not a field of the value. Raises `RowError` if the record's part does not fit."""
        part = _part(self.origin, record)
        if part is None:
            return None
        try:
            return self.type.cell(part)
        except RowError as error:
            raise RowError(f"the record's {self.origin.value}: {error}") from None


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """A rule of the table for a column besides its type.

    Attributes:
        name: The column's name.
        required: Whether the table refuses nulls.
        longest: The largest number of characters of a text; None: no limit.
    """

    name: str
    required: bool = False
    longest: int | None = None

    def check(self, cell: Cell) -> None:
        """Raises `RowError` if the table would refuse the cell."""
        if cell is None:
            if self.required:
                raise RowError(f"the column {self.name!r} of the table is NOT NULL, and the record has no value for it")
        elif self.longest is not None and len(cell) > self.longest:
            raise RowError(
                f"the column {self.name!r} of the table takes {self.longest} characters, and the text has {len(cell)}"
            )


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a sink.

    Attributes:
        columns: The columns, in the order of the table.
        keys: The names of the columns that identify a row; empty: each record becomes a separate row.
        rules: The table's rules for the columns; empty until an application has read them from the table.
    """

    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...] = ()
    rules: tuple[ColumnRule, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


class RowMaker:
    """Makes rows from records, one call per record. What depends only on the columns is computed once."""

    def __init__(self, layout: RowLayout) -> None:
        self._keys, self._rules = layout.keys, layout.rules
        self._columns = {column.name: column for column in layout.columns}
        self._cell_of = [(column.name, _cell_function(column)) for column in layout.columns]
        self._has_fields = any(column.origin is RecordPart.FIELD for column in layout.columns)
        self._key = next((column.name for column in layout.columns if column.origin is RecordPart.KEY), None)

    def row(self, record: Record[Any, Any]) -> tuple[list[Cell] | None, dict[str, Cell] | None]:
        """Returns the record's key and row for the internal topic. If the row is None, it deletes the key's row.

        A row contains the names of its columns, so that a later version of the program with more or fewer columns can read it.

        Raises:
            RowError: A part of the record does not fit its column, or a column of the key is null.
        """
        if self._keys and record.value is None:
            return self._checked([self._deleted(self._columns[name], record) for name in self._keys]), None
        if self._has_fields and record.value is not None:
            check_has_parts(record.value)
        row = {name: cell_of(record) for name, cell_of in self._cell_of}
        for rule in self._rules:
            rule.check(row[rule.name])
        if self._keys:
            return self._checked([row[name] for name in self._keys]), row
        key = None if self._key is None else row[self._key]
        return None if key is None else [key], row

    @staticmethod
    def _deleted(column: TableColumn, record: Record[Any, Any]) -> Cell:
        if not column.of_the_key:
            raise RowError(
                f"a record without a value deletes the row of its key, but the rows of this table are found by the column "
                f"{column.name!r}, which is part of the value: filter such records out, or use the key of the record as the key"
            )
        return column.cell(record)

    def _checked(self, key: list[Cell]) -> list[Cell]:
        if None in key:
            name = self._keys[key.index(None)]
            raise RowError(f"the column {name!r} is a key of the table's rows, and the record has none")
        return key


def _cell_function(column: TableColumn) -> Callable[[Record[Any, Any]], Cell]:
    """Returns a function that makes the column's cell from a record."""
    if column.origin is not RecordPart.FIELD:
        return column.cell
    cell = Field(column.name, column.type, column.nullable).cell
    return lambda record: None if record.value is None else cell(record.value)


def _part(origin: RecordPart, record: Record[Any, Any]) -> Any:
    if origin is RecordPart.TIMESTAMP:
        return record.timestamp if record.timestamp >= 0 else None
    if origin is RecordPart.VALUE:
        return record.value
    if origin is RecordPart.KEY:
        return record.key.key if isinstance(record.key, Windowed) else record.key
    if not isinstance(record.key, Windowed):
        return None
    window = record.key.window
    return window.start if origin is RecordPart.WINDOW_START else min(window.end, _END_OF_9999)


def _sorted(cells: list[Cell]) -> list[Cell]:
    """Sorts cells of one type in a fixed order, None first."""
    try:
        return sorted(cells, key=lambda one: (one is not None, one))
    except TypeError:
        # Structs with parts that are None cannot be compared.
        return sorted(cells, key=repr)
