"""The functions of an aggregation: users' functions, and functions that compute built-in aggregates record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streams.errors import RecordError
from streams.model.agg import BUILT_IN, KEEPS_VALUES
from streams.model.aggregates import Aggregate, Count, Max, Mean, Min, Sum, results
from streams.model.ownership import UNCHANGING, may_share, only_reads, snapshot
from streams.serdes.json_text import dumps, loads
from streams.users_code import line_of, users_function
from streams.wording import described

if TYPE_CHECKING:
    from streams.operators.stores.codec import Codec

# --- The functions of an aggregation, and the new aggregate that they compute from an old one.

Initializer: TypeAlias = Callable[[], Any]
Aggregator: TypeAlias = Callable[[Any, Any, Any], Any]
Merger: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True)
class AggregationFunctions:
    """The functions of an aggregation.

    Attributes:
        aggregator: `(key, value, aggregate) -> aggregate`; if it returns None, the aggregate is deleted, and the next record begins
            a new one.
        initializer: `() -> aggregate`; None for a reduce, whose first value is the aggregate itself.
        merger: `(key, aggregate, aggregate) -> aggregate`, for sessions.
        view: Computes the table's value from the stored aggregate; None: they are the same.
        built_in: Whether these are functions of the engine, which do not change their arguments.
        counts: Whether the aggregates are only counts, which every store returns unchanged.
    """

    aggregator: Aggregator
    initializer: Initializer | None = None
    merger: Merger | None = None
    view: Callable[[Any], Any] | None = None
    built_in: bool = False
    counts: bool = False

    @cached_property
    def reads(self) -> bool:
        """Whether the functions do not change their arguments."""
        return self.built_in or all(one is None or only_reads(one) for one in (self.aggregator, self.merger))

    @cached_property
    def apply(self) -> Aggregator:
        """The aggregator. It copies an aggregate that may change if other keys may have the same object."""
        return self.aggregator if self.reads or not may_share(self.aggregator) else self._apply

    def _apply(self, key: Any, value: Any, aggregate: Any) -> Any:
        after = self.aggregator(key, value, aggregate)
        return after if after is aggregate else snapshot(after)

    def initial(self) -> Any:
        """The aggregate before the first value: a new object for each call; None for a reduce."""
        return snapshot(self.original())

    def original(self) -> Any:
        """The initializer's own result, which may be one object for all keys; None for a reduce."""
        return None if self.initializer is None else self.initializer()

    def may_change(self, aggregate: Any) -> bool:
        """Whether a function may change an aggregate in place."""
        return not self.reads and type(aggregate) not in UNCHANGING

    def added(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The aggregate with one more value; `aggregate` is the result of `initial` or of an earlier call."""
        if aggregate is None and self.initializer is None:
            return value
        return self.apply(key, value, aggregate)

    def merged(self, key: Any, earlier: Any, later: Any) -> Any:
        """The aggregate of two sessions; `earlier` is the result of `initial` or of an earlier call."""
        if earlier is None and self.initializer is None:
            return later
        assert self.merger is not None, "sessions are aggregated with a merger"
        return self.merger(key, earlier, later)

    def explain_nothing(self, function: Aggregator | Merger | None, aggregate: Any, before: Any, codec: Codec) -> None:
        """Calls the function `explain_nothing` for the aggregator or the merger, which has returned None."""
        assert function is not None, "it has been called"
        what = "merger" if function is self.merger else "reducer" if self.initializer is None else "aggregator"
        explain_nothing(what, function, aggregate, before, codec)

    def viewed(self, stored: Any) -> Any:
        """The table's value for a stored aggregate; None for None."""
        return stored if self.view is None or stored is None else self.view(stored)

    def viewed_column(self, stored: Sequence[Any]) -> Sequence[Any]:
        return stored if self.view is None else list(map(self.viewed, stored))


def explain_nothing(what: str, function: Callable[..., Any], aggregate: Any, before: Any, codec: Codec) -> None:
    """Called when a function has returned None, which deletes the aggregate. It is an error if it has also changed the aggregate.

    Args:
        what: The name of the function in errors, such as "reducer".
        function: The function.
        aggregate: The function's argument, after the call.
        before: An object that was equal to the argument before the call.
        codec: The store's codec.

    Raises:
        RecordError: The function has changed its argument, and has probably forgotten to return it.
    """
    if _differ(aggregate, before, codec):
        where = line_of(users_function(function))
        raise RecordError(
            f"the {what}{f' ({where})' if where else ''} returned None after changing its accumulator in place; return it. "
            f"None alone means that the key has no row any more"
        )


def _differ(aggregate: Any, before: Any, codec: Codec) -> bool:
    """Whether two aggregates have different bytes."""
    try:
        written = codec.value(before)
    except Exception:
        return False  # it could not be stored, so nothing is lost
    try:
        return codec.value(aggregate) != written
    except Exception:
        return True


# --- Aggregates of fields as functions, for the operators that work record by record (`ColumnAggregate` works on columns).


@dataclass(frozen=True)
class FieldAggregates:
    """Several aggregates, computed together.

    Attributes:
        aggregates: The aggregates, by their names in the result.
        bare: A single aggregate, not wrapped into a list and an object.
    """

    aggregates: Mapping[str, Aggregate]
    bare: bool = False

    @property
    def functions(self) -> AggregationFunctions:
        """The functions that compute these aggregates from whole values."""
        counts = all(type(one) is Count for one in self.aggregates.values())
        return AggregationFunctions(self.add, self.initial, self.merge, self.result, built_in=True, counts=counts)

    def initial(self) -> Any:
        """The accumulator before the first record."""
        found = [snapshot(aggregate.initial()) for aggregate in self.aggregates.values()]
        return found[0] if self.bare else found

    def add(self, key: Any, value: Any, accumulator: Any) -> Any:
        """The accumulator after one more value."""
        return self.add_picked(key, self.picked(value), accumulator)

    def picked(self, value: Any) -> list[Any]:
        """The parts of a value that the aggregates read, in their order. Raises `RecordError`."""
        return self.kept(one.value_in(value) for one in self.aggregates.values())

    def kept(self, picked: Iterable[Any]) -> list[Any]:
        """What the aggregates have read, as the store gives it back. Raises `RecordError`."""
        parts = zip(self._keeping_values, picked, strict=True)
        return [_in_json(one, value) if keeps else value for (one, keeps), value in parts]

    @cached_property
    def _keeping_values(self) -> tuple[tuple[Aggregate, bool], ...]:
        """Each aggregate, and whether it keeps values of the field unchanged."""
        return tuple((one, isinstance(one, KEEPS_VALUES)) for one in self.aggregates.values())

    def add_picked(self, key: Any, picked: Sequence[Any], accumulator: Any) -> Any:
        """The accumulator after one more value, from the parts of the value that `picked` has returned."""
        before = [accumulator] if self.bare else accumulator
        parts = zip(self.aggregates.values(), before, picked, strict=True)
        # Copied, because a user's `add` may change its accumulator in place, and a later aggregate may fail.
        after = [one.updated(old if type(one) in BUILT_IN else snapshot(old), value) for one, old, value in parts]
        return after[0] if self.bare else after

    def merge(self, key: Any, earlier: Any, later: Any) -> Any:
        """The accumulator of two consecutive runs of records."""
        parts = ([earlier], [later]) if self.bare else (earlier, later)
        after = [one.merge(a, b) for one, a, b in zip(self.aggregates.values(), *parts, strict=True)]
        return after[0] if self.bare else after

    def result(self, stored: Any) -> Any:
        """The table's value for an accumulator."""
        if not self.bare or stored is None:
            return results(self.aggregates, stored)
        (aggregate,) = self.aggregates.values()
        return aggregate.result(stored)

    def results(self, stored: Sequence[Any]) -> list[Any]:
        """`result` for many accumulators, none of them None. There is a pass for each aggregate whose result is computed."""
        return self.results_of([stored] if self.bare else list(zip(*stored, strict=True)))

    def results_of(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """`results` for accumulators that come as one column for each aggregate."""
        columns = list(map(results_of, self.aggregates.values(), columns))
        if self.bare:
            return list(columns[0])
        return [dict(zip(self.aggregates, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True)
class RowAggregates:
    """Aggregates of the rows in a group of a table, where rows change and leave: the functions for `TableAggregate`.

    The store has `[number of rows, accumulators]`. When the last row leaves, the accumulators become the initial ones, so that no
    rounding error is left. Example: 0.1 and 0.2 are added to a sum, then removed. Floats alone would give 2.8e-17; the sum is 0.
    """

    fields: FieldAggregates

    def initial(self) -> list[Any]:
        """The stored form of a group without rows."""
        return [0, self.fields.initial()]

    def add(self, key: Any, value: Any, stored: list[Any]) -> list[Any]:
        """The stored form after one more row. Raises `RecordError`."""
        return [stored[0] + 1, self.fields.add(key, value, stored[1])]

    def remove(self, key: Any, value: Any, stored: list[Any]) -> list[Any]:
        """The stored form after a row has left. A row that an aggregate refuses was never added, so it changes nothing."""
        try:
            picked = self.fields.picked(value)
        except RecordError:
            return stored
        if stored[0] <= 1:
            return self.initial()
        parts = zip(self.fields.aggregates.values(), stored[1], picked, strict=True)
        return [stored[0] - 1, [one.remove(old, part) if one.takes(part) else old for one, old, part in parts]]

    def result(self, stored: list[Any]) -> Any:
        """The table's value."""
        return self.fields.result(stored[1])


def results_of(aggregate: Aggregate, accumulators: Sequence[Any]) -> Sequence[Any]:
    """`Aggregate.result` for many accumulators, none of them None. Short cuts need the exact class: a subclass may differ."""
    kind = type(aggregate)
    if kind.result is Aggregate.result:
        return accumulators
    if kind in (Min, Max, Sum) and dict not in set(map(type, accumulators)):
        return accumulators
    if kind is Mean and dict not in {type(total) for total, _ in accumulators}:
        return [total / count if count else None for total, count in accumulators]
    return list(map(aggregate.result, accumulators))


_SCALARS: Final = frozenset({int, float, str, bool, type(None)})


def _in_json(aggregate: Aggregate, value: Any) -> Any:
    """A value as the store will return it, so that functions always see the same value: an object becomes its JSON form."""
    if type(value) in _SCALARS:
        return value
    try:
        return loads(dumps(value))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{aggregate.text} keeps what JSON can hold, not {described(value)} ({error}): convert the field with map_values(...) "
            f"before"
        ) from error
