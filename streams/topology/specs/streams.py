"""The specs of streams: filters, mappers of values, merges, user-defined processors, `enrich` and `deduplicate`.

All other operators of streams have an `OperatorSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, cast

from streams.model.expressions import OF_RECORD, TIMESTAMP, Col, Expression, ValueFields, gives_decimals
from streams.model.table_columns import RowLayout
from streams.operators.attempts import Attempts
from streams.operators.calls import CallRules, OnError, UserClient
from streams.operators.late import (
    Deduplicate,
    Enrich,
    Filter,
    MapValues,
    PassThrough,
    Retrying,
    SelectKey,
    ToRows,
    UserProcessor,
)
from streams.operators.processor import AnyProcessor
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import ColumnFunction, Keeps, Keys, NodeSpec, Parameters, Unwraps

_DECIMALS: Final = (
    "makes Decimals, which JSON has no form for: end with .cast(str), as in (col('a').cast(Decimal) * 2).cast(str)"
)


def _reads_timestamp(expression: Expression | ValueFields | None) -> bool:
    return expression is not None and TIMESTAMP in expression.paths


@dataclass(frozen=True, slots=True)
class FilterSpec(NodeSpec):
    """Keeps the records for which a predicate is true or, with `negate`, false.

    Attributes:
        predicate: `(key, value) -> bool`.
        negate: True for `filter_not`.
        expression: The expression that the predicate computes; None: the predicate is a function.
    """

    one_result = True
    kind = NodeKind.KSTREAM_FILTER
    predicate: Callable[[Any, Any], bool]
    negate: bool
    expression: Expression | None

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return Filter(self.predicate, self.negate, self.expression if self.passes_texts else None)

    @property
    def passes_texts(self) -> bool:
        """True if the expression reads only fields of the value: they are scanned, and the value is not decoded."""
        return self.expression is not None and OF_RECORD.isdisjoint(self.expression.paths)

    @property
    def reads_timestamp(self) -> bool:
        return _reads_timestamp(self.expression)

    @property
    def on_columns(self) -> ColumnFunction | str:
        if self.expression is None:
            return "calls a function, which takes whole values: write it as an expression, such as col('count') > 0"
        return Keeps(self.expression, self.negate)


@dataclass(frozen=True, slots=True)
class MapValuesSpec(NodeSpec):
    """Maps each value to a new one.

    Attributes:
        mapper: `(key, value) -> value`.
        made: The expression or `fields(...)` that the mapper computes; None: the mapper is a function.
    """

    one_result = True
    kind = NodeKind.KSTREAM_MAPVALUES
    mapper: Callable[[Any, Any], Any]
    made: ValueFields | Expression | None

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return MapValues(self.mapper)

    @property
    def reads_timestamp(self) -> bool:
        return _reads_timestamp(self.made)

    @property
    def on_columns(self) -> ColumnFunction | str:
        if isinstance(self.made, Col):
            return Unwraps(self.made)
        if isinstance(self.made, Expression):
            return (
                "makes a value without fields of an expression: give the result a name, as in fields(n=col('a.n') * 2)"
            )
        if self.made is None:
            return "calls a function, which takes whole values: write it as fields(...), such as fields('user', n=col('a.n') * 2)"
        return _DECIMALS if _gives_decimals(self.made) else self.made


@dataclass(frozen=True, slots=True)
class SelectKeySpec(NodeSpec):
    """Maps each record to a new key.

    Attributes:
        selector: `(key, value) -> key`.
        expression: The expression or `fields(...)` that the selector computes; None: the selector is a function.
    """

    one_result = True
    kind = NodeKind.KSTREAM_KEY_SELECT
    selector: Callable[[Any, Any], Any]
    expression: Expression | ValueFields | None

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return SelectKey(self.selector, of_values(self.expression))

    @property
    def reads_timestamp(self) -> bool:
        return _reads_timestamp(self.expression)

    @property
    def on_columns(self) -> ColumnFunction | str:
        if self.expression is None:
            return (
                "calls a function, which takes whole values: write it as an expression, such as col('user') or "
                "fields('user', 'city')"
            )
        if isinstance(self.expression, ValueFields) and self.expression.everything:
            return "makes keys of all fields: name the fields that it needs, such as fields('user', 'city')"
        return _DECIMALS if _gives_decimals(self.expression) else Keys(self.expression)


def of_values(selector: Expression | ValueFields | None) -> Expression | ValueFields | None:
    """Returns the selector if columns of the value's fields are enough to compute its keys; otherwise None.

    They are not enough for the record's key or timestamp, for all fields (`"*"`), and for Decimals.
    """
    if selector is None or not OF_RECORD.isdisjoint(selector.paths) or _gives_decimals(selector):
        return None
    return None if isinstance(selector, ValueFields) and selector.everything else selector


def _gives_decimals(selector: Expression | ValueFields) -> bool:
    made = [one for _, one in selector.computed] if isinstance(selector, ValueFields) else [selector]
    return any(map(gives_decimals, made))


@dataclass(frozen=True, slots=True)
class MergeSpec(NodeSpec):
    """Forwards all records of its parents: a `merge` of streams, or the last node of an operator with a node for each side.

    Attributes:
        kind: The kind of merge.
    """

    one_result = True
    kind: NodeKind = field(default=NodeKind.KSTREAM_MERGE)

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return PassThrough()

    def dropped_by(self, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
        """The parents, because a merge itself drops nothing."""
        return parents

    # Texts stay unread if the parents forward texts.
    passes_texts = True


@dataclass(frozen=True, slots=True)
class UserProcessorSpec(NodeSpec):
    """A user-defined processor. Its stores are the ones that the user has connected.

    Attributes:
        kind: Which method added it, such as `process` or `process_values`.
        supplier: Makes a new processor on each call.
    """

    kind: NodeKind = field()
    supplier: Callable[[], AnyProcessor]

    single = "calls a processor for each record"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Makes the user's processor, which opens the stores itself, by name."""
        return self.supplier()

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True if it has stores, because nobody knows what the processor writes there."""
        return bool(stores)

    # The processor's context has the stream time, and schedules calls by it.
    sees_stream_time = True


@dataclass(frozen=True, slots=True)
class RetryingProcessorSpec(UserProcessorSpec):
    """A user-defined processor whose failures are retried.

    Attributes:
        attempts: The retry topics.
        waiting: Name of the store of waiting records, one of the node's stores; None: records of a key may overtake waiting ones.
    """

    attempts: Attempts
    waiting: str | None

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        """Wraps the user's processor in one that retries."""
        inner = cast("UserProcessor", self.supplier())  # it wraps the result of the user's supplier
        return Retrying(inner, self.attempts, self.waiting)


