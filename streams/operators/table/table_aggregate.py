"""Grouped tables: `group_by`, aggregation with adder and subtractor, and the best rows of each group."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, repeat, takewhile, zip_longest
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from state.columns import binary_column
from streams.errors import RecordError
from streams.model.ownership import all_unchanging, itself, lending, only_reads, snapshot
from streams.model.record import Change, Record, ValueAndTimestamp
from streams.model.same_key import same_key
from streams.model.scores import (
    NUMBER,
    Score,
    check_alike,
    inverted,
    nearest_float,
    order_bytes,
    ordered,
    score_of,
)
from streams.operators.aggregate.functions import Aggregator, Initializer, explain_nothing
from streams.operators.columnar import NULL_KEY, ColumnarBatch, KeyColumn
from streams.operators.operator import Operator, OperatorContext, RecordOperator, call_each, drop_rows, latest_only
from streams.operators.stores.key_value import TypedKeyValueStore, TypedTimestampedKeyValueStore
from streams.operators.table.table_materializer import TableOperator, numbered
from streams.operators.table.top_lists import TopLists
from streams.serdes.base import Serde
from streams.serdes.json import is_plain_json
from streams.wording import described

# --- `group_by` (Kafka Streams: `KTableRepartitionMap`).


class TableGroupBy(Operator):
    """Sends each update of a row to its groups, which subtract the old value, then add the new one.

    If the row stays in its group, one `Change` has both values (KIP-904), so the group is never seen without the row. If the row
    moves to another group, there are two records, the old group's first. A row is in no group if the selector returns None, or
    returns None as the group key or as the value. Out-of-order updates of a versioned table are skipped (KIP-914).

    Example: the points of players, grouped by team. Ann joins team x with 5 points: x gets `Change(5, None)`. She now has 7: x gets
    `Change(7, 5)`. She moves to team y: x gets `Change(None, 7)`, then y gets `Change(7, None)`.

    Args:
        selector: `(key, value) -> (group key, value)`, or None. It is not called for a value of None.
        versioned: Whether the table above is versioned.
    """

    def __init__(self, selector: Callable[[Any, Any], tuple[Any, Any] | None], versioned: bool = False) -> None:
        self.selector = selector
        self.versioned = versioned

    @property
    def leaves_values(self) -> bool:
        return only_reads(self.selector)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Forward the changes of each update: none, one or two records."""
        updates = latest_only(self.ctx, batch) if self.versioned else batch
        updates, found = call_each(self.ctx, updates, self._sent)
        rows = np.repeat(np.arange(len(updates)), np.fromiter(map(len, found), np.int64, len(found)))
        sent = list(chain.from_iterable(found))
        keys, changes = [key for key, _ in sent], [change for _, change in sent]
        keys = keys if all_unchanging(keys) else list(map(snapshot, keys))
        changes = list(map(snapshot, changes)) if self.ctx.results_change else changes
        self.ctx.forward_batch(replace(updates.with_values(found).take(rows), keys=KeyColumn.of(keys), values=changes))

    def process(self, record: Record) -> None:
        """Forward the changes of one update."""
        if self.versioned and not record.value.is_latest:
            self.ctx.drop(record, "not_latest")
            return
        for key, change in self._sent(record.key, record.value):
            self.ctx.forward(Record(key, change, record.timestamp, record.headers))

    def _sent(self, key: Any, change: Change) -> list[tuple[Any, Change]]:
        """The changes that an update sends, each with the key of its group."""
        old_key, old = self._selected(key, change.old)
        new_key, new = self._selected(key, change.new)
        if old is not None and new is not None and same_key(old_key, new_key):
            return [(new_key, Change(new, old))]
        left = [] if old is None else [(old_key, Change(None, old))]
        return left if new is None else [*left, (new_key, Change(new, None))]

    def _selected(self, key: Any, value: Any) -> tuple[Any, Any]:
        """Group key and value; (None, None) if the row is in no group."""
        selected = None if value is None else self.selector(key, value)
        return (None, None) if selected is None or selected[0] is None else selected


# --- Aggregations of a grouped table (Kafka Streams: `KTableAggregate`, `KTableReduce`).


