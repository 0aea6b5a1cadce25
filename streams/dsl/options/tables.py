"""Options of tables and joins: how their state is stored."""

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
    """How a table's state is kept.

    Attributes:
        name: Of the store, and so of its changelog; what interactive queries ask for.
        key_serde, value_serde: Of what is in it.
        retention: How long a windowed store keeps a window, at least size + grace (the default).
        caching: True: the last value of a key per step goes downstream; False: every update does.
        logging: Whether there is a changelog. Without one, state cannot be restored.
        changelog_config: Topic settings of the changelog that win over the engine's.
        persistent: True: RocksDB; False: in memory; None: as the `StreamsBuilder` says.
        history_retention: Keeps a table in a versioned store that can tell how it was up to this long ago (KIP-889), so
            that joins see it as of a record's time; such a table has no cache.
        ttl: Deletes a row, downstream too, when stream time is this far past its last update; for tables that are read or
            made of a stream.
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
        key_serde, value_serde: Of the stream.
        name: Of the join, of a repartition topic and of the buffer.
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
        key_serde: Of both sides.
        value_serde, other_value_serde: Of this and of the other side, in their stores.
        name: Of the join's nodes and of repartition topics.
        store_name: Base name of the two stores; default: `name`.
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
