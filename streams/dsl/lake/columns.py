"""The nodes of a lake sink: rows are made of records, and sent to an internal topic that a query of its own reads.

::

    port ──▶ rows ──▶ sink ──▶ internal topic        (a step's transaction)
                                   └──▶ one Delta commit, or one call, for each batch
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streams.dsl.nodes.graph_builder import GraphBuilder, Port
from streams.dsl.nodes.result_types import Type, serde_type
from streams.errors import TopologyError
from streams.model.column_types import column_type, fields_of, without_none
from streams.model.row_layout import Origin, RowLayout, TableColumn
from streams.model.table_columns import ColumnType, ScalarType
from streams.serdes.base import Serde
from streams.serdes.json import JsonSerde
from streams.serdes.primitives import StringSerde
from streams.serdes.type_names import type_name
from streams.topology.graph import DeltaTable, InternalTopic, LakeSink, SinkNode
from streams.topology.naming import check_name
from streams.topology.specs.lake import ToRowsSpec

Schema: TypeAlias = Mapping[str, Type] | Type
"""The fields of values with their types, a class with annotations, or the type of values without fields."""

_TIME = ScalarType("TIMESTAMP")
_RESERVED = ("_partition", "_offset", "_deleted")


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """What the columns that are no fields of the value are called.

    Attributes:
        key: The column of the key; None: there is none.
        value: The column of values without fields.
        timestamp: The column of the timestamp; None: there is none.
    """

    key: str | None = "key"
    value: str = "value"
    timestamp: str | None = "timestamp"


def layout_of(
    graph: GraphBuilder,
    port: Port,
    method: str,
    schema: Schema | None,
    names: ColumnNames,
    keys: tuple[str, ...] | None,
) -> RowLayout:
    """The columns of a sink behind a port.

    Args:
        graph: The topology under construction.
        port: The records.
        method: The method that adds the sink, for messages.
        schema: The fields of the values; None: those of their type.
        names: What the other columns are called.
        keys: The columns that make a row unique; empty: those of the record's key; None: each record is a row of its own.

    Raises:
        TopologyError: A type is unknown, two columns have one name, or a key is no column.
    """
    key_serde, value_serde = graph.key_serde(port.key_serde), graph.value_serde(port.value_serde)
    fields = dict(schema) if isinstance(schema, Mapping) else {}
    columns = (
        *_key_columns(method, key_serde, names.key, fields),
        *([TableColumn(names.timestamp, _TIME, Origin.TIMESTAMP)] if names.timestamp else []),
        *_value_columns(method, value_serde, schema, fields, names.value),
    )
    found = [column.name for column in columns]
    for name in found:
        if [other.lower() for other in found].count(name.lower()) > 1:  # SQL does not tell cases apart
            raise TopologyError(
                f"{method}: two columns are called {name!r}. Rename the one that is no field of the value, with key=..., "
                f"timestamp=... or value=..., or leave it out with None."
            )
        if name in _RESERVED:
            raise TopologyError(f"{method}: no column may be called {name!r}; rename the field with map_values().")
    if keys is None:
        return RowLayout(columns)
    chosen = keys or tuple(column.name for column in columns if column.of_the_key)
    for name in chosen or ("key",):
        if name not in found:
            raise TopologyError(
                f"{method}: rows are updated by keys, and {name!r} is none of the columns {', '.join(found)}: name some with "
                f"keys=(...)."
            )
    return RowLayout(columns, chosen)


def add_lake_sink(
    graph: GraphBuilder, port: Port, name: str, layout: RowLayout, target: DeltaTable | Callable[[Any, int], object]
) -> None:
    """Adds the sink.

    Args:
        graph: The topology under construction.
        port: The records.
        name: The sink's name.
        layout: The columns.
        target: What is written to.

    Raises:
        TopologyError: The name is taken, or could not be part of a topic's name.
    """
    topic = InternalTopic(check_name(name))
    graph.topology.add_lake_sink(LakeSink(name, topic, layout, target))
    rows = graph.stateless(ToRowsSpec(layout), port, f"{name}-rows", new_key=True, new_value=True)
    graph.topology.add(SinkNode(f"{topic}-sink", (rows.node,), topic, None, JsonSerde(), JsonSerde()))


def _key_columns(
    method: str, serde: Serde[Any], name: str | None, declared: dict[str, Type]
) -> tuple[TableColumn, ...]:
    """The columns of the key and its window; a declared type is taken out of the fields."""
    windowed = hasattr(serde, "serialize_base_key")
    window = (
        (TableColumn("window_start", _TIME, Origin.WINDOW_START), TableColumn("window_end", _TIME, Origin.WINDOW_END))
        if windowed
        else ()
    )
    if name is None:
        return window
    inner: Serde[Any] = getattr(serde, "inner", serde) if windowed else serde
    kind = declared.pop(name, None) or (str if isinstance(inner, StringSerde) else serde_type(inner))
    of = None if kind is None else column_type(kind)
    if of is None:
        raise TopologyError(
            f"{method}: the type of the column {name!r} is unknown, since {type(serde).__name__} does not tell the keys' type. "
            f"Declare it with schema={{{name!r}: str, ...}}, or leave the key out with key=None."
        )
    return (TableColumn(name, of, Origin.KEY), *window)


def _value_columns(
    method: str, serde: Serde[Any], schema: Schema | None, declared: Mapping[str, Type], value: str
) -> tuple[TableColumn, ...]:
    if declared:
        return tuple(_field(method, name, kind) for name, kind in declared.items())
    kind = serde_type(serde) if schema is None or isinstance(schema, Mapping) else schema
    fields = None if kind is None else fields_of(kind)
    if fields is not None:
        return tuple(TableColumn(field.name, field.type, Origin.FIELD, field.nullable) for field in fields)
    of: ColumnType | None = None if kind is None else column_type(kind)
    if of is None:
        what = f"{type_name(kind)} has no columns" if kind is not None else "the values' type is unknown"
        raise TopologyError(
            f"{method}: {what}. Declare the columns with schema={{'user': str, 'amount': float, ...}} or with a dataclass, "
            f"or give the stream a serde with a type, such as JsonSerde(Order)."
        )
    return (TableColumn(value, of, Origin.VALUE),)


def _field(method: str, name: str, kind: Type) -> TableColumn:
    of = column_type(kind)
    if of is None:
        raise TopologyError(
            f"{method}: the column {name!r} cannot have the type {type_name(kind)}. Columns are str, int, float, bool, bytes, "
            f"datetime, date, Decimal, lists and dictionaries of these, and classes with such fields."
        )
    return TableColumn(name, of, Origin.FIELD, without_none(kind)[1])
