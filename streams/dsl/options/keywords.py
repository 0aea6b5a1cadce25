"""The fields of options as keyword arguments of methods: the types of `**option`, for type checkers.

`stream("in", value_serde=JsonSerde())` is short for `stream("in", Consumed(value_serde=JsonSerde()))`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypedDict

from streams.model.typing import K, Partitioner, Serializer, V

if TYPE_CHECKING:
    from streams.model.timestamps import ConsumedRecord, TimestampExtractor
    from streams.model.windows import Duration
    from streams.serdes.base import Serde


class ConsumedSettings(TypedDict, Generic[K, V], total=False):
    """The fields of `Consumed` except the name."""

    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    timestamp_extractor: (
        TimestampExtractor | Callable[[ConsumedRecord, int], int] | Callable[[ConsumedRecord], int] | None
    )
    offset_reset: Literal["earliest", "latest", "none"] | Duration | None


class ConsumedKeywords(ConsumedSettings[K, V], total=False):
    """The fields of `Consumed`."""

    name: str | None


class ProducedSettings(TypedDict, Generic[K, V], total=False):
    """The fields of `Produced` except the name."""

    key_serde: Serializer[K] | None
    value_serde: Serializer[V] | None
    partitioner: Partitioner | None


class ProducedKeywords(ProducedSettings[K, V], total=False):
    """The fields of `Produced`."""

    name: str | None


class GroupedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Grouped`."""

    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    name: str | None


class RepartitionedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Repartitioned`."""

    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    partitions: int | None
    partitioner: Partitioner | None
    name: str | None


class MaterializedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Materialized`."""

    name: str | None
    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    retention: Duration | None
    caching: bool
    logging: bool
    changelog_config: Mapping[str, str]
    persistent: bool | None
    history_retention: Duration | None
    ttl: Duration | None


class JoinedKeywords(TypedDict, Generic[K, V], total=False):
    """The fields of `Joined`."""

    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    name: str | None
    grace: Duration | None


class StreamJoinedKeywords(TypedDict, total=False):
    """The fields of `StreamJoined`."""

    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    other_value_serde: Serde[Any] | None
    name: str | None
    store_name: str | None
    logging: bool
    changelog_config: Mapping[str, str]
    persistent: bool | None
