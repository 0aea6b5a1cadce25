"""The written form of keys: a JSON object has its fields in one order, no matter which program makes the key.

An object is the same whatever the order of its fields, in JSON as in Python (`{"a": 1, "b": 2} == {"b": 2, "a": 1}`), and a key is
found by its bytes. So plain JSON writes the fields of a key sorted by name. Values keep their order. A type defines the order in
which `JsonSerde(Key)` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

from streams.serdes.base import Serde, T
from streams.serdes.by_type import DerivedSerde
from streams.serdes.json import JsonSerde, is_plain_json
from streams.serdes.primitives import ListSerde, TupleSerde
from streams.serdes.registry import JsonSchemaSerde
from streams.serdes.wrappers import CustomWindowedSerde, SessionWindowedSerde, TimeWindowedSerde


class JsonKeySerde(JsonSerde[Any]):
    """`JsonSerde()` for keys: the same, with the fields of objects sorted by their names. The two are equal."""

    __slots__ = ()

    @property
    def write(self) -> Callable[[Any], bytes]:
        """Writes a key that is not None; errors are as for `JsonSerde.write`."""
        write = super().write
        return lambda key: write(in_order(key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSerde) and other.is_plain

    def __hash__(self) -> int:
        return hash(JsonSerde())


class JsonSchemaKeySerde(JsonSchemaSerde):
    """`JsonSchemaSerde` for keys: the same, with the fields of objects sorted by their names."""

    def _make_writer(self, exact: bool) -> Callable[[Any, Any], bytes | None]:
        write = super()._make_writer(exact)
        return lambda key, context: write(in_order(key), context)

    def identity(self) -> str:
        """The identity of the serde for values."""
        return f"{JsonSchemaSerde.__qualname__}(is_key={self.is_key})"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return JsonSchemaSerde.__qualname__


def in_order(key: Any) -> Any:
    """The same key, in which the names of dicts at any depth are sorted."""
    kind = type(key)
    if kind is dict:
        return {name: in_order(key[name]) for name in sorted(key, key=str)}
    return kind(map(in_order, key)) if kind in (list, tuple) else key


def as_key(serde: Serde[T]) -> Serde[T]:
    """The serde with which keys of a serde are written. It differs only for plain JSON, also as a part of other serdes."""
    made: Any = serde
    if is_plain_json(serde):
        made = JsonKeySerde()
    elif type(serde) is JsonSchemaSerde:
        made = JsonSchemaKeySerde(**{one.name: getattr(serde, one.name) for one in fields(serde) if one.init})
    elif isinstance(serde, TupleSerde):
        made = TupleSerde(*map(as_key, serde.entries))
    elif isinstance(serde, ListSerde | TimeWindowedSerde | CustomWindowedSerde | SessionWindowedSerde):
        inner: Any = as_key(serde.inner)
        made = serde if inner is serde.inner else _around(serde, inner)
    elif isinstance(serde, DerivedSerde) and serde.inner is not None:
        made = replace(serde, inner=as_key(serde.inner))
    return cast("Serde[T]", made)


def _around(serde: Any, inner: Serde[Any]) -> Any:
    if isinstance(serde, TimeWindowedSerde):
        return TimeWindowedSerde(inner, serde.size_ms)
    return replace(serde, inner=inner)
