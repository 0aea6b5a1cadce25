"""Type variables and function types of the generic classes of the API.

All names here are for type checkers only. Each variable defaults to `Any`, so `KStream` alone means `KStream[Any, Any]`. A stream
whose serdes are the builder's defaults has that type.

A function of values may also take the key first. Type checkers distinguish the two by the number of arguments, so each type has two
names: `ValueMapper` takes `(value)`, `KeyValueMapper` takes `(key, value)`. A method that accepts both has two overloads: mypy
infers a lambda's arguments from one function type, not from a union of two. The lines of long overloads are broken by hand
(`# fmt: off`), so that the overloads of a method are easy to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeAlias

from typing_extensions import TypeVar

T = TypeVar("T", default=Any)
"""Any type of a serde or a function."""

T_contra = TypeVar("T_contra", contravariant=True)


class Serializer(Protocol[T_contra]):
    """The method of a serde that a sink needs. A `Serde[str]` may write a stream of `str | None`, because None is Kafka's null."""

    def serialize(
        self, topic: str, value: T_contra | None, headers: tuple[tuple[str, bytes | None], ...] | None = None, /
    ) -> bytes | None:
        """Converts a value to bytes; None stays None."""


K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)
"""Key and value of a stream, a table, a record or a store."""

K2 = TypeVar("K2", default=Any)
V2 = TypeVar("V2", default=Any)
"""Key and value of another input of a join, or of a result."""

KO = TypeVar("KO", default=Any)
VO = TypeVar("VO", default=Any)
"""Key and value of the other side of a join, where the result has a type of its own."""

KR = TypeVar("KR", default=Any)
"""The key of an aggregation's table: the stream's, or a window of it."""

R = TypeVar("R", default=Any)
"""The result of a joiner or an aggregation."""

KIn = TypeVar("KIn", default=Any)
VIn = TypeVar("VIn", default=Any)
KOut = TypeVar("KOut", default=Any)
VOut = TypeVar("VOut", default=Any)
"""Keys and values that a processor receives, and that it forwards."""

# A predicate may return any object; its truth counts, as for Python's own `filter`.
ValuePredicate: TypeAlias = Callable[[V], object]
KeyValuePredicate: TypeAlias = Callable[[K, V], object]

ValueAction: TypeAlias = Callable[[V], object]
KeyValueAction: TypeAlias = Callable[[K, V], object]

ValueMapper: TypeAlias = Callable[[V], R]
KeyValueMapper: TypeAlias = Callable[[K, V], R]

Initializer: TypeAlias = Callable[[], R]
Reducer: TypeAlias = Callable[[V, V], V | None]
"""`reducer(aggregate, value)`."""

Aggregator: TypeAlias = Callable[[V, R], R | None]
"""`aggregator(value, aggregate)`; None deletes the aggregate."""

KeyAggregator: TypeAlias = Callable[[K, V, R], R | None]
"""`aggregator(key, value, aggregate)`."""

# A merger returns an aggregate, but that type cannot be used here: mypy would infer Any for it, and for the table's values.
Merger: TypeAlias = Callable[[R, R], object]
"""`merger(earlier, later)`, which combines two sessions that become one."""

KeyMerger: TypeAlias = Callable[[K, R, R], object]
"""`merger(key, earlier, later)`."""

ValueJoiner: TypeAlias = Callable[[V, VO], R]
"""`joiner(left, right)`."""

KeyValueJoiner: TypeAlias = Callable[[K, V, VO], R]
"""`joiner(key, left, right)`."""

LookUpJoiner: TypeAlias = Callable[[K, KO, V, VO], R]
"""`joiner(key, looked_up, left, right)`, for a global table."""

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "int | Collection[int] | None"]
"""`partitioner(topic, key, value, partitions)`: a partition, several of them, or None for the default one."""