@dataclass(frozen=True, slots=True)
class EnrichSpec(NodeSpec):
    """Calls another system, which gives the values of a stream.

    Attributes:
        client: The user's function, or a class of the user that makes such a function.
        rules: How the function is called.
        on_error: What to do with a record for which all calls have failed.
    """

    kind = NodeKind.KSTREAM_ENRICH
    one_result = True
    client: UserClient
    rules: CallRules
    on_error: OnError

    single = "asks another system for each record"

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return Enrich(self.client, self.rules, self.on_error)

    @property
    def drops(self) -> bool:
        return self.on_error == "drop"

    # Another system may answer differently in another attempt.
    repeatable = False


@dataclass(frozen=True, slots=True)
class DeduplicateSpec(NodeSpec):
    """Drops duplicates. Its store is the window store of the records that have passed.

    Attributes:
        within_ms: A record is a duplicate if another one has passed and is less than this far away, ms.
        grace_ms: How far a record may be behind stream time before it is late, ms.
        by: `(key, value) -> id`. Duplicates have the same key and id; None: the same key is enough.
    """

    one_result = True
    kind = NodeKind.KSTREAM_DEDUPLICATE
    within_ms: int
    grace_ms: int
    by: Callable[[Any, Any], Any] | None

    @property
    def parameters(self) -> Parameters:
        return (("within_ms", self.within_ms), ("grace_ms", self.grace_ms), ("by", self.by is not None))

    # Records are forwarded as they came.
    takes_encoded = True

    def counts_records(self, stores: tuple[str, ...]) -> bool:
        """True, because it drops a record that comes a second time."""
        return True

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        (passed,) = stores
        return Deduplicate(passed, self.within_ms, self.grace_ms, self.by)


# --- The spec of the node before a lake sink.


@dataclass(frozen=True, slots=True)
class ToRowsSpec(NodeSpec):
    """Maps each record to a row for the sink.

    Attributes:
        layout: The columns of the sink.
    """

    one_result = True
    kind = NodeKind.KSTREAM_TOROWS
    layout: RowLayout

    def processor(self, stores: tuple[str, ...]) -> AnyProcessor:
        return ToRows(self.layout)
