"""Options of operators: names, serdes, and how state is stored.

All are small frozen classes with Kafka Streams' names. Only the first arguments of Kafka Streams may be passed by position: the
serdes, key before value, or the name of a `Materialized` or a `Branched`. All other arguments are keywords:

    Consumed(StringSerde(), JsonSerde(), timestamp_extractor=timestamp_field("time"))
    Grouped(name="by-region", value_serde=JsonSerde())
    Materialized("delays", retention=timedelta(days=2), caching=False)

An option that is not given comes from upstream if it is known there, otherwise from the builder's defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from typing_extensions import TypedDict

from streams.errors import TopologyError
from streams.migration_hints import AnswersUnknownNames, no_such_attribute
from streams.model.timestamps import FAIL_ON_INVALID_TIMESTAMP, ConsumedRecord, TimestampExtractor
from streams.model.typing import VO, K, Partitioner, Serializer, V
from streams.model.windows import Duration, to_ms
from streams.serdes.base import Serde, check_serde
from streams.serdes.keys import as_key
from streams.topology.naming import check_name
from streams.wording import described

OFFSET_RESETS = ("earliest", "latest", "none")


def _is_serde(value: object) -> bool:
    # A class, or an object with only some of the methods, is probably meant as a serde. The check of serdes reports what is wrong.
    return hasattr(value, "serialize") or hasattr(value, "deserialize")


def _is_duration(value: object) -> bool:
    return isinstance(value, timedelta | int) and not isinstance(value, bool)


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type)


_COULD_BE: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(("name", "store_name"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("key_serde", "value_serde", "other_value_serde"), _is_serde),
    # An extractor's class is probably meant as an extractor. The builder reports what is wrong.
    "timestamp_extractor": lambda value: hasattr(value, "extract") or _is_function(value),
    "offset_reset": lambda value: value in OFFSET_RESETS if isinstance(value, str) else _is_duration(value),
    **dict.fromkeys(("partitioner", "function", "consumer"), _is_function),
    "partitions": lambda value: isinstance(value, int) and not isinstance(value, bool),
    **dict.fromkeys(("retention", "history_retention", "ttl", "grace"), _is_duration),
    **dict.fromkeys(("caching", "logging", "persistent"), lambda value: isinstance(value, bool)),
    "changelog_config": lambda value: isinstance(value, Mapping),
}
"""Field -> whether a value could be meant for it, so that an error about a positional argument can suggest its keyword."""


def fields_of(option: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The dataclass fields of an option, or of a class of options."""
    return dataclasses.fields(option)


def settings_of(option: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, value and default of each field; a required field has the default `MISSING`."""
    for one in fields_of(option):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        yield one.name, getattr(option, one.name), default


def _check_places(kind: type[Option], places: Sequence[str], given: Sequence[object]) -> None:
    """Raises `TopologyError` for a positional argument that is one too many, or cannot be meant for its position."""
    for at, value in enumerate(given):
        if at >= len(places) or not (value is None or _COULD_BE[places[at]](value)):
            raise _misplaced(kind, places, at, value)


def _misplaced(kind: type[Option], places: Sequence[str], at: int, value: object) -> TopologyError:
    name, fields = kind.__name__, [one.name for one in fields_of(kind)]
    if hasattr(value, "spec"):
        how = (
            ", and how it is stored, such as history_retention=... for a versioned table"
            if "persistent" in fields
            else ""
        )
        return TopologyError(
            f"{name} takes no store: give the store's name, as in {name}('{getattr(value, 'name', 'name')}'){how}."
        )
    wrong = f"{described(value)} is too many" if at >= len(places) else f"{places[at]} cannot be {described(value)}"
    fitting = [f"{field}=..." for field in fields if field not in places[:at] and _COULD_BE[field](value)]
    if fitting:
        instead = f"write {' or '.join(fitting)} instead"
    elif name == "Joined" and _is_serde(value):
        instead = "the other side of the join has its own serde"
    else:
        instead = f"its keywords are {', '.join(fields)}"
    return TopologyError(f"{name} takes only {', '.join(places)} without a keyword, and {wrong}: {instead}.")


class Option(AnswersUnknownNames):
    """The base of options, which are frozen dataclasses. It checks the arguments, and explains wrong ones in an error."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __new__(cls, *given: object, **settings: object) -> Option:  # noqa: D102
            fields = {one.name: one.kw_only for one in fields_of(cls)}
            if unknown := settings.keys() - fields:
                raise no_such_attribute(cls, min(unknown))
            _check_places(cls, [name for name, keyword in fields.items() if not keyword], given)
            return super().__new__(cls)

    @classmethod
    def with_(cls, *given: Any, **settings: Any) -> Any:
        """The constructor without the name, as Kafka Streams' `Consumed.with(...)`: positional arguments begin with the serdes."""
        places = [one.name for one in fields_of(cls) if one.name != "name"]
        _check_places(cls, places, given)
        return cls(**dict(zip(places, given, strict=False)), **settings)

    @classmethod
    def as_(cls, name: str, **settings: Any) -> Any:
        """The constructor with a name, as Kafka Streams' `Materialized.as(...)`."""
        return cls(**{"name": name}, **settings)

    def __post_init__(self) -> None:
        """Raises `TopologyError` for an invalid setting."""
        for setting, value, default in settings_of(self):
            if setting in ("name", "store_name") and value is not default:
                check_name(value)
            if setting.endswith("_serde") and value is not default:
                check_serde(value, f"{type(self).__name__}({setting}=...)")
        if (serde := getattr(self, "key_serde", None)) is not None:
            object.__setattr__(self, "key_serde", as_key(serde))

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value, default in settings_of(self) if value != default)
        return f"{type(self).__name__}({', '.join(shown)})"


