"""What Kafka Streams in Java and this engine can take over from each other, and the metadata of offsets committed by Java.

Names, keys and values of the stores are the same on both sides. So the state itself is never rewritten. Only data that one side has
and the other does not must be derived, from rows and committed offsets.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from state.changelog import DAY_MS
from state.commit.protocols import KafkaAccess
from state.kafka.admin import KafkaAdmin
from state.kafka.librdkafka import DISABLE_VARIABLE, bulk_available
from state.kafka.topics import TopicPartition, partitions_of
from state.stores.spec import RowFormat, StoreKind
from streams.application.prepare import Application
from streams.topology.node_kind import NodeKind
from streams.topology.plan import SubTopology
from streams.topology.specs.aggregations import AggregationSpec
from streams.topology.specs.joins import GraceTableJoinSpec, StreamJoinSpec

_HEAD = struct.Struct(">bq")
_COUNT = struct.Struct(">i")
_CLOSE = struct.Struct(">q")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_WITH_CLOSES = 2
"""The metadata version that can include last closes (KIP-825); version 1 has the time only."""


@dataclass(frozen=True)
class OffsetNote:
    """The metadata of an offset that Kafka Streams commits (`TopicPartitionMetadata`): base64 of version, time and closes.

    Attributes:
        time: The largest timestamp of the partition so far, ms; -1: none.
        closes: Store of an aggregation with results on close -> the time up to which its windows were closed, ms.
    """

    time: int
    closes: Mapping[str, int] = field(default_factory=dict)

    def encode(self) -> str:
        """The text that Kafka Streams reads."""
        data = _HEAD.pack(_WITH_CLOSES, self.time)
        if self.closes:
            data += _COUNT.pack(len(self.closes))
            for store, time in sorted(self.closes.items()):
                name = store.encode()
                data += _COUNT.pack(len(name)) + name + _CLOSE.pack(time)
        return base64.b64encode(data).decode()

    @classmethod
    def decode(cls, text: str) -> OffsetNote | None:
        """Parses metadata; None if another program wrote it. Foreign bytes may follow it (`state.kafka.admin.note_of`)."""
        found = _BASE64.match(text)
        whole = found.group() if found else ""
        try:
            data = base64.b64decode(whole[: len(whole) - len(whole) % 4])
        except binascii.Error:
            return None
        if len(data) < _HEAD.size or data[0] not in (1, _WITH_CLOSES):
            return None
        version, time = _HEAD.unpack_from(data)
        return cls(time, _closes(data[_HEAD.size :]) if version == _WITH_CLOSES else {})


def _closes(data: bytes) -> dict[str, int]:
    """The close times after the time. None if the bytes are not such a list but left-over memory of librdkafka."""
    found: dict[str, int] = {}
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        for _ in range(count):
            (size,) = _COUNT.unpack_from(data, at)
            name, at = data[at + _COUNT.size : at + _COUNT.size + size].decode(), at + _COUNT.size + size
            (found[name],) = _CLOSE.unpack_from(data, at)
            at += _CLOSE.size
    except (struct.error, UnicodeDecodeError):
        return {}
    return found


# --- What cannot be taken over.

_OURS_ALONE = {
    NodeKind.KSTREAM_DEDUPLICATE: "deduplicate()",
    NodeKind.KSTREAM_RETRY: "retries",
    NodeKind.KSTREAM_ENRICH: "enrich()",
    NodeKind.KSTREAM_JOINALL: "join_all()",
    NodeKind.KSTREAM_ASOFTHIS: "as_of_join()",
    NodeKind.KTABLE_TOP: "top()",
    NodeKind.KTABLE_WINDOWAGGREGATE: "group_by_window()",
    NodeKind.KTABLE_EXPLODE: "explode()",
}
"""Operators that Kafka Streams does not have."""
_SEVERAL_CLOSE = (
    "the streams of a cogroup close windows, each by its own stream time, and Kafka Streams notes one of these"
)
_OTHER_ROWS = "Kafka Streams has no ttl of rows"


def state_of_one_side(sub: SubTopology) -> Iterator[str]:
    """The parts of a sub-topology's state that one side cannot take over from the other, each with the reason."""
    for node in sub.processors:
        kind = getattr(node.spec, "kind", None)
        if kind in _OURS_ALONE:
            yield f"'{node.name}': Kafka Streams has no {_OURS_ALONE[kind]}"
        elif isinstance(node.spec, AggregationSpec) and len(node.stores) > 1 and _shared(sub, node.stores[1]):
            yield f"'{node.name}': {_SEVERAL_CLOSE}"
        elif isinstance(node.spec, StreamJoinSpec) and node.spec.join.windows.bound is not None:
            yield f"'{node.name}': Kafka Streams has no JoinWindows.until()"
    for name, store in sub.stores.items():
        if store.spec.rows is RowFormat.WAITING:
            yield f"store '{name}': {_OTHER_ROWS}"
    for topic in sub.delays:
        yield f"topic {topic}: Kafka Streams has no retry topics"


def lost_in_java(application: Application) -> Iterator[str]:
    """The state that is in Java's topics but that Java cannot continue from.

    Kafka Streams 4.3.1 writes the keys of a join's buffer with the time first, and restores them as if the time came last
    (`RocksDBTimeOrderedKeyValueBytesStore.getWriteBatches`). So it loses the waiting records, even if it wrote them itself, and
    joins later records at once.
    """
    for prepared in application.subs:
        for node in prepared.sub.processors:
            if isinstance(node.spec, GraceTableJoinSpec):
                yield f"'{node.name}': Kafka Streams does not restore the records that wait there, not even its own"
            elif isinstance(node.spec, AggregationSpec) and len(node.stores) > 1 and not bulk_available():
                why = f"with {DISABLE_VARIABLE}=0, it cannot read up to where they were closed"
                yield f"'{node.name}': Java gives the results of closed windows again: {why}"


def _shared(sub: SubTopology, store: str) -> bool:
    return sum(store in node.stores for node in sub.processors) > 1


def one_sided(application: Application) -> list[str]:
    """The results of `state_of_one_side` for a whole application, each once."""
    return list(dict.fromkeys(why for prepared in application.subs for why in state_of_one_side(prepared.sub)))


def topics_with_unread(admin: KafkaAdmin, log: KafkaAccess, group: str, topics: Iterable[str]) -> set[str]:
    """The topics that have records after a group's offsets. Control records do not count, because Java may not commit past them."""
    places = partitions_of(admin.describe_topics(sorted(topics)))
    begins, ends, read = admin.begin_offsets(places), admin.end_offsets(places), admin.group_offsets(group, places)
    return {
        place[0] for place in places if _has_records(log, place, max(begins[place], read.get(place, 0)), ends[place])
    }


def _has_records(log: KafkaAccess, place: TopicPartition, start: int, end: int) -> bool:
    return start < end and any(len(records) for records in log.read(*place, start, end))


# --- Settings of topics.


def settings_for_java(kind: StoreKind, retention_ms: int | None) -> dict[str, str]:
    """The settings of a changelog that Kafka Streams relies on and this engine sets otherwise.

    In Kafka Streams, windows and sessions expire by the brokers' clock (`window.store.change.log.additional.retention.ms`) and are
    not trimmed.
    """
    if not kind.segmented or retention_ms is None:
        return {}
    return {"retention.ms": str(retention_ms + DAY_MS)}
