"""The description of a store: name, kind, retention, storage. Pure data, part of the topology and of its hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

MIN_SEGMENT_MS = 60_000


class StoreKind(str, Enum):
    """Kinds of stores, which differ in the form of keys and values, hence in the changelog."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped-key-value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped-window"
    SESSION = "session"
    VERSIONED = "versioned"

    @property
    def timestamped(self) -> bool:
        """Whether a local value is `timestamp(8) ∥ value` while the changelog has the bare value."""
        return self in (StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.TIMESTAMPED_WINDOW)

    @property
    def windowed(self) -> bool:
        """Whether keys contain a window start and a sequence number."""
        return self in (StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW)

    @property
    def segmented(self) -> bool:
        """Whether rows are in time segments that are dropped as a whole."""
        return self.windowed or self is StoreKind.SESSION


class RowFormat(str, Enum):
    """The format of the rows of an internal store."""

    WITH_HEADERS = "rows with headers"
    """The changelog record has the headers and the value separately (KIP-1271). Local value: `length of headers(4) ∥ headers ∥
    value`, in a timestamped store after the timestamp."""
    WAITING = "rows that wait for their deadline"
    """Key `time(8) ∥ side(1) ∥ key ∥ number(8)`, value `side(1) ∥ length of headers(4) ∥ headers ∥ value`."""
    BUFFERED = "records that wait for late updates of a table"
    """As in Kafka Streams: key `0 ∥ time(8) ∥ key ∥ number(4)`, value as in `buffer_values`."""
    UNMATCHED = "records of a join of streams that have no partner yet"
    """As in Kafka Streams (`unmatched_lists`)."""
    SUPPRESSED = "updates that are held back by suppress"
    """As in Kafka Streams (`suppressed_rows`). Before 1.0: key `time(8) ∥ key`, value `timestamp(8) ∥ four lengths(4) ∥ prior ∥
    old ∥ new ∥ headers ∥ topic`, which are read."""
    SUBSCRIPTION = "subscriptions of a foreign-key join"
    """Key `length(4) ∥ foreign key ∥ primary key`, value as `SubscriptionWrapperSerde` of Kafka Streams writes it."""


NO_HASH = 0x80
"""The bit for "no hash", in the byte with the version of a subscription or response."""
HASH_BYTES, PARTITION_BYTES = 16, 4
SUBSCRIPTION_VERSIONS = (0, 1)
"""Version 1 ends with the partition of the primary key, in `PARTITION_BYTES` (KAFKA-13261)."""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """One store of a topology.

    Attributes:
        name: Unique in the application; part of the changelog's name.
        kind: Form of keys and values.
        retention_ms: How long rows of a windowed, session or versioned store matter, ms of stream time.
        segment_ms: Width of a segment, ms; default as in Kafka Streams: half the retention, at least a minute.
        retain_duplicates: A window store that keeps every row of a (key, start), as joins need.
        persistent: RocksDB; False = memory, restored from the changelog whenever the process starts. None = not decided yet;
            decided before anything is stored.
        logged: Whether there is a changelog; without one the store cannot be restored.
        changelog_config: Topic settings that take precedence over the engine's.
        rows: The format of an internal store's rows, which a restore checks; None: any bytes are a row.
    """

    name: str
    kind: StoreKind
    retention_ms: int | None = None
    segment_ms: int | None = None
    retain_duplicates: bool = False
    persistent: bool | None = True
    logged: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)
    rows: RowFormat | None = None

    def __post_init__(self) -> None:
        """Validates the fields against one another."""
        needs_retention = self.kind.segmented or self.kind is StoreKind.VERSIONED
        if needs_retention and (self.retention_ms is None or self.retention_ms < 0):
            raise ValueError(
                f"store {self.name!r}: a {self.kind.value} store needs retention_ms >= 0, got {self.retention_ms}"
            )
        if self.segment_ms is not None and self.segment_ms < 1:
            raise ValueError(f"store {self.name!r}: segment_ms must be at least 1, got {self.segment_ms}")
        if self.retain_duplicates and self.kind is not StoreKind.WINDOW:
            raise ValueError(f"store {self.name!r}: only window stores without timestamps can retain duplicates")

    @property
    def segment_width_ms(self) -> int:
        """Width of a segment in ms (Kafka Streams: `max(retention / 2, 60 s)`)."""
        if self.segment_ms is not None:
            return self.segment_ms
        return max((self.retention_ms or 0) // 2, MIN_SEGMENT_MS)
