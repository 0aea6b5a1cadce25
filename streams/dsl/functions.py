"""Adapts the user's functions, which may have several signatures, to one signature each while the topology is built.

`fn(value)` or `fn(key, value)`, `joiner(left, right)` or `joiner(key, left, right)`, `aggregator(value,
aggregate)` or `aggregator(key, value, aggregate)`: the function's signature decides. A function that accepts both
(defaults, `*args`) or has no signature (some builtins) is called with the fewest arguments that it accepts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from streams.errors import TopologyError
from streams.model.compiled_joiner import compiled_joiner
from streams.model.expressions import Expression, JoinedFields, ValueFields, reads_record
from streams.model.operations import truth
from streams.model.record import Windowed
from streams.wording import described

Function: TypeAlias = Callable[..., Any]


def key_value(fn: Function, what: str) -> Callable[[Any, Any], Any]:
    """Adapts `fn(value)` or `fn(key, value)` to `fn(key, value)`."""
    return _with_key(fn, what, "value")


def of_record(fn: Function, what: str) -> Callable[..., Any]:
    """Adapts a function to `fn(key, value)`, or an expression that reads key or timestamp to `fn(key, value, timestamp)`."""
    if isinstance(fn, Expression | ValueFields) and reads_record(fn):

        def computed(key: Any, value: Any, timestamp: int) -> Any:
            return fn.of_record(key, value, timestamp)

        return _adapter(fn, computed, takes_timestamp=True)
    return key_value(fn, what)


def predicate_of_record(fn: Function) -> Callable[..., Any]:
    """Adapts a predicate as `of_record` does; the result is false where an expression is null."""
    if isinstance(fn, Expression) and reads_record(fn):
        return _adapter(
            fn, lambda key, value, timestamp: truth(fn.of_record(key, value, timestamp)) is True, takes_timestamp=True
        )
    return predicate(fn)


def with_row(key: Function) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Adapts `key(key, value)`, which returns a group's key, to a function that returns the group's key and the unchanged row."""
    return _adapter(key, lambda old, value: (key(old, value), value))


def in_window(selector: Function) -> Callable[[Any, Any], tuple[Any, Any] | None]:
    """Adapts `selector(key, value)`, which returns group and value; the group then belongs to the window of the key."""

    def selected(key: Windowed[Any], value: Any) -> tuple[Any, Any] | None:
        group = selector(key, value)
        return None if group is None or group[0] is None else (Windowed(group[0], key.window), group[1])

    return _adapter(selector, selected)


def start_of(key: Windowed[Any], value: Any) -> int:
    """The group that contains all rows of a window: the window's start."""
    return key.window.start


def place_of(key: Any, position: int) -> dict[str, Any]:
    """The default key of the row at a position (from 1 on) in the list that belongs to `key`, which may be windowed."""
    if isinstance(key, Windowed):
        return {"key": key.key, "start": key.window.start, "end": key.window.end, "position": position}
    return {"key": key, "position": position}


def predicate(fn: Function) -> Callable[[Any, Any], Any]:
    """Adapts `fn(value)`, `fn(key, value)` or an expression, whose null counts as false, to `fn(key, value)`."""
    if isinstance(fn, Expression):
        _refuse_record(fn, "predicate")
        return _adapter(fn, lambda key, value: fn.is_true(value))
    return key_value(fn, "predicate")


def value_only(fn: Function, what: str) -> Callable[[Any], Any]:
    """Checks that a function takes only the value."""
    _arity(fn, {1: "(value)"}, what)
    return fn


def joiner(fn: Function) -> Callable[[Any, Any, Any], Any]:
    """Adapts `fn(left, right)`, `fn(key, left, right)` or `fields(...)` of both values to `fn(key, left, right)`."""
    fn = _of_both(fn)
    if isinstance(fn, JoinedFields):
        _refuse_record(fn, "joiner")
        return _adapter(fn, compiled_joiner(fn))
    return _with_key(fn, "joiner", "left", "right")


def joiner_of_all(fn: Function) -> Callable[[Any, dict[str, Any]], Any]:
    """Adapts `fn(values)` or `fn(key, values)` to `fn(key, values)`; `values` has the values of several streams by name."""
    return _with_key(fn, "joiner", "values")


