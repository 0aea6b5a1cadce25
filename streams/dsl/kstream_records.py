"""The stateless part of `KStream`, which processes records one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from streams.dsl import functions
from streams.dsl.arguments import operator_name
from streams.dsl.kstream_base import KStreamPart
from streams.dsl.nodes.result_types import Type, check_fields, element_type, pair_types, result_type
from streams.dsl.options import NameLike
from streams.model.expressions.expression import Expression
from streams.model.expressions.fields import ValueFields
from streams.model.typing import (
    K2,
    V2,
    K,
    KeyValueAction,
    KeyValueMapper,
    KeyValuePredicate,
    V,
    ValueAction,
    ValueMapper,
    ValuePredicate,
)
from streams.operators.processor import AnyProcessor
from streams.operators.stateless import FlatMap, FlatMapValues, Map, Peek
from streams.topology.node_kind import NodeKind
from streams.topology.specs.base import NodeSpec, OperatorSpec
from streams.topology.specs.streams import FilterSpec, MapValuesSpec, SelectKeySpec

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream


class RecordsMixin(KStreamPart[K, V]):
    """Filters, mappers and side effects of a `KStream`."""

    @overload
    def filter(self, predicate: ValuePredicate[V], named: NameLike = None) -> KStream[K, V]: ...

    @overload
    def filter(self, predicate: KeyValuePredicate[K, V], named: NameLike = None) -> KStream[K, V]: ...

    def filter(self, predicate: ValuePredicate[V] | KeyValuePredicate[K, V], named: NameLike = None) -> KStream[K, V]:
        """Keeps the records for which the predicate is true.

        `KStream[K, V]` to `KStream[K, V]`. Nulls are passed to the predicate; timestamps and headers stay.
        Source: Kafka Streams' `KStreamFilter`.
        """
        return self._filter("filter", predicate, named, negate=False)

    @overload
    def filter_not(self, predicate: ValuePredicate[V], named: NameLike = None) -> KStream[K, V]: ...

    @overload
    def filter_not(self, predicate: KeyValuePredicate[K, V], named: NameLike = None) -> KStream[K, V]: ...

    def filter_not(
        self, predicate: ValuePredicate[V] | KeyValuePredicate[K, V], named: NameLike = None
    ) -> KStream[K, V]:
        """Removes the records for which the predicate is true.

        `KStream[K, V]` to `KStream[K, V]`. Nulls are passed to the predicate; timestamps and headers stay.
        Source: Kafka Streams' `KStreamFilter`.
        """
        return self._filter("filter_not", predicate, named, negate=True)

    def _filter(self, method: str, predicate: functions.Function, named: NameLike, *, negate: bool) -> KStream[K, V]:
        expression = predicate if isinstance(predicate, Expression) else None
        check_fields(predicate, self._port.node, self._port.value_serde)
        spec = FilterSpec(functions.predicate(predicate), negate, expression)
        return self._behind(method, spec, named)

    @overload
    def map(self, mapper: KeyValueMapper[K, V, tuple[K2 | None, V2]], named: NameLike = None) -> KStream[K2, V2]: ...

    @overload
    def map(self, mapper: ValueMapper[V, tuple[K2 | None, V2]], named: NameLike = None) -> KStream[K2, V2]: ...

    def map(
        self,
        mapper: KeyValueMapper[K, V, tuple[K2 | None, V2]] | ValueMapper[V, tuple[K2 | None, V2]],
        named: NameLike = None,
    ) -> KStream[K2, V2]:
        """Maps each record to a new key and value: `mapper(key, value)` returns a pair. Prefer `map_values` if the key stays.

        `KStream[K, V]` to `KStream[K2, V2]`. Nulls are passed to the mapper; timestamps and headers stay.
        Source: Kafka Streams' `KStreamMap`.
        """
        fn = functions.key_value(mapper, "mapper")
        made = pair_types(self._result_type(mapper))
        return self._then(
            "map", NodeKind.KSTREAM_MAP, partial(Map, fn), named, new_key=True, new_value=True, types=made
        )

    @overload
    def map_values(self, mapper: ValueMapper[V, V2], named: NameLike = None) -> KStream[K, V2]: ...

    @overload
    def map_values(self, mapper: KeyValueMapper[K, V, V2], named: NameLike = None) -> KStream[K, V2]: ...

    def map_values(
        self, mapper: ValueMapper[V, V2] | KeyValueMapper[K, V, V2], named: NameLike = None
    ) -> KStream[K, V2]:
        """Maps each value to a new one; key and task stay, so no repartition topic is needed.

        `KStream[K, V]` to `KStream[K, V2]`. Nulls are passed to the mapper; timestamps and headers stay.
        Source: Kafka Streams' `KStreamMapValues`.
        """
        fields = mapper if isinstance(mapper, ValueFields) else None
        spec = MapValuesSpec(functions.key_value(mapper, "value mapper"), fields)
        return self._behind("map_values", spec, named, new_value=True, types=(None, self._result_type(mapper)))

    @overload
    def flat_map(
        self, mapper: KeyValueMapper[K, V, Iterable[tuple[K2 | None, V2]]], named: NameLike = None
    ) -> KStream[K2, V2]: ...

    @overload
    def flat_map(
        self, mapper: ValueMapper[V, Iterable[tuple[K2 | None, V2]]], named: NameLike = None
    ) -> KStream[K2, V2]: ...

    def flat_map(
        self,
        mapper: KeyValueMapper[K, V, Iterable[tuple[K2 | None, V2]]] | ValueMapper[V, Iterable[tuple[K2 | None, V2]]],
        named: NameLike = None,
    ) -> KStream[K2, V2]:
        """Maps each record to any number of records: `mapper(key, value)` returns pairs of key and value.

        `KStream[K, V]` to `KStream[K2, V2]`. All results have the original record's timestamp and headers.
        Source: Kafka Streams' `KStreamFlatMap`.
        """
        fn = functions.key_value(mapper, "mapper")
        made, operator = pair_types(element_type(self._result_type(mapper))), partial(FlatMap, fn)
        return self._then(
            "flat_map", NodeKind.KSTREAM_FLATMAP, operator, named, new_key=True, new_value=True, types=made
        )

    @overload
    def flat_map_values(self, mapper: ValueMapper[V, Iterable[V2]], named: NameLike = None) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(self, mapper: KeyValueMapper[K, V, Iterable[V2]], named: NameLike = None) -> KStream[K, V2]: ...

    def flat_map_values(
        self, mapper: ValueMapper[V, Iterable[V2]] | KeyValueMapper[K, V, Iterable[V2]], named: NameLike = None
    ) -> KStream[K, V2]:
        """Maps each value to any number of values; the key stays.

        `KStream[K, V]` to `KStream[K, V2]`. All results have the original record's timestamp and headers.
        Source: Kafka Streams' `KStreamFlatMapValues`.
        """
        fn = functions.key_value(mapper, "value mapper")
        made, operator = (None, element_type(self._result_type(mapper))), partial(FlatMapValues, fn)
        return self._then(
            "flat_map_values", NodeKind.KSTREAM_FLATMAPVALUES, operator, named, new_value=True, types=made
        )

    @overload
    def select_key(self, selector: ValueMapper[V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...

    @overload
    def select_key(self, selector: KeyValueMapper[K, V, K2 | None], named: NameLike = None) -> KStream[K2, V]: ...

    def select_key(
        self, selector: ValueMapper[V, K2 | None] | KeyValueMapper[K, V, K2 | None], named: NameLike = None
    ) -> KStream[K2, V]:
        """Replaces each key; the value stays.

        `KStream[K, V]` to `KStream[K2, V]`. The new key may be null, but groups and joins drop null keys.
        Timestamps and headers stay.
        Source: Kafka Streams' `KStreamImpl.selectKey`.
        """
        expression = selector if isinstance(selector, Expression) else None
        spec = SelectKeySpec(functions.key_value(selector, "key selector"), expression)
        return self._behind("select_key", spec, named, new_key=True, types=(self._result_type(selector), None))

    @overload
    def peek(self, action: ValueAction[V], named: NameLike = None) -> KStream[K, V]: ...

    @overload
    def peek(self, action: KeyValueAction[K, V], named: NameLike = None) -> KStream[K, V]: ...

    def peek(self, action: ValueAction[V] | KeyValueAction[K, V], named: NameLike = None) -> KStream[K, V]:
        """Calls a function for each record, at least once, and passes the record on unchanged.

        `KStream[K, V]` to the same. Source: Kafka Streams' `KStreamPeek`.
        """
        return self._then("peek", NodeKind.KSTREAM_PEEK, partial(Peek, functions.key_value(action, "action")), named)

    @overload
    def foreach(self, action: ValueAction[V], named: NameLike = None) -> None: ...

    @overload
    def foreach(self, action: KeyValueAction[K, V], named: NameLike = None) -> None: ...

    def foreach(self, action: ValueAction[V] | KeyValueAction[K, V], named: NameLike = None) -> None:
        """Calls a function for each record, at least once; the stream ends here. Source: Kafka Streams' `foreach`."""
        self._then("foreach", NodeKind.KSTREAM_FOREACH, partial(Peek, functions.key_value(action, "action")), named)

    def print(self, label: str | None = None, named: NameLike = None) -> None:
        """Prints each record as `[label]: key, value`, on the machine where it is processed; the stream ends here."""
        action = partial(_print_record, label or self._port.node)
        self._then("print", NodeKind.KSTREAM_PRINTER, partial(Peek, action), named)

    def _then(
        self,
        method: str,
        kind: NodeKind,
        supplier: Callable[[], AnyProcessor],
        named: NameLike,
        *,
        new_key: bool = False,
        new_value: bool = False,
        types: tuple[Type, Type] = (None, None),
    ) -> KStream[Any, Any]:
        return self._behind(
            method, OperatorSpec(kind, supplier), named, new_key=new_key, new_value=new_value, types=types
        )

    def _behind(
        self,
        method: str,
        spec: NodeSpec,
        named: NameLike,
        *,
        new_key: bool = False,
        new_value: bool = False,
        types: tuple[Type, Type] = (None, None),
    ) -> KStream[Any, Any]:
        port = self._graph.stateless(
            spec,
            self._port,
            operator_name(method, named),
            new_key=new_key,
            new_value=new_value,
            key_type=types[0],
            value_type=types[1],
        )
        return self._stream(port)

    def _result_type(self, fn: functions.Function) -> Type:
        """The type that a function returns, if known. Raises `TopologyError` if it reads a field that is not there."""
        check_fields(fn, self._port.node, self._port.value_serde)
        return result_type(fn, self._port.key_serde, self._port.value_serde)


def _print_record(label: str, key: Any, value: Any) -> None:
    print(f"[{label}]: {key}, {value}")
