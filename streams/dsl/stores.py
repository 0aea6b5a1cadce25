"""`Stores`: makes state stores of the Processor API, for `StreamsBuilder.add_state_store`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Any

from typing_extensions import Never, ParamSpec

from state.stores.spec import RowFormat, StoreKind, StoreSpec
from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde, check_serde
from streams.serdes.internal import HeadersSerde
from streams.serdes.keys import as_key
from streams.topology.graph import StoreNode
from streams.topology.naming import check_name

P = ParamSpec("P")


def _in_memory(make: Callable[P, StoreNode]) -> Callable[P, StoreNode]:
    """Decorates a method of `Stores` so that its store is in memory."""

    @wraps(make)
    def made(*arguments: P.args, **named: P.kwargs) -> StoreNode:
        return Stores.kept(make(*arguments, **named), persistent=False)

    return made


def _with_headers(make: Callable[P, StoreNode]) -> Callable[P, StoreNode]:
    """Decorates a method of `Stores` so that its store keeps headers with its values."""

    @wraps(make)
    def made(*arguments: P.args, **named: P.kwargs) -> StoreNode:
        store = make(*arguments, **named)
        spec = replace(store.spec, rows=RowFormat.WITH_HEADERS)
        return replace(store, spec=spec, value_serde=HeadersSerde(store.value_serde))

    return made


class Stores(AnswersUnknownNames):
    """Makes state stores of every kind (Kafka Streams' `Stores`).

    Example:
        >>> builder.add_state_store(Stores.key_value_store("seen", StringSerde(), Int64Serde()))
        >>> stream.process(Dedupe, stores=["seen"])

    In a processor, `ctx.store(name)` returns the `KeyValueStore`, `WindowStore`, `SessionStore` and so on.

    Only the name, `key_serde` and `value_serde` may be passed by position. `retention` is how long rows are stored (`timedelta` or
    ms). `window_size`, at most the retention, may be omitted, since a row only has the start of its window. Stores are on disk,
    except the stores of `in_memory_...` methods; both have a changelog. `persistent_...` methods are other names for the methods
    without a prefix. Values of the `..._with_headers` methods are `ValueAndHeaders` (KIP-1271).
    """

    @staticmethod
    def key_value_store(
        name: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> StoreNode:
        """A store with one value per key (`KeyValueStore`)."""
        return _store("key_value_store", StoreKind.KEY_VALUE, name, (key_serde, value_serde))

    persistent_key_value_store = key_value_store
    in_memory_key_value_store = staticmethod(_in_memory(key_value_store))

    @staticmethod
    def timestamped_key_value_store(
        name: str, key_serde: Serde[Any] | None = None, value_serde: Serde[Any] | None = None
    ) -> StoreNode:
        """A store with one value and its timestamp per key (`TimestampedKeyValueStore`)."""
        return _store("timestamped_key_value_store", StoreKind.TIMESTAMPED_KEY_VALUE, name, (key_serde, value_serde))

    persistent_timestamped_key_value_store = timestamped_key_value_store
    timestamped_key_value_store_with_headers = staticmethod(_with_headers(timestamped_key_value_store))
    persistent_timestamped_key_value_store_with_headers = timestamped_key_value_store_with_headers

    @staticmethod
    def versioned_key_value_store(
        name: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        *more: Never,
        history_retention: Duration | None = None,
    ) -> StoreNode:
        """A store with the values of each key over time, as far back as `history_retention` (`VersionedKeyValueStore`)."""
        serdes, times = (key_serde, value_serde, *more), {"history_retention": history_retention}
        return _store("versioned_key_value_store", StoreKind.VERSIONED, name, serdes, times)

    versioned_store = versioned_key_value_store
    persistent_versioned_key_value_store = versioned_key_value_store

    @staticmethod
    def window_store(
        name: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        *more: Never,
        retention: Duration | None = None,
        window_size: Duration | None = None,
        retain_duplicates: bool = False,
    ) -> StoreNode:
        """A store with one value per key and window start (`WindowStore`); with `retain_duplicates`, every value that was put."""
        serdes, times = (key_serde, value_serde, *more), {"retention": retention, "window_size": window_size}
        return _store("window_store", StoreKind.WINDOW, name, serdes, times, retain_duplicates)

    persistent_window_store = window_store
    in_memory_window_store = staticmethod(_in_memory(window_store))

    @staticmethod
    def timestamped_window_store(
        name: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        *more: Never,
        retention: Duration | None = None,
        window_size: Duration | None = None,
    ) -> StoreNode:
        """A store with one value and its timestamp per key and window start (`TimestampedWindowStore`)."""
        serdes, times = (key_serde, value_serde, *more), {"retention": retention, "window_size": window_size}
        return _store("timestamped_window_store", StoreKind.TIMESTAMPED_WINDOW, name, serdes, times)

    persistent_timestamped_window_store = timestamped_window_store
    timestamped_window_store_with_headers = staticmethod(_with_headers(timestamped_window_store))
    persistent_timestamped_window_store_with_headers = timestamped_window_store_with_headers

    @staticmethod
    def session_store(
        name: str,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        *more: Never,
        retention: Duration | None = None,
    ) -> StoreNode:
        """A store with one value per key and session (`SessionStore`), stored for `retention`."""
        serdes, times = (key_serde, value_serde, *more), {"retention": retention}
        return _store("session_store", StoreKind.SESSION, name, serdes, times)

    persistent_session_store = session_store
    in_memory_session_store = staticmethod(_in_memory(session_store))
    session_store_with_headers = staticmethod(_with_headers(session_store))
    persistent_session_store_with_headers = session_store_with_headers

    @staticmethod
    def kept(
        store: StoreNode,
        *,
        persistent: bool = True,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> StoreNode:
        """Returns the same store in memory, without a changelog, or with other topic settings for its changelog."""
        spec = replace(store.spec, persistent=persistent, logged=logging, changelog_config=dict(changelog_config or {}))
        return replace(store, spec=spec)


def _store(
    method: str,
    kind: StoreKind,
    name: str,
    serdes: tuple[Any, ...],
    durations: Mapping[str, Duration | None] | None = None,
    retain_duplicates: bool = False,
) -> StoreNode:
    """Makes a store. `durations` begin with the retention, which is required. Raises `TopologyError` for wrong arguments."""
    times = durations or {}
    given = {"key_serde": serdes[0], "value_serde": serdes[1], **dict(list(times.items())[:1])}
    missing = [one for one, value in given.items() if value is None]
    if missing or len(serdes) > 2:
        wrong = f"lacks {', '.join(missing)}" if missing else "takes only its name and two serdes without a keyword"
        settings = "".join(f", {one}=..." for one in times)
        # The user wrote it like a supplier of Kafka Streams, which takes no serdes; the store belongs in `Materialized` here.
        raise TopologyError(
            f"Stores.{method}('{name}', ...) {wrong}: write Stores.{method}('{name}', key_serde, value_serde{settings}). For the "
            f"store of a table, write Materialized('{name}'{''.join(f', {one}=...' for one in list(times)[:1])}) instead."
        )
    for one in ("key_serde", "value_serde"):
        check_serde(given[one], f"{one} of the store '{name}'")
    ms = {one: to_ms(value, f"{one} of the store '{name}'") for one, value in times.items() if value is not None}
    retention, retention_ms = next(iter(ms.items()), (None, None))
    if retention_ms is not None and retention_ms < 0:
        raise TopologyError(f"The {retention} of the store '{name}' must not be negative, but is {retention_ms} ms.")
    if retention_ms is not None and ms.get("window_size", 0) > retention_ms:
        raise TopologyError(
            f"The store '{name}' keeps rows for {retention_ms} ms, which is less than its window size, {ms['window_size']} ms: "
            f"the retention must not be smaller."
        )
    spec = StoreSpec(check_name(name), kind, retention_ms, retain_duplicates=retain_duplicates)
    return StoreNode(spec, as_key(serdes[0]), serdes[1], ms.get("window_size"))
