"""Options of topics: how they are read, written and, by the engine, created."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, overload

from streams.dsl.options.base import OFFSET_RESETS, Option
from streams.errors import TopologyError
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, ConsumedRecord, TimestampExtractor
from streams.model.typing import K, Partitioner, Serializer, V
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Unpack

    from streams.dsl.options.keywords import ConsumedKeywords, GroupedKeywords, ProducedKeywords, RepartitionedKeywords

Extractor: TypeAlias = TimestampExtractor | Callable[[ConsumedRecord, int], int | datetime]


@dataclass(frozen=True, init=False, repr=False)
class Consumed(Option, Generic[K, V]):
    """How a topic is read.

    Attributes:
        key_serde, value_serde: The serdes that read its records.
        timestamp_extractor: The source of event time; a function `fn(record, partition_time) -> epoch ms` is accepted, too.
        offset_reset: Where to begin without a committed offset: `"earliest"`, `"latest"`, `"none"`, or a duration: with
            records at most that old at the first start (KIP-1106); None: the application's setting.
        name: The name of the source node.
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    timestamp_extractor: Extractor = FAIL_ON_INVALID_TIMESTAMP
    offset_reset: Literal["earliest", "latest", "none"] | Duration | None = None
    name: str | None = None

    @overload
    def __init__(
        self,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Extractor | Duration | str | None,
        **settings: Unpack[ConsumedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Extractor | Duration | str | None,
        **settings: Unpack[ConsumedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        first: Extractor | timedelta,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Extractor | Duration | str | None,
        **settings: Unpack[ConsumedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)

    def _check(self) -> None:
        super()._check()
        if isinstance(self.offset_reset, str):
            if self.offset_reset not in OFFSET_RESETS:
                raise TopologyError(
                    f"offset_reset must be earliest, latest, none or a duration, not {self.offset_reset!r}."
                )
        elif self.offset_reset is not None and to_ms(self.offset_reset, "offset_reset") < 0:
            raise TopologyError(f"offset_reset must not be negative, but is {self.offset_reset}.")

    @property
    def reset_policy(self) -> str | None:
        """The `offset_reset` of a `SourceNode`: a duration is `duration:<ms>`."""
        if self.offset_reset is None or isinstance(self.offset_reset, str):
            return self.offset_reset
        return f"duration:{to_ms(self.offset_reset, 'offset_reset')}"


@dataclass(frozen=True, init=False, repr=False)
class Produced(Option, Generic[K, V]):
    """How a topic is written.

    Attributes:
        key_serde, value_serde: The serdes that write the records.
        partitioner: `fn(topic, key, value, number_of_partitions)` returns a partition, counted from 0; a collection of
            partitions, each of which gets the record once (KIP-837); an empty collection, which drops and counts the record;
            or None for Kafka's default, murmur2 of the key, as without a partitioner. Only for topics of `to`.
        name: The name of the sink node.
    """

    key_serde: Serializer[K] | None = None
    value_serde: Serializer[V] | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    @overload
    def __init__(
        self,
        key_serde: Serializer[K] | None = None,
        value_serde: Serializer[V] | None = None,
        /,
        *more: Partitioner | str | None,
        **settings: Unpack[ProducedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        first: str | Partitioner,
        key_serde: Serializer[K] | None = None,
        value_serde: Serializer[V] | None = None,
        /,
        *more: Partitioner | None,
        **settings: Unpack[ProducedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)


@dataclass(frozen=True, init=False, repr=False)
class Grouped(Option, Generic[K, V]):
    """How a stream is grouped; `name` is that of the repartition topic if one is needed."""

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    name: str | None = None

    @overload
    def __init__(
        self,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: str | None,
        **settings: Unpack[GroupedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        **settings: Unpack[GroupedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)


@dataclass(frozen=True, init=False, repr=False)
class Repartitioned(Option, Generic[K, V]):
    """How a repartition topic is created and written; `partitions` is by default the number of the writer's tasks."""

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    @overload
    def __init__(
        self,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Partitioner | int | str | None,
        **settings: Unpack[RepartitionedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        first: str | int,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Partitioner | int | None,
        **settings: Unpack[RepartitionedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)

    def _check(self) -> None:
        super()._check()
        if self.partitions is not None and self.partitions < 1:
            raise TopologyError(f"A repartition topic needs at least one partition, not {self.partitions}.")