def global_joiner(fn: Function) -> Callable[[Any, Any, Any, Any], Any]:
    """Adapts `fn` with two to four of these arguments to `fn(key, looked_up, left, right)` (KIP-1340)."""
    shapes = {2: "(left, right)", 3: "(key, left, right)", 4: "(key, looked_up, left, right)"}
    fn = _of_both(fn)
    if isinstance(fn, JoinedFields):
        _refuse_record(fn, "joiner")
        join = compiled_joiner(fn)
        return _adapter(fn, lambda key, looked_up, left, right: join(key, left, right))
    arity = _arity(fn, shapes, "joiner")
    if arity == 4:
        return fn
    if arity == 3:
        return _adapter(fn, lambda key, looked_up, left, right: fn(key, left, right))
    return _adapter(fn, lambda key, looked_up, left, right: fn(left, right))


def _of_both(fn: Function) -> Function:
    """Converts `fields(...)` that reads `left.<field>` and `right.<field>` to a joiner; returns other functions unchanged."""
    return JoinedFields.of(fn) or fn if isinstance(fn, ValueFields) else fn


def aggregator(fn: Function) -> Callable[[Any, Any, Any], Any]:
    """Adapts `fn(value, aggregate)` or `fn(key, value, aggregate)` to `fn(key, value, aggregate)`."""
    adapted = _with_key(fn, "aggregator", "value", "aggregate")
    _check_order(fn, 3 if adapted is fn else 2, "aggregator", aggregate_last=True)
    return adapted


def reducer(fn: Function) -> Callable[[Any, Any, Any], Any]:
    """Adapts a reducer `fn(aggregate, value)` to `fn(key, value, aggregate)`."""
    _arity(fn, {2: "(aggregate, value)"}, "reducer")
    _check_order(fn, 2, "reducer", aggregate_last=False)
    return _adapter(fn, lambda key, value, aggregate: fn(aggregate, value))


def merger(fn: Function) -> Callable[[Any, Any, Any], Any]:
    """Adapts `fn(aggregate, other)` or `fn(key, aggregate, other)` to `fn(key, aggregate, other)`."""
    return _with_key(fn, "merger", "aggregate", "other")


def takes_key(fn: Function, many: bool) -> bool:
    """Whether a function of a value also takes the key first; with `many`, a function of a list of values, the list of keys."""
    shapes = {1: "(values)", 2: "(keys, values)"} if many else {1: "(value)", 2: "(key, value)"}
    return _arity(fn, shapes, "function of enrich()") == 2


def on_error(fn: Function) -> Callable[[Any, Any, Exception], Any]:
    """Adapts `fn(value, error)` or `fn(key, value, error)` to `fn(key, value, error)`."""
    return _with_key(fn, "on_error function", "value", "error")


def initializer(fn: Function) -> Callable[[], Any]:
    """Checks that a function takes no argument."""
    _arity(fn, {0: "()"}, "initializer")
    return fn


def topic_extractor(fn: Function) -> Callable[[Any, Any, Any], str]:
    """Adapts `fn` with one to three of these arguments to `fn(key, value, record_context)`."""
    shapes = {1: "(value)", 2: "(key, value)", 3: "(key, value, record_context)"}
    arity = _arity(fn, shapes, "topic extractor")
    if arity == 3:
        return fn
    if arity == 2:
        return _adapter(fn, lambda key, value, context: fn(key, value))
    return _adapter(fn, lambda key, value, context: fn(value))


def timestamp_function(fn: Function) -> Callable[[Any, int], int | datetime]:
    """Adapts `fn(record)` or `fn(record, partition_time)` to `fn(record, partition_time)`."""
    if isinstance(fn, str):
        raise TopologyError(
            f"The timestamp extractor is a function or, for a field of the value, timestamp_field({fn!r})."
        )
    if _arity(fn, {1: "(record)", 2: "(record, partition_time)"}, "timestamp extractor") == 2:
        return fn
    return _adapter(fn, lambda record, partition_time: fn(record))


