"""Options of tables and joins, mainly of their stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, overload

from streams.dsl.options.base import Option
from streams.errors import TopologyError
from streams.model.typing import VO, K, V
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Unpack

    from streams.dsl.options.keywords import JoinedKeywords, MaterializedKeywords, StreamJoinedKeywords


@dataclass(frozen=True, init=False, repr=False)
class Materialized(Option, Generic[K, V]):
    """How a table's state is stored.

    Attributes:
        name: The store's name, which is also part of its changelog's name and used by interactive queries.
        key_serde, value_serde: The serdes of the table's keys and values.
        retention: How long a windowed store retains a window, at least size + grace (the default).
        caching: True: only the last value of a key in each step goes downstream; False: every update does.
        logging: Whether the store has a changelog, without which its state cannot be restored.
        changelog_config: Topic settings of the changelog, which override the engine's.
        persistent: True: RocksDB; False: in memory; None: as the `StreamsBuilder` says.
        history_retention: How far back a versioned store can look (KIP-889), so that joins read the table as of a record's
            timestamp; a versioned table has no cache.
        ttl: A row is deleted, downstream too, when stream time is this far past its last update. Only for tables that are
            read from a topic or made from a stream.
    """

    name: str | None = None
    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    retention: Duration | None = None
    caching: bool = True
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None
    history_retention: Duration | None = None
    ttl: Duration | None = None

    @overload
    def __init__(
        self,
        name: str | None = None,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Duration | None,
        **settings: Unpack[MaterializedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        key_serde: Serde[K],
        value_serde: Serde[V] | None = None,
        /,
        *more: str | Duration | None,
        **settings: Unpack[MaterializedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)


@dataclass(frozen=True, init=False, repr=False)
class Joined(Option, Generic[K, V]):
    """How a stream is joined with a table.

    Attributes:
        key_serde, value_serde: The serdes of the stream.
        name: The name of the join, of its repartition topic and of its buffer.
        grace: How long a record of the stream waits for late updates of the table, which must be versioned (KIP-923).
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    name: str | None = None
    grace: Duration | None = None

    @overload
    def __init__(
        self,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: str | Duration | None,
        **settings: Unpack[JoinedKeywords[K, V]],
    ) -> None: ...

    @overload
    def __init__(
        self,
        first: str | timedelta,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        /,
        *more: Duration | None,
        **settings: Unpack[JoinedKeywords[K, V]],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)

    def _check(self) -> None:
        super()._check()
        if self.grace is not None and to_ms(self.grace, "Joined(grace=...)") < 0:
            raise TopologyError(f"Joined(grace=...) must not be negative, but is {self.grace}.")


@dataclass(frozen=True, init=False, repr=False)
class StreamJoined(Option, Generic[K, V, VO]):
    """How two streams are joined.

    Attributes:
        key_serde: The serde of the keys of both sides.
        value_serde, other_value_serde: The serdes of the values of this and of the other side.
        name: The name of the join's nodes and repartition topics.
        store_name: The base name of the two stores; default: `name`.
        logging, changelog_config, persistent: As in `Materialized`.
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    other_value_serde: Serde[VO] | None = None
    name: str | None = None
    store_name: str | None = None
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None

    @overload
    def __init__(
        self,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        /,
        *names: str | None,
        **settings: Unpack[StreamJoinedKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        key_serde: Serde[K] | None = None,
        value_serde: Serde[V] | None = None,
        other_value_serde: Serde[VO] | None = None,
        /,
        *more: str,
        **settings: Unpack[StreamJoinedKeywords],
    ) -> None: ...

    def __init__(self, *given: Any, **settings: Any) -> None:
        self._fill(given, settings)
