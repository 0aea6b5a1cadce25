"""`RowLayout`: the columns of a lake sink, and how a record becomes a row of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from streams.errors import RowError
from streams.model.record import Record, Windowed
from streams.model.scalar_cells import Cell
from streams.model.table_columns import ColumnType, Field, check_has_parts


class Origin(Enum):
    """The part of a record that a column is taken from."""

    KEY = "key"
    WINDOW_START = "window start"
    WINDOW_END = "window end"
    TIMESTAMP = "timestamp"
    FIELD = "field of the value"
    VALUE = "value"


_END_OF_9999 = 253_402_300_799_999
"""The end of windows that have none, milliseconds since 1970: what tables and SQL can still show."""
_OF_THE_KEY = (Origin.KEY, Origin.WINDOW_START, Origin.WINDOW_END)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column.

    Attributes:
        name: The column's name, for a field of the value also the field's.
        type: The type.
        origin: What the column is taken from.
        nullable: Whether a value may lack it.
    """

    name: str
    type: ColumnType
    origin: Origin
    nullable: bool = True

    @property
    def of_the_key(self) -> bool:
        """Whether a record's key decides the column."""
        return self.origin in _OF_THE_KEY

    def cell(self, record: Record[Any, Any]) -> Cell:
        """The cell of a column that is no field. Raises `RowError` if the record's part does not fit."""
        part = _part(self.origin, record)
        if part is None:
            return None
        try:
            return self.type.cell(part)
        except RowError as error:
            raise RowError(f"the record's {self.origin.value}: {error}") from None


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """What a table asks of a column besides its type.

    Attributes:
        name: The column's name.
        required: Whether the table refuses nulls.
        longest: The most characters of a text; None: any number.
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
        keys: The names of the columns that make a row unique; empty: each record is a row of its own.
        rules: What the table asks of the columns; known once an application has looked at it.
    """

    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...] = ()
    rules: tuple[ColumnRule, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


class RowMaker:
    """Makes rows of records, as a step does for each record: what depends on the columns alone is computed once.

    Args:
        layout: The columns.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._keys, self._rules = layout.keys, layout.rules
        self._columns = {column.name: column for column in layout.columns}
        self._cell_of = [(column.name, _cell_function(column)) for column in layout.columns]
        self._has_fields = any(column.origin is Origin.FIELD for column in layout.columns)
        self._key = next((column.name for column in layout.columns if column.origin is Origin.KEY), None)

    def row(self, record: Record[Any, Any]) -> tuple[list[Cell] | None, dict[str, Cell] | None]:
        """The record's key and row in the internal topic; a row None deletes.

        A row names its columns, so that the next version of a program, with more or fewer of them, can read it.

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
                f"{column.name!r}, which is part of the value: filter such records out before, or let the record's key be the key"
            )
        return column.cell(record)

    def _checked(self, key: list[Cell]) -> list[Cell]:
        if None in key:
            name = self._keys[key.index(None)]
            raise RowError(f"the column {name!r} is a key of the table's rows, and the record has none")
        return key


def _cell_function(column: TableColumn) -> Callable[[Record[Any, Any]], Cell]:
    """What makes a column's cell of a record."""
    if column.origin is not Origin.FIELD:
        return column.cell
    cell = Field(column.name, column.type, column.nullable).cell
    return lambda record: None if record.value is None else cell(record.value)


def _part(origin: Origin, record: Record[Any, Any]) -> Any:
    if origin is Origin.TIMESTAMP:
        return record.timestamp if record.timestamp >= 0 else None
    if origin is Origin.VALUE:
        return record.value
    if origin is Origin.KEY:
        return record.key.key if isinstance(record.key, Windowed) else record.key
    if not isinstance(record.key, Windowed):
        return None
    window = record.key.window
    return window.start if origin is Origin.WINDOW_START else min(window.end, _END_OF_9999)
