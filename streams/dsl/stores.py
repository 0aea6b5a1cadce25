"""`Stores`: state stores for the Processor API, for `StreamsBuilder.add_state_store`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from typing_extensions import TypedDict, Unpack

from state.stores.spec import StoreKind, StoreSpec
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde, check_serde
from streams.serdes.keys import as_key
from streams.topology.graph import StoreNode
from streams.topology.naming import check_name

Argument: TypeAlias = Serde[Any] | Duration | bool


class _Serdes(TypedDict, total=False):
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None


class _WithHistory(_Serdes, total=False):
    history_retention: Duration | None


class _WithRetention(_Serdes, total=False):
    retention: Duration | None


class _WithWindows(_WithRetention, total=False):
    window_size: Duration | None


class _WithDuplicates(_WithWindows, total=False):
    retain_duplicates: bool | None


class Stores(AnswersUnknownNames):
    """Makes state stores of every kind (Kafka Streams' `Stores`).

    Example:
        >>> builder.add_state_store(Stores.key_value_store("seen", StringSerde(), Int64Serde()))
        >>> stream.process(Dedupe, stores=["seen"])

    In a processor, `ctx.store(name)` returns the `KeyValueStore`, `WindowStore`, `SessionStore` and so on.

    Arguments after the name may be keywords, or positional in any order, recognised by their types: the first serde is that of the
    keys (`key_serde`), the second that of the values (`value_serde`); the first duration (`timedelta` or ms) is the `retention`,
    how long rows are stored, the second the `window_size`, at most that; True is `retain_duplicates`: each `put` adds a row.
    The window size may be left out, since a row only has the start of its window. Stores are on disk, except those of
    `in_memory_...` methods; both sorts have a changelog. `persistent_...` methods are other names of the methods without a prefix.
    """

    @staticmethod
    def key_value_store(
        name: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> StoreNode:
        """A store of a value per key (`KeyValueStore`)."""
        return _key_value("key_value_store", StoreKind.KEY_VALUE, name, key_serde, value_serde)

    persistent_key_value_store = key_value_store

    @staticmethod
    def in_memory_key_value_store(
        name: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> StoreNode:
        """A `key_value_store` in memory."""
        made = _key_value("in_memory_key_value_store", StoreKind.KEY_VALUE, name, key_serde, value_serde)
        return Stores.kept(made, persistent=False)

    @staticmethod
    def timestamped_key_value_store(
        name: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> StoreNode:
        """A store of a value and timestamp per key (`TimestampedKeyValueStore`)."""
        kind = StoreKind.TIMESTAMPED_KEY_VALUE
        return _key_value("timestamped_key_value_store", kind, name, key_serde, value_serde)

    persistent_timestamped_key_value_store = timestamped_key_value_store

    @staticmethod
    def versioned_key_value_store(
        name: str, *arguments: Serde[Any] | Duration, **named: Unpack[_WithHistory]
    ) -> StoreNode:
        """A store of each key's values over time, as far back as `history_retention` (`VersionedKeyValueStore`)."""
        return _store("versioned_key_value_store", StoreKind.VERSIONED, name, arguments, named)

    versioned_store = versioned_key_value_store
    persistent_versioned_key_value_store = versioned_key_value_store

    @staticmethod
    def window_store(name: str, *arguments: Argument, **named: Unpack[_WithDuplicates]) -> StoreNode:
        """A store of a value, or with duplicates of every value put, per key and start of a window (`WindowStore`)."""
        return _store("window_store", StoreKind.WINDOW, name, arguments, named)

    persistent_window_store = window_store

    @staticmethod
    def in_memory_window_store(name: str, *arguments: Argument, **named: Unpack[_WithDuplicates]) -> StoreNode:
        """A `window_store` in memory."""
        return Stores.kept(_store("in_memory_window_store", StoreKind.WINDOW, name, arguments, named), persistent=False)

    @staticmethod
    def timestamped_window_store(
        name: str, *arguments: Serde[Any] | Duration, **named: Unpack[_WithWindows]
    ) -> StoreNode:
        """A store of a value and timestamp per key and start of a window (`TimestampedWindowStore`)."""
        return _store("timestamped_window_store", StoreKind.TIMESTAMPED_WINDOW, name, arguments, named)

    persistent_timestamped_window_store = timestamped_window_store

    @staticmethod
    def session_store(name: str, *arguments: Serde[Any] | Duration, **named: Unpack[_WithRetention]) -> StoreNode:
        """A store of a value per key and session (`SessionStore`), retained for `retention`."""
        return _store("session_store", StoreKind.SESSION, name, arguments, named)

    persistent_session_store = session_store

    @staticmethod
    def in_memory_session_store(
        name: str, *arguments: Serde[Any] | Duration, **named: Unpack[_WithRetention]
    ) -> StoreNode:
        """A `session_store` in memory."""
        return Stores.kept(
            _store("in_memory_session_store", StoreKind.SESSION, name, arguments, named), persistent=False
        )

    @staticmethod
    def kept(
        store: StoreNode,
        *,
        persistent: bool = True,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> StoreNode:
        """The same store in memory, without a changelog, or with other topic settings of its changelog."""
        spec = replace(store.spec, persistent=persistent, logged=logging, changelog_config=dict(changelog_config or {}))
        return replace(store, spec=spec)


@dataclass(frozen=True)
class _Shape:
    """The arguments of a method of `Stores` besides serdes: names of durations, the first one required, and of a flag."""

    durations: tuple[str, ...] = ()
    flag: str | None = None


_SHAPES = {
    StoreKind.KEY_VALUE: _Shape(),
    StoreKind.TIMESTAMPED_KEY_VALUE: _Shape(),
    StoreKind.VERSIONED: _Shape(("history_retention",)),
    StoreKind.WINDOW: _Shape(("retention", "window_size"), "retain_duplicates"),
    StoreKind.TIMESTAMPED_WINDOW: _Shape(("retention", "window_size")),
    StoreKind.SESSION: _Shape(("retention",)),
}


def _key_value(method: str, kind: StoreKind, name: str, *serdes: Serde[Any] | None) -> StoreNode:
    return _store(method, kind, name, (), dict(zip(("key_serde", "value_serde"), serdes, strict=True)))


def _store(
    method: str, kind: StoreKind, name: str, arguments: tuple[object, ...], named: Mapping[str, Any]
) -> StoreNode:
    shape = _SHAPES[kind]
    given = _by_name(f"Stores.{method}('{name}', ...)", shape, arguments, named)
    missing = [one for one in ("key_serde", "value_serde", *shape.durations[:1]) if given.get(one) is None]
    if missing:
        wanted = ", ".join(f"{one}=..." for one in missing)
        # Kafka Streams' suppliers, which take no serdes, are written into `Materialized`.
        table = f"Materialized('{name}'{''.join(f', {one}=...' for one in shape.durations[:1])})"
        raise TopologyError(
            f"Stores.{method}('{name}', ...) lacks {', '.join(missing)}: give {wanted}. For the store of a table, write "
            f"{table} instead."
        )
    for one in ("key_serde", "value_serde"):
        check_serde(given[one], f"{one} of the store '{name}'")
    times = {
        one: to_ms(given[one], f"{one} of the store '{name}'") for one in shape.durations if given.get(one) is not None
    }
    retention_ms = times[shape.durations[0]] if shape.durations else None
    if retention_ms is not None and retention_ms < 0:
        raise TopologyError(
            f"The {shape.durations[0]} of the store '{name}' must not be negative, but is {retention_ms} ms."
        )
    if retention_ms is not None and times.get("window_size", 0) > retention_ms:
        raise TopologyError(
            f"The store '{name}' keeps rows for {retention_ms} ms, which is less than its window size, {times['window_size']} ms: "
            f"the retention must not be smaller."
        )
    spec = StoreSpec(check_name(name), kind, retention_ms, retain_duplicates=bool(given.get("retain_duplicates")))
    return StoreNode(spec, as_key(given["key_serde"]), given["value_serde"], times.get("window_size"))


def _by_name(method: str, shape: _Shape, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments by name; positional ones are recognised by their types."""
    known = ["key_serde", "value_serde", *shape.durations, *([shape.flag] if shape.flag else [])]
    if unknown := set(named).difference(known):
        raise TopologyError(f"{method} has no argument {min(unknown)!r}. It takes: {', '.join(known)}.")
    given = {name: value for name, value in named.items() if value is not None}
    for argument in arguments:
        if isinstance(argument, bool):
            places = [shape.flag] if shape.flag else []
        elif isinstance(argument, Serde | type):
            check_serde(argument, f"{method}:")
            places = ["key_serde", "value_serde"]
        else:
            to_ms(argument, f"An argument of {method} that is not a serde")
            places = list(shape.durations)
        place = next((one for one in places if one not in given), None)
        if place is None:
            raise TopologyError(f"{method} has no place for {argument!r}. It takes: {', '.join(known)}.")
        given[place] = argument
    return given
