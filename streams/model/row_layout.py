"""`RowLayout`: the columns of a lake sink, and how a record becomes a row of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from streams.errors import RowError
from streams.model.record import Record, Windowed
from streams.model.table_columns import Cell, ColumnType, Field, check_has_parts


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
        """The column's cell of a record. Raises `RowError` if the record's part does not fit."""
        if self.origin is Origin.FIELD:
            return None if record.value is None else Field(self.name, self.type, self.nullable).cell(record.value)
        part = _part(self.origin, record)
        if part is None:
            return None
        try:
            return self.type.cell(part)
        except RowError as error:
            raise RowError(f"the record's {self.origin.value}: {error}") from None


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a sink.

    Attributes:
        columns: The columns, in the order of the table.
        keys: The names of the columns that make a row unique; empty: each record is a row of its own.
    """

    columns: tuple[TableColumn, ...]
    keys: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def key_places(self) -> tuple[int, ...]:
        """The places of the key columns."""
        return tuple(self.names.index(name) for name in self.keys)

    def row(self, record: Record[Any, Any]) -> tuple[list[Cell] | None, dict[str, Cell] | None]:
        """The record's key and row in the internal topic; a row None deletes.

        A row names its columns, so that the next version of a program, with more or fewer of them, can read it.

        Raises:
            RowError: A part of the record does not fit its column, or a column of the key is null.
        """
        if not self.keys:
            cells = self._cells(record)
            key = [cell for column, cell in zip(self.columns, cells, strict=True) if column.origin is Origin.KEY]
            return (key if key and key[0] is not None else None), dict(zip(self.names, cells, strict=True))
        if record.value is None:
            return self._checked([self._deleted(self.columns[at], record) for at in self.key_places]), None
        cells = self._cells(record)
        return self._checked([cells[at] for at in self.key_places]), dict(zip(self.names, cells, strict=True))

    def _cells(self, record: Record[Any, Any]) -> list[Cell]:
        if record.value is not None and any(column.origin is Origin.FIELD for column in self.columns):
            check_has_parts(record.value)
        return [column.cell(record) for column in self.columns]

    @staticmethod
    def _deleted(column: TableColumn, record: Record[Any, Any]) -> Cell:
        if not column.of_the_key:
            raise RowError(
                f"a record without a value deletes the row of its key, but the rows of this table are found by the column "
                f"{column.name!r}, which is part of the value: filter such records out before, or let the record's key be the key"
            )
        return column.cell(record)

    def _checked(self, key: list[Cell]) -> list[Cell]:
        for name, cell in zip(self.keys, key, strict=True):
            if cell is None:
                raise RowError(f"the column {name!r} is a key of the table's rows, and the record has none")
        return key


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
