"""What can be said about an operator besides its functions: names, serdes, how its state is kept.

Small frozen value classes with Kafka Streams' names, made with keyword arguments::

    Consumed(value_serde=JsonSerde(), timestamp_extractor=timestamp_field("time"))
    Materialized(name="delays", retention=timedelta(days=2), caching=False)

Whatever is left out is taken from upstream where that is known, else from the builder's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from streams.errors import TopologyError
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, ConsumedRecord, TimestampExtractor
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde
from streams.topology.naming import check_name

if TYPE_CHECKING:
    from streams.dsl.kstream import KStream

Partitioner: TypeAlias = Callable[[str, Any, Any, int], "int | Collection[int] | None"]


Option = TypeVar("Option")


class _Checked:
    """Checks names and serdes, if there are any."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for option in ("name", "store_name"):
            name = getattr(self, option, None)
            if name is not None:
                check_name(name)
        for option in ("key_serde", "value_serde", "other_value_serde"):
            serde = getattr(self, option, None)
            if serde is not None and (isinstance(serde, type) or not isinstance(serde, Serde)):
                raise TopologyError(
                    f"{type(self).__name__}({option}=...) takes a serde such as StringSerde(), not {serde!r}."
                )


@dataclass(frozen=True)
class Named(_Checked):
    """The name of an operator. Wherever a ``Named`` is taken, a plain string is too."""

    name: str


@dataclass(frozen=True)
class Consumed(_Checked):
    """How a topic is read.

    Attributes:
        key_serde, value_serde: how its records were written.
        timestamp_extractor: where event time comes from; also a function ``fn(record, partition_time) -> epoch ms``.
        offset_reset: where to begin without a committed position: ``"earliest"``, ``"latest"``, ``"none"``, or a duration: with
            the records that are no older than that at the first start (KIP-1106); None: the application's setting.
        name: of the source node.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamp_extractor: TimestampExtractor | Callable[[ConsumedRecord, int], int] = FAIL_ON_INVALID_TIMESTAMP
    offset_reset: Literal["earliest", "latest", "none"] | Duration | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.offset_reset, str):
            if self.offset_reset not in ("earliest", "latest", "none"):
                raise TopologyError(
                    f"offset_reset must be earliest, latest, none or a duration, not {self.offset_reset!r}."
                )
        elif self.offset_reset is not None and to_ms(self.offset_reset, "offset_reset") < 0:
            raise TopologyError(f"offset_reset must not be negative, but is {self.offset_reset}.")

    @property
    def reset_policy(self) -> str | None:
        """The same as ``SourceNode.offset_reset`` has it: a duration is ``duration:<ms>``."""
        if self.offset_reset is None or isinstance(self.offset_reset, str):
            return self.offset_reset
        return f"duration:{to_ms(self.offset_reset, 'offset_reset')}"


@dataclass(frozen=True)
class Produced(_Checked):
    """How a topic is written.

    Attributes:
        key_serde, value_serde: how.
        partitioner: ``fn(topic, key, value, number of partitions)`` gives a partition from 0 on; a collection of several: the
            record goes to each once (KIP-837); an empty one: it is dropped and counted; None: by the key's murmur2, as
            Kafka does, and as without a partitioner. Only for topics that are named in ``to``.
        name: of the sink node.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitioner: Partitioner | None = None
    name: str | None = None


@dataclass(frozen=True)
class Grouped(_Checked):
    """How a stream is grouped; ``name`` names the repartition topic, where one is needed."""

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    name: str | None = None


@dataclass(frozen=True)
class Repartitioned(_Checked):
    """How a repartition topic is made and written; ``partitions`` None: as many as the writer has tasks."""

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    partitions: int | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partitions is not None and self.partitions < 1:
            raise TopologyError(f"A repartition topic needs at least one partition, not {self.partitions}.")


@dataclass(frozen=True)
class Materialized(_Checked):
    """How a table's state is kept.

    Attributes:
        name: of the store, and so of its changelog; what interactive queries ask for.
        key_serde, value_serde: of what is in it.
        retention: how long a windowed store keeps a window, at least size + grace (the default).
        caching: True: the last value of a key per step goes downstream; False: every update does.
        logging: whether there is a changelog. Without one, state cannot be restored.
        changelog_config: topic settings of the changelog that win over the engine's.
        persistent: True: RocksDB; False: in memory; None: as the ``StreamsBuilder`` says.
        history_retention: keeps a table in a versioned store that can tell how it was up to this long ago (KIP-889), so
            that joins see it as of a record's time; such a table has no cache.
        ttl: deletes a row, downstream too, when stream time is this far past its last update; for tables that are read or
            made of a stream.
    """

    name: str | None = None
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    retention: Duration | None = None
    caching: bool = True
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None
    history_retention: Duration | None = None
    ttl: Duration | None = None


@dataclass(frozen=True)
class Joined(_Checked):
    """How a stream is joined with a table.

    Attributes:
        key_serde, value_serde: of the stream.
        name: of the join, of a repartition topic and of the buffer.
        grace: how long a record of the stream waits for late updates of the table, which must be versioned (KIP-923).
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    name: str | None = None
    grace: Duration | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grace is not None and to_ms(self.grace, "Joined(grace=...)") < 0:
            raise TopologyError(f"Joined(grace=...) must not be negative, but is {self.grace}.")


@dataclass(frozen=True)
class StreamJoined(_Checked):
    """How two streams are joined.

    Attributes:
        key_serde: of both sides.
        value_serde, other_value_serde: of this and of the other side, in their stores.
        name: of the join's nodes and of repartition topics.
        store_name: base name of the two stores; default: ``name``.
        logging, changelog_config, persistent: as in ``Materialized``.
    """

    key_serde: Serde | None = None
    value_serde: Serde | None = None
    other_value_serde: Serde | None = None
    name: str | None = None
    store_name: str | None = None
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None


@dataclass(frozen=True)
class Branched(_Checked):
    """What becomes of a branch.

    Attributes:
        name: its name in the resulting dict, behind the split's name; default: its number, 0 for the default branch.
        function: gets the branch's stream; the stream it gives back takes the branch's place in the dict.
        consumer: gets the branch's stream, which is then left out of the dict.
    """

    name: str | None = None
    function: Callable[[KStream], KStream | None] | None = None
    consumer: Callable[[KStream], object] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.function is not None and self.consumer is not None:
            raise TopologyError(
                "A branch has either a function or a consumer: Branched(function=...) or Branched(consumer=...)."
            )


NameLike: TypeAlias = str | Named | None


def option(given: Option | None, kind: type[Option]) -> Option:
    """The option, checked; that of no wishes if none is given."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        raise TopologyError(f"Here belongs a {kind.__name__}(...), not {given!r}.")
    return given


def plain_name(named: NameLike) -> str | None:
    """The name as a string, checked; None if there is none."""
    if isinstance(named, Named):
        return named.name
    return None if named is None else check_name(named)