class TableAggregate(TableOperator):
    """Maintains the aggregate of each group as rows enter, change and leave.

    For each update, the old value is subtracted first, then the new one is added. If the group has no aggregate, nothing is
    subtracted, but the update is still forwarded. The result's timestamp is the larger one of the update's and the aggregate's, or
    the update's own if nothing was subtracted or added.

    Example: a sum. The group has the aggregate 12 with the timestamp 100. `Change(7, 5)` at 90 is out of order, but it counts:
    12 - 5 + 7 = 14, with the timestamp 100. `Change(None, 7)` at 120 gives 7, with the timestamp 120.

    Args:
        store: Name of a timestamped key-value store.
        initializer: `() -> aggregate`; None for a reduce, whose first value is the aggregate itself.
        adder: `(key, value, aggregate) -> aggregate`; if it returns None, the group's row is deleted.
        subtractor: `(key, value, aggregate) -> aggregate`, for a value that leaves the group.
        caching: Forward the last aggregate of a group once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    leaves_values = True

    def __init__(
        self,
        store: str,
        initializer: Initializer | None,
        adder: Aggregator,
        subtractor: Callable[[Any, Any, Any], Any],
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.initializer = initializer
        # If a record fails, the batch is aggregated again from the same values. So functions that change values get copies.
        self._own = itself if only_reads(adder) and only_reads(subtractor) else snapshot
        self.adder = adder
        self.subtractor = subtractor

    @property
    def changes_in_place(self) -> bool:
        """Whether functions may change cached aggregates in place. Without a cache, every call gets a separate object."""
        return self.caching

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "what is aggregated is kept"
        self._store: TypedTimestampedKeyValueStore = ctx.store(self.store_name)

    def process_batch(self, batch: ColumnarBatch) -> None:
        """Subtract and add in the order of the records. All groups are read from the store together.

        Raises:
            Exception: A user's function has failed; nothing was stored or forwarded.
        """
        null_key = batch.keys.codes == NULL_KEY
        records = batch.take(np.flatnonzero(~null_key)) if null_key.any() else batch
        number_of, numbers = numbered(self._store.codec.keys(records.keys), records.keys)
        groups = self._groups(list(number_of))
        values, times, seen = [], [], self._store.codec.seen
        rows = zip(numbers.tolist(), records.keys, records.values, records.timestamps.tolist(), strict=True)
        for number, key, change, timestamp in rows:
            value, time = self._changed(key, change, timestamp, groups[number])
            value = None if value is None else seen(value)
            groups[number] = self._group(value, time)
            values.append(value)
            times.append(time)
        results = replace(records, values=values, timestamps=np.array(times, np.int64))
        update = self._table.update_together(results, self._table.updates(results))
        drop_rows(self.ctx, batch, {"null_key": null_key})
        update()

    def _group(self, value: Any, time: int) -> ValueAndTimestamp | None:
        """The group for the next update. Without a cache it is a copy, so the update cannot change a forwarded aggregate."""
        if value is None or self.caching:
            return None if value is None else ValueAndTimestamp(value, time)
        codec = self._store.codec
        return codec.read_timestamped(codec.timestamped(value, time))

    def _groups(self, keys: list[bytes]) -> list[ValueAndTimestamp | None]:
        """The current rows of the groups with these keys."""
        store = self._store
        store.settle()
        if not store.has_cached_rows:
            return list(map(store.codec.read_timestamped, store.stored_column(binary_column(keys)).to_pylist()))
        rows = [(row.value, row.timestamp) for row in store.entries([(key, -1) for key in keys])]
        return [None if value is None else ValueAndTimestamp(value, timestamp) for value, timestamp in rows]

    def _changed(self, key: Any, change: Change, timestamp: int, group: ValueAndTimestamp | None) -> tuple[Any, int]:
        """A group's aggregate and its timestamp, ms, after an update."""
        value, before = (None, -1) if group is None else group
        newest, time = max(timestamp, before), timestamp
        if change.old is not None and value is not None:
            value, time = self.subtractor(key, self._own(change.old), value), newest
        if change.new is not None:
            value, time = self._added(key, self._own(change.new), value), newest
        return value, time

    def _added(self, key: Any, new: Any, value: Any) -> Any:
        if value is None:
            if self.initializer is None:
                return new
            original = self.initializer()
            value = snapshot(original)
            after = self.adder(key, new, value)
            if after is None and not only_reads(self.adder):
                explain_nothing("adder", self.adder, value, original, self._store.codec)
            return after
        return self.adder(key, new, value)


# --- `top` of a grouped table: the best n rows of each group, exact even when rows change and leave.


