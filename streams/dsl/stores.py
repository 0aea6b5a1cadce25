"""``Stores``: state stores for the Processor API, to be added with ``StreamsBuilder.add_state_store``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from state.stores.spec import StoreKind, StoreSpec
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde
from streams.topology.graph import StoreNode
from streams.topology.naming import check_name


class Stores:
    """Makes stores of each kind (Kafka Streams: ``Stores``).

    Example::

        builder.add_state_store(Stores.key_value_store("seen", StringSerde(), Int64Serde()))
        stream.process(Dedupe, ["seen"])

    What ``ctx.store(name)`` then gives is a typed store of ``streams.operators``.
    """

    @staticmethod
    def key_value_store(name: str, key_serde: Serde, value_serde: Serde) -> StoreNode:
        """Key to value (``KeyValueStore``)."""
        return StoreNode(StoreSpec(check_name(name), StoreKind.KEY_VALUE), key_serde, value_serde)

    @staticmethod
    def timestamped_key_value_store(name: str, key_serde: Serde, value_serde: Serde) -> StoreNode:
        """Key to value and timestamp (``TimestampedKeyValueStore``)."""
        return StoreNode(StoreSpec(check_name(name), StoreKind.TIMESTAMPED_KEY_VALUE), key_serde, value_serde)

    @staticmethod
    def versioned_key_value_store(
        name: str, key_serde: Serde, value_serde: Serde, history_retention: Duration
    ) -> StoreNode:
        """Key and time to the value that held then, as far back as ``history_retention`` (``VersionedKeyValueStore``)."""
        spec = StoreSpec(check_name(name), StoreKind.VERSIONED, to_ms(history_retention, "history_retention"))
        return StoreNode(spec, key_serde, value_serde)

    @staticmethod
    def window_store(
        name: str, key_serde: Serde, value_serde: Serde, retention: Duration, retain_duplicates: bool = False
    ) -> StoreNode:
        """Key and time to value, or with duplicates to every value that was put (``WindowStore``)."""
        spec = StoreSpec(
            check_name(name), StoreKind.WINDOW, to_ms(retention, "Retention"), retain_duplicates=retain_duplicates
        )
        return StoreNode(spec, key_serde, value_serde)

    @staticmethod
    def timestamped_window_store(name: str, key_serde: Serde, value_serde: Serde, retention: Duration) -> StoreNode:
        """Key and window start to value and timestamp (``TimestampedWindowStore``)."""
        spec = StoreSpec(check_name(name), StoreKind.TIMESTAMPED_WINDOW, to_ms(retention, "Retention"))
        return StoreNode(spec, key_serde, value_serde)

    @staticmethod
    def session_store(name: str, key_serde: Serde, value_serde: Serde, retention: Duration) -> StoreNode:
        """Key and session to value (``SessionStore``)."""
        spec = StoreSpec(check_name(name), StoreKind.SESSION, to_ms(retention, "Retention"))
        return StoreNode(spec, key_serde, value_serde)

    @staticmethod
    def kept(
        store: StoreNode,
        *,
        persistent: bool = True,
        logging: bool = True,
        changelog_config: Mapping[str, str] | None = None,
    ) -> StoreNode:
        """The store, kept in another way: in memory, without a changelog, or with topic settings of one's own."""
        spec = replace(store.spec, persistent=persistent, logged=logging, changelog_config=dict(changelog_config or {}))
        return replace(store, spec=spec)
