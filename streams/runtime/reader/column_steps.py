"""Head operators on columns: filters, mappers of values and new keys by expressions, for all records of a piece at once.

The results, errors and counters are those of the same operators record by record (`streams.operators.stateless`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streams.model.expressions.fields import ValueFields
from streams.operators.aggregate.columns.column_rows import ABSENT, FieldColumn
from streams.operators.expressions.evaluate import Bools, Frame, computed, true_rows
from streams.runtime.counters import Counters
from streams.runtime.rows import NULL, SCALAR
from streams.topology.planning.column_head import ColumnStep
from streams.topology.specs.base import Keeps, Keys


class Failure(NamedTuple):
    """A record that an operator failed for: the row, the operator's position and name, the error."""

    row: int
    position: int
    node: str
    error: Exception


@dataclass(frozen=True, slots=True)
class Columns:
    """The fields of the records behind a node.

    Attributes:
        fields: Columns by path.
        null_values: bool[n]: whether a value is null.
        without_fields: bool[n]: whether a value is a text, a number or the like.
        rows: bool[n]: the records that have come so far.
        keys: The new keys; None: the records have those of the source.
    """

    fields: Mapping[str, FieldColumn]
    null_values: Bools
    without_fields: Bools
    rows: Bools
    keys: FieldColumn | None = None

    @property
    def flags(self) -> dict[str, Bools]:
        """The flags of whole values, by the names of the columns."""
        return {NULL: self.null_values, SCALAR: self.without_fields}

    def frame(self) -> Frame:
        """The fields, for expressions."""
        return Frame(len(self.rows), self.fields, self.without_fields if self.without_fields.any() else None)


def run_steps(
    steps: Sequence[ColumnStep], source: str, columns: Columns, counters: Counters
) -> tuple[dict[str, Columns], list[Failure]]:
    """Runs the operators behind a source.

    Args:
        steps: The operators, parents first.
        source: The source's name.
        columns: What the source reads.
        counters: Gets the numbers of records in and out of each operator.

    Returns:
        The columns behind the source and each operator, and the failures.
    """
    behind = {source: columns}
    failures: list[Failure] = []
    for position, step in enumerate(steps):
        above = behind[step.parent]
        failed: dict[int, Exception] = {}
        does = step.does
        if isinstance(does, Keeps):
            made = _kept(does, above, failed)
        elif isinstance(does, Keys):
            made = _keyed(does, above, failed)
        else:
            made = _mapped(does, step, above, failed)
        behind[step.node] = made
        counters.add(f"in:{step.node}", int(above.rows.sum()))
        counters.add(f"out:{step.node}", int(made.rows.sum()))
        failures += (Failure(row, position, step.node, error) for row, error in failed.items())
    return behind, failures


def _kept(does: Keeps, above: Columns, failed: dict[int, Exception]) -> Columns:
    true = true_rows(does.where, above.frame(), above.rows, failed)
    rows = above.rows & (~true if does.negate else true)
    return replace(above, rows=without(rows, failed))


def _keyed(does: Keys, above: Columns, failed: dict[int, Exception]) -> Columns:
    keys = computed(does.key, above.frame(), above.rows, failed)
    return replace(above, rows=without(above.rows, failed), keys=keys)


def _mapped(does: ValueFields, step: ColumnStep, above: Columns, failed: dict[int, Exception]) -> Columns:
    rows = above.rows & ~above.null_values  # a null value stays null
    if above.without_fields.any():
        rows = _fail_without_fields(does, above.without_fields, rows, failed)
    frame = above.frame()
    made: dict[str, FieldColumn] = {}
    for name, expression in does.computed:
        errors: dict[int, Exception] = {}
        made[name] = _null_where(above.null_values, computed(expression, frame, rows, errors))
        rows = without(rows, errors)
        failed.update(errors)
    moved = {behind: above.fields[before] for behind, before in step.moved if before in above.fields}
    kept = without(above.rows, failed)
    return Columns({**moved, **made}, above.null_values, np.zeros(len(kept), np.bool_), kept, above.keys)


def _fail_without_fields(does: ValueFields, without: Bools, rows: Bools, failed: dict[int, Exception]) -> Bools:
    """Fails the values that have no fields as the mapper does for each."""
    try:
        does("")
    except Exception as error:
        failed.update(dict.fromkeys(np.flatnonzero(rows & without).tolist(), error))
        return rows & ~without
    return rows


def _null_where(null: Bools, column: FieldColumn) -> FieldColumn:
    if not null.any():
        return column
    texts = column.texts
    if texts is not None:
        texts = pc.if_else(pa.array(null), pa.scalar(None, pa.binary()), texts)
    return FieldColumn(np.where(null, np.uint8(ABSENT), column.kinds), column.ints, column.floats, texts)


def without(rows: Bools, failed: Mapping[int, Exception]) -> Bools:
    """The records but those that have failed."""
    if not failed:
        return rows
    rows = rows.copy()
    rows[list(failed)] = False
    return rows