class TableTop(RecordOperator, TableOperator):
    """Orders all rows of a group by score, and forwards the list of the first n when it changes.

    All scores of a group must be of one kind (`streams.model.scores`). Rows with equal scores are ordered by the bytes of their
    values. A row whose score is None is not ranked. Null keys are dropped. The result's timestamp is the largest of its updates'.

    Example: the best n = 2 of the scores 9, 5 and 3 are [9, 5]. If the 9 leaves, the list is [5, 3]: the 3 is stored, too.

    Args:
        store: Name of a timestamped key-value store of the lists.
        rows: Name of a key-value store: the group and `Ranks.key` of a value -> the number of rows that have this value.
        value_serde: Serde of the values.
        key_serde: Serde of the groups' keys.
        n: The length of the list.
        by: `(value) -> score`.
        largest: Whether the largest score is the best.
        ties: Whether the list also has all rows whose score equals that of the n-th row.
        caching: Forward the last list of a group once, at the end of the step; False: every update.
        send_old: Whether children need `Change.old`.
    """

    leaves_values = True
    lists_together: ClassVar[bool] = True
    """Whether the lists of a step are written together, from the bytes of their values, if these are JSON (`TopLists`)."""

    def __init__(
        self,
        store: str,
        rows: str,
        key_serde: Serde,
        value_serde: Serde,
        n: int,
        by: Callable[[Any], Any],
        largest: bool,
        ties: bool = False,
        caching: bool = True,
        send_old: bool = False,
    ) -> None:
        super().__init__(store, caching, send_old)
        self.ties = ties
        self.rows_name = rows
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.n = n
        self.by = lending(by)
        self.largest = largest

    def init(self, ctx: OperatorContext) -> None:
        super().init(ctx)
        assert self.store_name is not None, "the lists are kept"
        self._tops: TypedTimestampedKeyValueStore = ctx.store(self.store_name)
        self._rows: TypedKeyValueStore = ctx.store(self.rows_name)
        self._ranks = Ranks(self.largest)
        self._groups = _Groups(self._rows)
        self._values: dict[bytes, Any] = {}
        self._scores: dict[bytes, Score] = {}
        are_json = is_plain_json(self.value_serde) and self._tops.codec.holds_json
        together = self.lists_together and self.caching and are_json
        self._lists = TopLists(self._tops, self._table, self._data, self._value) if together else None

    def flush(self) -> None:
        if self._lists is not None:
            self._lists.flush()
        super().flush()
        self._groups.forget()
        self._values.clear()
        self._scores.clear()

    def process(self, record: Record) -> None:
        """Remove the old value, add the new one, read the first n."""
        key = None if record.key is None else self.key_serde.serialize(self.rows_name, record.key)
        if key is None:
            self.ctx.drop(record, "null_key")
            return
        group, change = _prefix(key), record.value
        # Both scores are computed before any row changes, because the record may fail at its new value.
        old, new = self._left(group, change.old), self._ranked(group, change.new)
        if new is not None:
            self._check(group, new.score, None if old is None else old.key)
        lists = self._lists if self._lists is not None and self._lists.knows(group, record.key, self._first) else None
        for ranked, difference in ((old, -1), (new, 1)):
            if ranked is not None:
                self._groups.add(group, ranked.key, difference, record.timestamp)
        if new is not None:
            self._remember(new.key, new.score)
        if lists is not None:
            lists.update(group, self._first(group), record)
        else:
            self._set(record, list(map(self._value, self._first(group))) or None)

    def _set(self, record: Record, now: list[Any] | None) -> None:
        """Sets the list of a record's group, unless it is the same as before."""
        found = self._tops.get_shared(record.key)
        before, timestamp = (None, -1) if found is None else found
        if now != before:
            time = max(timestamp, record.timestamp)
            self._table.update(Record(record.key, None, time, record.headers), now)

    def _ranked(self, group: bytes, value: Any) -> _Ranked | None:
        """The score of a value, and its key in the store of rows; None if it is not ranked. `group` is the prefix of the key."""
        score = None if value is None else score_of(self.by(value))
        if score is None:
            return None
        data = self.value_serde.serialize(self.rows_name, value) or b""
        return _Ranked(score, group + self._ranks.key(score, data))

    def _left(self, group: bytes, value: Any) -> _Ranked | None:
        """`_ranked` for a value that leaves its group. If its score fails now, it failed on arrival too, so it was not ranked."""
        try:
            return self._ranked(group, value)
        except RecordError:
            return None

    def _check(self, group: bytes, score: Score, leaves: bytes | None) -> None:
        """Raises `RecordError` if a score cannot be compared with those of the group's other rows, without the row `leaves`."""
        for key, count in self._groups.rows(group):
            if key != leaves or count > 1:
                check_alike(score, self._score(key))
                return

    def _value(self, key: bytes) -> Any:
        """The value in a row's key. It is decoded once per step, or each time if functions below may change it."""
        value = self._values.get(key)
        if value is None:
            value = self.value_serde.deserialize(self.rows_name, self._data(key))
            if len(self._values) == _MOST_VALUES:
                self._values.clear()
            if not self.ctx.results_change:
                self._values[key] = value
        return value

    def _data(self, key: bytes) -> bytes:
        """The bytes of the value in a row's key."""
        return self._ranks.data(key[_skipped(key) :])

    def _score(self, key: bytes) -> Score:
        score = self._scores.get(key)
        if score is None:
            score = score_of(self.by(self._value(key)))
            assert score is not None, "only what has a score is ranked"
            self._remember(key, score)
        return score

    def _remember(self, key: bytes, score: Score) -> None:
        if len(self._scores) == _MOST_VALUES:
            self._scores.clear()
        self._scores[key] = score

    def _first(self, group: bytes) -> list[bytes]:
        """The keys of the rows in a group's list, in its order: each key as often as there are rows with it."""
        first = None if self.ties else self._groups.first(group, self.n)
        if first is not None and (
            not first or self._ranks.are_ordered(*(_place(key) for key in (first[0], first[-1])))
        ):
            return first
        ranked = self._in_order(self._groups.rows(group))
        keys = chain.from_iterable(repeat(key, count) for key, count in ranked)
        first = list(islice(keys, self.n))
        if self.ties and len(first) == self.n:
            last = self._score(first[-1])
            first += takewhile(lambda key: self._score(key) == last, keys)
        return first

    def rows_of(self, key: Any) -> list[bytes]:
        """The keys of all rows of a group, in order."""
        group = self.key_serde.serialize(self.rows_name, key)
        return [] if group is None else [row for row, _ in self._rows.prefix(_prefix(group))]

    def _in_order(self, rows: Iterator[tuple[bytes, int]]) -> Iterator[tuple[bytes, int]]:
        """The rows in the order of their scores, even if several integers are the same float."""
        for place, run in groupby(rows, lambda row: _place(row[0])):
            if not self._ranks.may_differ(place):
                yield from run
            else:
                sign = -1 if self.largest else 1
                yield from sorted(run, key=lambda row: sign * self._score(row[0]).value)


