"""Two tables joined by key (Kafka Streams: `KTableKTableInnerJoin`, `…LeftJoin`, `…RightJoin`, `…OuterJoin`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from itertools import repeat
from typing import Any

import numpy as np

from state.columns import rows_where
from streams.model.ownership import itself, only_reads
from streams.model.record import Record
from streams.operators.columnar import NULL_KEY, Changes, ColumnarBatch, Int64s, null_values, take_values
from streams.operators.operator import Operator, OperatorContext, call_each, drop_rows, latest_only
from streams.operators.stores.found_rows import FoundRows
from streams.operators.table.table_materializer import PassedOn, TableMaterializer, TableOperator, opened
from streams.operators.table.value_getter import ValueGetter


class _Unseen(Enum):
    """Marks that neither side has a row, even if one side has not seen it: a joined row that was forwarded is deleted."""

    ROW = "row"


UNSEEN = _Unseen.ROW
"""Takes the place of a result. It is a member of an enumeration, because copies of it must be the same object."""


class TableTableJoin(Operator):
    """One side of the join: an update is joined with the other side's value.

    | other side has | this side may miss the other | result |
    |---|---|---|
    | nothing | no | no result |
    | nothing | yes | joined with None; no result if both the new and the old value are null |
    | a value | | joined; a deletion if this side's value is null and the other side alone gives no row |

    The result's time is the larger of the update's and the other value's. Null keys are dropped; out-of-order updates of a
    versioned table are skipped (KIP-914).

    Args:
        joiner: `(key, left value, right value) -> value`.
        is_left: Whether this is the left side.
        alone: Whether a row of this side has a result without one of the other side.
        other_alone: Whether a row of the other side has a result without one of this side.
        versioned: Whether this side's table is versioned.
        related: Whether both sides derive from the same table, or one side from the other, so that one update changes both.
        send_old: Whether children need `Change.old`.
    """

    def __init__(
        self,
        other: ValueGetter,
        joiner: Callable[[Any, Any, Any], Any],
        is_left: bool,
        alone: bool,
        other_alone: bool,
        versioned: bool = False,
        related: bool = False,
        send_old: bool = False,
    ) -> None:
        self.other = other
        self.joiner = joiner
        self.is_left = is_left
        self.alone = alone
        self.other_alone = other_alone
        self.versioned = versioned
        self.related = related
        self.send_old = send_old

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.joiner)

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        # The lookup sees rows as the other table has forwarded them: a cached row may be deleted before it is ever forwarded.
        self._lookup = opened(ctx, self.other, forwarded=True)
        # In strict mode, the join of related sides has a store if old values are needed.
        self._own = itself if only_reads(self.joiner) and not ctx.results_change else ctx.copy_of
        self._joins_old = self.send_old and not (self.related and ctx.mode == "strict")
        # An inner join of related sides: one update may delete the rows of both sides. Then neither side finds the other, and the
        # joined row is never deleted (in Kafka Streams). If this side still has a row, the other side finds it and deletes the
        # joined one.
        self._deletes_unseen = self.related and not self.alone and not self.other_alone and ctx.mode == "strict"

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Join the new values, and the old ones if needed, with the other table's values.

        Raises:
            Exception: A row cannot be looked up; there has been no effect.
        """
        if self.versioned:
            batch = latest_only(self.ctx, batch)
        null_key = batch.keys.codes == NULL_KEY
        updates = batch.take(rows_where(~null_key)) if null_key.any() else batch
        found = self._lookup(updates.keys, updates.order)
        drop_rows(self.ctx, batch, {"null_key": null_key})
        self.ctx.count_looked_up(len(updates), {"no_row": _rows_without_another(updates, found)})
        joins = found.there
        if self.alone:
            changes = Changes.of(updates.values)
            joins = joins | ~null_values(changes.new)
            if changes.old is not None:
                joins |= ~null_values(changes.old)
        if self._deletes_unseen and not joins.all():
            joins = joins | null_values(Changes.of(updates.values).new)
        self._forward_joined(updates, found, rows_where(joins))

    def _forward_joined(self, updates: ColumnarBatch, found: FoundRows, rows: Int64s) -> None:
        """Join the updates `rows` with the other table's rows, and forward the results."""
        others, times = found.values_for(self.joiner, self.ctx.results_change), found.timestamps
        if self._deletes_unseen:
            others = [value if there else UNSEEN for value, there in zip(others, found.there.tolist(), strict=True)]
        if len(rows) < len(updates):
            updates, times = updates.take(rows), times[rows]
            others = [others[row] for row in rows.tolist()]
        changes = Changes.of(updates.values)
        timed = replace(updates, timestamps=np.maximum(updates.timestamps, times))
        if not self._joins_old:
            results, news = call_each(self.ctx, timed, self._joined, timed.keys.each(), changes.new, others)
            self.ctx.forward_batch(results.with_values(Changes(news, None)))
            return
        olds = repeat(None) if changes.old is None else changes.old
        results, pairs = call_each(self.ctx, timed, self._joined_both, timed.keys.each(), changes.new, olds, others)
        both = [new for new, _ in pairs], [old for _, old in pairs]
        self.ctx.forward_batch(results.with_values(Changes(*both)))

    def _joined_both(self, key: Any, new: Any, old: Any, other: Any) -> tuple[Any, Any]:
        return self._joined(key, new, self._own(other)), self._joined(key, old, other)

    def _joined(self, key: Any, value: Any, other: Any) -> Any:
        if other is UNSEEN:
            return UNSEEN
        if value is None and not (self.other_alone and other is not None):
            return None
        left, right = (value, other) if self.is_left else (other, value)
        return self.joiner(key, left, right)