def _with_key(fn: Function, what: str, *names: str) -> Function:
    """Adapts a function that may omit the key to one that takes it first; `names` are the function's other arguments."""
    others = ", ".join(names)
    if _arity(fn, {len(names): f"({others})", len(names) + 1: f"(key, {others})"}, what) > len(names):
        return fn
    if len(names) == 1:
        return _adapter(fn, lambda key, value: fn(value))
    return _adapter(fn, lambda key, one, other: fn(one, other))


def _adapter(fn: Function, adapter: Function, *, takes_timestamp: bool = False) -> Function:
    """Marks `adapter`, which calls the user's function, so that error messages can name the user's function."""
    adapter.__wrapped__ = fn  # type: ignore[attr-defined]
    adapter.takes_timestamp = takes_timestamp  # type: ignore[attr-defined]
    return adapter


def _refuse_record(fn: Expression | ValueFields | JoinedFields, what: str) -> None:
    if found := reads_record(fn):
        raise TopologyError(
            f"The {what} reads {found[0]!r}, which filter, filter_not, map_values, select_key and group_by of a stream can do: "
            f"first add it to the value, as in map_values(fields('*', name={found[0]!r}))."
        )


_AGGREGATES = {"acc", "accumulator", "agg", "aggregate", "aggregated", "total"}
_PERHAPS_AGGREGATES = {"count", "result", "state", "sum"}
_VALUES = {"event", "item", "new", "record", "v", "val", "value", "x"}


def _check_order(fn: Function, arity: int, what: str, *, aggregate_last: bool) -> None:
    """Raises `TopologyError` if the names of the last two parameters show that they are swapped.

    The aggregate comes first in Python's `functools.reduce`, and last in Kafka Streams' aggregators. If both parameters have the
    same type, the mistake would only show in wrong results.
    """
    try:
        names = list(inspect.signature(fn).parameters)[arity - 2 : arity]
    except (TypeError, ValueError):
        return
    if len(names) < 2:  # *args
        return
    value, aggregate = names if aggregate_last else reversed(names)
    swapped = (value in _AGGREGATES and aggregate not in _AGGREGATES) or (
        value in _PERHAPS_AGGREGATES and aggregate in _VALUES
    )
    if swapped:
        order = (
            "(value, aggregate), the aggregate last" if aggregate_last else "(aggregate, value), the aggregate first"
        )
        raise TopologyError(
            f"The {what} '{_shown(fn)}' is called with {order}, but its parameters have the opposite names: swap them, or "
            f"rename '{value}' if it is the value."
        )


def _shown(fn: Function) -> str:
    return f"{getattr(fn, '__name__', type(fn).__name__)}{inspect.signature(fn)}"


def _arity(fn: Function, shapes: dict[int, str], what: str) -> int:
    """The smallest allowed number of arguments with which the function can be called. Raises `TopologyError` if there is none."""
    if isinstance(fn, Expression | ValueFields | JoinedFields):
        return _arity_of_expression(fn, shapes, what)
    if not callable(fn):
        raise TopologyError(f"The {what} must be a function, not {described(fn)}.")
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return min(shapes)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    fewest = sum(p.default is p.empty for p in positional)
    most = max(shapes) if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    unfilled = any(p.kind is p.KEYWORD_ONLY and p.default is p.empty for p in parameters)
    fitting = [count for count in sorted(shapes) if fewest <= count <= most]
    if unfilled or not fitting:
        raise TopologyError(f"The {what} '{_shown(fn)}' cannot be called: it must take {' or '.join(shapes.values())}.")
    return fitting[0]


def _arity_of_expression(fn: Expression | ValueFields | JoinedFields, shapes: dict[int, str], what: str) -> int:
    """The allowed number of arguments with which an expression is called. Raises `TopologyError` if it fits none."""
    _refuse_record(fn, what)
    takes = "(left, right)" if isinstance(fn, JoinedFields) else "(value)"
    for count, shape in shapes.items():
        if shape == takes:
            return count
    instead = ": an expression of both values is fields(left=..., right=...)" if what == "joiner" else ""
    raise TopologyError(
        f"The {what} '{fn!r}' computes with {takes}, but it is called with {' or '.join(shapes.values())}{instead}."
    )