class _Groups:
    """The ranked rows of each group, as in the store. Small groups are read once per step, and kept in memory.

    The cost of a scan grows with the number of rows that the step has written to the store. A scan for each record would therefore
    make the step's cost grow with the square of its records.

    Args:
        rows: The store: key of a ranked row -> number of occurrences, as JSON.
    """

    def __init__(self, rows: TypedKeyValueStore) -> None:
        self._rows = rows
        self._known: dict[bytes, tuple[list[bytes], dict[bytes, int]] | None] = {}
        self._count = 0

    def forget(self) -> None:
        """Forgets all groups, so that they are read from the store again."""
        self._known.clear()
        self._count = 0

    def rows(self, group: bytes) -> Iterator[tuple[bytes, int]]:
        """The rows of a group in the order of their keys, each with its number of occurrences."""
        known = self._read(group)
        if known is None:
            yield from self._stored(group)
        else:
            keys, counts = known
            yield from ((key, counts[key]) for key in keys)

    def first(self, group: bytes, n: int) -> list[bytes] | None:
        """The first n keys, each as often as its row occurs; None if the group is not in memory."""
        known = self._read(group)
        if known is None:
            return None
        keys, counts = known
        return list(islice(chain.from_iterable(repeat(key, counts[key]) for key in keys[:n]), n))

    def _stored(self, group: bytes) -> Iterator[tuple[bytes, int]]:
        return ((key, int(cell)) for key, cell in self._rows.rows.prefix(group))

    def add(self, group: bytes, key: bytes, difference: int, timestamp: int) -> None:
        """Adds `difference` to the number of occurrences of a row, which does not become less than 0."""
        known = self._read(group)
        before = (self._rows.get(key) or 0) if known is None else known[1].get(key, 0)
        count = max(before + difference, 0)
        self._rows.put_cell(key, b"%d" % count if count else None, timestamp)
        if known is None:
            return
        keys, counts = known
        if count:
            counts[key] = count
            if not before:
                insort(keys, key)
                self._count += 1
        elif before:
            del counts[key], keys[bisect_left(keys, key)]
            self._count -= 1

    def _read(self, group: bytes) -> tuple[list[bytes], dict[bytes, int]] | None:
        """The rows of a group in memory: sorted keys, and key -> number of occurrences; None if the group is too large."""
        if group in self._known:
            self._known[group] = self._known.pop(group)  # now the most recently used one
            return self._known[group]
        while self._count > _MOST_IN_MEMORY:
            dropped = self._known.pop(next(iter(self._known)))
            self._count -= 0 if dropped is None else len(dropped[0])
        found = dict(islice(self._stored(group), _MOST_OF_GROUP + 1))
        self._count += len(found)
        known = (list(found), found) if len(found) <= _MOST_OF_GROUP else None
        self._known[group] = known
        return known


