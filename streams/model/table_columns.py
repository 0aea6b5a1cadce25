"""Columns of tables outside Kafka: their types, and the cells of a row as JSON.

A row travels through an internal topic as a JSON object with a cell for each column. Each type says what it is called in Spark
SQL, makes a cell of a value (`cell`, which refuses what does not fit), and reads the cell back (`read`).

Invariants: `read(cell(value))` is the same for equal values in every process; types are frozen and picklable.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import InvalidOperation
from typing import Any

from streams.errors import RowError
from streams.model.scalar_cells import SCALARS, Cell


class ColumnType(ABC):
    """The type of a column or of a part of one."""

    __slots__ = ()

    @property
    @abstractmethod
    def sql(self) -> str:
        """The type in Spark SQL."""

    @abstractmethod
    def cell(self, value: Any) -> Cell:
        """The cell of a value other than None. Raises `RowError` if the value does not fit."""

    def read(self, cell: Cell) -> Any:
        """The value of a cell other than None, as Arrow takes it."""
        return cell


def misfit(value: object, sql: str) -> RowError:
    """The error for a value that does not fit a type."""
    text = repr(value)
    return RowError(f"{text if len(text) <= 60 else text[:60] + '...'} is no {sql}")


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarType(ColumnType):
    """A type without parts.

    Attributes:
        name: The type in Spark SQL, a key of `SCALARS`.
    """

    name: str

    @property
    def sql(self) -> str:
        """The name."""
        return self.name

    def cell(self, value: Any) -> Cell:
        """The cell. Raises `RowError` if the value does not fit."""
        try:
            return SCALARS[self.name][0](value)
        except (TypeError, ValueError, OverflowError, InvalidOperation):
            raise misfit(value, self.name) from None

    def read(self, cell: Cell) -> Any:
        """The value."""
        return SCALARS[self.name][1](cell)


@dataclasses.dataclass(frozen=True, slots=True)
class ListType(ColumnType):
    """An array.

    Attributes:
        item: The type of its items.
    """

    item: ColumnType

    @property
    def sql(self) -> str:
        """`ARRAY<...>`."""
        return f"ARRAY<{self.item.sql}>"

    def cell(self, value: Any) -> Cell:
        """The cells of the items."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence | set | frozenset):
            raise misfit(value, self.sql)
        return [None if one is None else self.item.cell(one) for one in value]

    def read(self, cell: Cell) -> Any:
        """The items."""
        return [None if one is None else self.item.read(one) for one in cell]


@dataclasses.dataclass(frozen=True, slots=True)
class MapType(ColumnType):
    """A map from text.

    Attributes:
        item: The type of its values.
    """

    item: ColumnType

    @property
    def sql(self) -> str:
        """`MAP<STRING, ...>`."""
        return f"MAP<STRING, {self.item.sql}>"

    def cell(self, value: Any) -> Cell:
        """The entries, as pairs."""
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise misfit(value, self.sql)
        return [[name, None if one is None else self.item.cell(one)] for name, one in value.items()]

    def read(self, cell: Cell) -> Any:
        """The entries."""
        return [(name, None if one is None else self.item.read(one)) for name, one in cell]


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A named part of a value.

    Attributes:
        name: The name.
        type: The type.
        nullable: Whether the part may be None or missing.
    """

    name: str
    type: ColumnType
    nullable: bool = True

    def cell(self, value: Any) -> Cell:
        """The cell of the part of a value. Raises `RowError` if the part is missing, or does not fit."""
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
    """A value with named parts.

    Attributes:
        fields: The parts.
    """

    fields: tuple[Field, ...]

    @property
    def sql(self) -> str:
        """`STRUCT<...>`."""
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {field.type.sql}' for field in self.fields)}>"

    def cell(self, value: Any) -> Cell:
        """The cells of the parts, in their order."""
        check_has_parts(value)
        return [field.cell(value) for field in self.fields]

    def read(self, cell: Cell) -> Any:
        """The parts by name."""
        pairs = zip(self.fields, cell, strict=True)
        return {field.name: None if part is None else field.type.read(part) for field, part in pairs}


def quoted(name: str) -> str:
    """A name as Spark SQL takes any name."""
    return "`" + name.replace("`", "``") + "`"


def check_has_parts(value: Any) -> None:
    """Raises `RowError` unless a value has named parts."""
    if isinstance(value, str | bytes | int | float | list | bool):
        raise RowError(f"{value!r:.60} has no fields")


def part_of(value: Any, name: str) -> Any:
    """A part of a dictionary or an object; None if it is missing."""
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