# --- Names of operators.


@dataclass(frozen=True, repr=False)
class Named(Option):
    """The name of an operator. A plain string is accepted wherever a `Named` is."""

    name: str


NameLike: TypeAlias = str | Named | None


# --- The fields of options as keyword arguments of methods: the types of `**option`, for type checkers.
#
# `stream("in", value_serde=JsonSerde())` is short for `stream("in", Consumed(value_serde=JsonSerde()))`.


class ConsumedSettings(TypedDict, Generic[K, V], total=False):
    """The fields of `Consumed` except the name."""

    key_serde: Serde[K] | None
    value_serde: Serde[V] | None
    timestamp_extractor: Extractor | None
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


class RepartitionedKeywords(GroupedKeywords[K, V], total=False):
    """The fields of `Repartitioned`."""

    partitions: int | None
    partitioner: Partitioner | None


class JoinedKeywords(GroupedKeywords[K, V], total=False):
    """The fields of `Joined`."""

    grace: Duration | None


class MaterializedKeywords(GroupedKeywords[K, V], total=False):
    """The fields of `Materialized`."""

    retention: Duration | None
    caching: bool
    logging: bool
    changelog_config: Mapping[str, str]
    persistent: bool | None
    history_retention: Duration | None
    ttl: Duration | None


class StreamJoinedKeywords(GroupedKeywords[Any, Any], total=False):
    """The fields of `StreamJoined`."""

    other_value_serde: Serde[Any] | None
    store_name: str | None
    logging: bool
    changelog_config: Mapping[str, str]
    persistent: bool | None


# --- Options of topics: how the engine reads, writes and creates them.

Extractor: TypeAlias = (
    TimestampExtractor | Callable[[ConsumedRecord, int], int | datetime] | Callable[[ConsumedRecord], int | datetime]
)