class TableRanks(RecordOperator):
    """Makes a row from each value in the lists of a table. Its key is made of the list's key and the value's position, from 1 on.

    A row is updated when another value takes its position, and deleted when the list becomes shorter. Example: [a, b] becomes [b].
    Then the row at position 1 is updated to b, and the row at position 2 is deleted.

    Args:
        key_of: `(key, position) -> key of the row`.
    """

    leaves_values = True

    def __init__(self, key_of: Callable[[Any, int], Any]) -> None:
        self.key_of = key_of

    def process(self, record: Record) -> None:
        """Forward a record for each position whose value has changed. Raises `RecordError` for values that are not lists."""
        change: Change = record.value
        places = zip_longest(_listed(change.old), _listed(change.new))
        for place, (old, new) in enumerate(places, 1):
            if old != new or type(old) is not type(new):
                self.ctx.forward(Record(self.key_of(record.key, place), new, record.timestamp, record.headers))


def _listed(value: Any) -> Sequence[Any]:
    if value is None or isinstance(value, list | tuple):
        return value or ()
    raise RecordError(f"explode makes rows of the values in a list, not of {described(value)}")


class _Ranked(NamedTuple):
    """A ranked value: its score, and its key in the store of rows."""

    score: Score
    key: bytes


_MOST_OF_GROUP: Final = 10_000
"""The largest number of rows of a group that are kept in memory. Larger groups are scanned in the store."""
_MOST_IN_MEMORY: Final = 200_000
"""If there are more rows in memory, the least recently used groups are dropped from it."""
_MOST_VALUES: Final = 20_000
"""The largest number of values of ranked rows that are kept as objects."""
_FLOAT: Final = 8
"""The size of a number in a key, bytes: it is written as a float."""
_LENGTH: Final = 4
_OTHERS: Final = b"\xff\xff"
"""The prefix of scores that are not numbers. No float begins with these bytes."""


class Ranks:
    """Makes the keys of ranked rows within their group: the score, in bytes that sort as the scores do, then the value's own bytes.

    A number has 8 bytes. Any other score marks its own end, and the value is followed by its length (4 bytes, big-endian).
    """

    def __init__(self, largest: bool) -> None:
        self._largest = largest
        self._others = inverted(_OTHERS) if largest else _OTHERS
        self._exact_up_to = sorted(ordered(float(one), largest) for one in (-(2**53), 2**53))

    def key(self, score: Score, data: bytes) -> bytes:
        """The key of a value with these bytes."""
        if score.kind == NUMBER:
            return ordered(nearest_float(score.value), self._largest) + data
        place = order_bytes(score)
        return self._others + (inverted(place) if self._largest else place) + data + len(data).to_bytes(_LENGTH, "big")

    def data(self, key: bytes) -> bytes:
        """The value's bytes in a key."""
        if not key.startswith(self._others):
            return key[_FLOAT:]
        end = len(key) - _LENGTH
        return key[end - int.from_bytes(key[end:], "big") : end]

    def are_ordered(self, first: bytes, last: bytes) -> bool:
        """Whether all rows from one place to another one are in the order of their scores for certain."""
        alike = first.startswith(self._others) == last.startswith(self._others)
        return alike and not self.may_differ(first) and not self.may_differ(last)

    def may_differ(self, place: bytes) -> bool:
        """Whether different numbers have these bytes: integers beyond 2^53 are rounded to floats."""
        least, most = self._exact_up_to
        return not place.startswith(self._others) and not least < place < most


def _prefix(group: bytes) -> bytes:
    return len(group).to_bytes(4, "big") + group


def _place(key: bytes) -> bytes:
    """The first bytes of a row's score."""
    start = _skipped(key)
    return key[start : start + _FLOAT]


def _skipped(key: bytes) -> int:
    """The number of bytes before a row's own key: the group and its length."""
    return 4 + int.from_bytes(key[:4], "big")