def _rows_without_another(updates: ColumnarBatch, found: FoundRows) -> int:
    """The number of updates, except deletions, for which the other table has no row."""
    alone = rows_where(~found.there)
    return int(np.count_nonzero(~null_values(take_values(Changes.of(updates.values).new, alone)))) if len(alone) else 0


class TableJoinMerge(TableOperator):
    """The joined table: the results of both sides, stored if it has a store (Kafka Streams: `KTableKTableJoinMerger`).

    Args:
        store: Name of a timestamped key-value store or a versioned one; None = not stored.
        send_old: Whether children need `Change.old`, the value that was forwarded last. In compat mode, without caching, it is
            computed as in Kafka Streams: this side's old value with the other side's current one, which may never have been
            forwarded.
        passed_on: Name of a store for `PassedOn`; None: the joined table is stored, or each side sees every deletion of the other.
        only_strict: Whether the store is only for old values in strict mode, so that in compat mode the table is not stored.
    """

    leaves_values = True

    def __init__(
        self,
        store: str | None = None,
        caching: bool = True,
        send_old: bool = False,
        passed_on: str | None = None,
        only_strict: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.passed_on = passed_on
        self.only_strict = only_strict

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        self._passed_on = PassedOn.opened(ctx, self.passed_on)
        compat = ctx.mode == "compat"
        store = None if compat and self.only_strict else self.store_name
        self._table = TableMaterializer(ctx, store, self.caching, self.send_old, given_old=compat)

    def process(self, record: Record) -> None:
        new, old, is_latest = record.value
        if new is UNSEEN:
            if not self._was_passed_on(record.key):
                return
            new = None
        if self._passed_on is not None:
            self._passed_on.note(record, new)
        self._table.update(record, new, old, is_latest)

    def _was_passed_on(self, key: Any) -> bool:
        return self._table.value(key) is not None if self._passed_on is None else key in self._passed_on

    def process_batch(self, batch: ColumnarBatch) -> None:
        changes = Changes.of(batch.values)
        unseen = isinstance(changes.new, list) and any(new is UNSEEN for new in changes.new)
        if self._table.versioned or self._passed_on is not None or unseen:
            self.ctx.attempt_each(batch, self.process)
            return
        records = batch.with_values(changes.new)
        self._table.update_together(records, self._table.updates(records), changes.old)()