@dataclass(frozen=True, repr=False)
class Consumed(Option, Generic[K, V]):
    """How a topic is read.

    Attributes:
        key_serde, value_serde: The serdes that read its records.
        timestamp_extractor: The source of event time; a function `fn(record, partition_time) -> epoch ms` is accepted, too.
        offset_reset: Where to begin without a committed offset: `"earliest"`, `"latest"`, `"none"`, or a duration, which begins
            with records that are at most that old at the first start (KIP-1106); None: the application's setting.
        name: The name of the source node.
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    timestamp_extractor: Extractor = FAIL_ON_INVALID_TIMESTAMP
    offset_reset: Literal["earliest", "latest", "none"] | Duration | None = None
    _: KW_ONLY
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.offset_reset, str):
            if self.offset_reset not in OFFSET_RESETS:
                raise TopologyError(
                    f"offset_reset must be earliest, latest, none or a duration, not {self.offset_reset!r}."
                )
        elif self.offset_reset is not None and to_ms(self.offset_reset, "offset_reset") < 0:
            raise TopologyError(f"offset_reset must not be negative, but is {self.offset_reset}.")

    @property
    def reset_policy(self) -> str | None:
        """The `offset_reset` in the form that a `SourceNode` has; a duration becomes `duration:<ms>`."""
        if self.offset_reset is None or isinstance(self.offset_reset, str):
            return self.offset_reset
        return f"duration:{to_ms(self.offset_reset, 'offset_reset')}"


@dataclass(frozen=True, repr=False)
class Produced(Option, Generic[K, V]):
    """How a topic is written.

    Attributes:
        key_serde, value_serde: The serdes that write the records.
        partitioner: `fn(topic, key, value, number_of_partitions)` returns a partition, counted from 0; a collection of
            partitions, each of which gets the record once (KIP-837); an empty collection, to drop and count the record;
            or None for Kafka's default, murmur2 of the key. Only for the topics of `to`.
        name: The name of the sink node.
    """

    key_serde: Serializer[K] | None = None
    value_serde: Serializer[V] | None = None
    partitioner: Partitioner | None = None
    _: KW_ONLY
    name: str | None = None


@dataclass(frozen=True, repr=False)
class Grouped(Option, Generic[K, V]):
    """How a stream is grouped. `name` is the name of the repartition topic, if one is needed."""

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    _: KW_ONLY
    name: str | None = None


@dataclass(frozen=True, repr=False)
class Repartitioned(Option, Generic[K, V]):
    """How a repartition topic is created and written. By default it has as many partitions as the writer has tasks."""

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    _: KW_ONLY
    partitions: int | None = None
    partitioner: Partitioner | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partitions is not None and self.partitions < 1:
            raise TopologyError(f"A repartition topic needs at least one partition, not {self.partitions}.")


# --- Options of tables and joins, mainly of their stores.


@dataclass(frozen=True, repr=False)
class Materialized(Option, Generic[K, V]):
    """How a table's state is stored.

    Attributes:
        name: The store's name, which is also part of its changelog's name and used by interactive queries.
        key_serde, value_serde: The serdes of the table's keys and values.
        retention: How long a windowed store retains a window, at least size + grace (the default).
        caching: True: only the last value of a key in each step is sent downstream; False: every update is.
        logging: Whether the store has a changelog. Without it, the state cannot be restored.
        changelog_config: Topic settings of the changelog, which override the engine's.
        persistent: True: RocksDB; False: in memory; None: the setting of the `StreamsBuilder`.
        history_retention: How far back a versioned store can look (KIP-889), so that joins read the table as of a record's
            timestamp; a versioned table has no cache.
        ttl: How long after its last update, in stream time, a row is deleted, also downstream. Only for tables that are read
            from a topic or made from a stream.
    """

    name: str | None = None
    _: KW_ONLY
    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    retention: Duration | None = None
    caching: bool = True
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None
    history_retention: Duration | None = None
    ttl: Duration | None = None


Stored: TypeAlias = NameLike | Materialized[K, V]
"""The name of an operator or the options of its table's store. A method that takes both also takes the store's options alone."""

Groups: TypeAlias = NameLike | Grouped[K, V]
"""The name of an operator or of a repartition topic, or the options of the groups, as `Stored` for tables."""


@dataclass(frozen=True, repr=False)
class Joined(Option, Generic[K, V]):
    """How a stream is joined with a table.

    Attributes:
        key_serde, value_serde: The serdes of the stream.
        name: The name of the join, of its repartition topic and of its buffer.
        grace: How long a record of the stream waits for late updates of the table, which must be versioned (KIP-923).
    """

    key_serde: Serde[K] | None = None
    value_serde: Serde[V] | None = None
    _: KW_ONLY
    name: str | None = None
    grace: Duration | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grace is not None and to_ms(self.grace, "Joined(grace=...)") < 0:
            raise TopologyError(f"Joined(grace=...) must not be negative, but is {self.grace}.")


@dataclass(frozen=True, repr=False)
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
    _: KW_ONLY
    name: str | None = None
    store_name: str | None = None
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    persistent: bool | None = None


# --- `Retry`: how records are tried again later if an operator fails on them.


@dataclass(frozen=True)
class Retry:
    """Retries a record after one or more delays, and sends it to a dead-letter topic if the last attempt fails.

    A record that fails is written to a retry topic of the application, in the transaction of the step in which it failed. It is
    read again once the topic's delay has passed; until then, the other records continue. Each delay has its own retry topic.

    Example:
        >>> retry = Retry([1_000, 10_000, timedelta(minutes=1)], dead_letters="orders.dlq", keep_order=True)
        >>> orders.process_values(Ship, named="ship", on_error=retry)

    Args:
        delays: How long a record waits before each further attempt: each a `timedelta` or milliseconds.
        dead_letters: The topic for records that have failed in all attempts. It must exist.
        keep_order: Whether later records of a key wait behind its failed records. Records without a key never wait.

    Raises:
        TopologyError: There is no delay, a delay is negative, or there is no topic.
    """

    delays: Sequence[Duration]
    dead_letters: str
    keep_order: bool = False
    delays_ms: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.delays, str | bytes) or not isinstance(self.delays, Sequence) or not self.delays:
            raise TopologyError(
                f"Retry takes a list with the delay before each further attempt, such as Retry([1_000, 60_000], ...), not "
                f"{self.delays!r}."
            )
        if not isinstance(self.dead_letters, str) or not self.dead_letters:
            raise TopologyError(
                f"Retry(dead_letters=...) is the name of the topic for records that have failed in all attempts, not "
                f"{self.dead_letters!r}."
            )
        delays = tuple(to_ms(delay, "A delay of Retry") for delay in self.delays)
        if min(delays) < 0:
            raise TopologyError(f"A delay of Retry must not be negative, as in {list(self.delays)!r}.")
        object.__setattr__(self, "delays_ms", delays)
