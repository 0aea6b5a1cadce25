"""A changelog in memory, and a random life of a task's stores that writes one."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from state.changelog import DELETE_RETENTION_MS, changelog_topic
from state.columns import RecordColumns
from state.commit.digest import StepDigest
from state.commit.marker import MARKER_KEY, CommitMarker
from state.errors import KafkaClientError
from state.kafka.topics import TopicInfo
from state.restore.plan import RestoreTarget
from state.stores.changelog_records import ChangelogBatch
from state.stores.codec import timestamped
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore

APPLICATION = "app"
SPECS = [
    StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE),
    StoreSpec("plain", StoreKind.KEY_VALUE),
    StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=100, segment_ms=10),
    StoreSpec("join", StoreKind.WINDOW, retention_ms=100, segment_ms=10, retain_duplicates=True),
    StoreSpec("sessions", StoreKind.SESSION, retention_ms=100, segment_ms=10),
    StoreSpec("versions", StoreKind.VERSIONED, retention_ms=1000),
]


class MemoryLogs:
    """Changelog partitions of one task; every step ends with a control record, as Kafka's transactions do."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, bytes, bytes | None, int]]] = {}
        self.ends: dict[str, int] = {}
        self.begins: dict[str, int] = {}
        self.ids: dict[str, str] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.fail_after: int | None = None
        self.reads = 0
        self.run = 7

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {name: self.topics[name] for name in names if name in self.topics}

    def append(self, topic: str, batch) -> int:
        """Adds records and a control record; gives the offset after the records."""
        end = self.ends.get(topic, 0)
        rows = zip(batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True)
        for key, value, timestamp in rows:
            self.records.setdefault(topic, []).append((end, key, value, timestamp))
            end += 1
        self.ends[topic] = end + 1
        return end

    def append_marker(self, topic: str, marker: CommitMarker) -> None:
        """Adds a commit marker and a control record."""
        self.append(topic, ChangelogBatch(*binary([MARKER_KEY], [marker.to_bytes()], [1])))

    def begin_offset(self, partition: tuple[str, int]) -> int:
        return self.begins.get(partition[0], 0)

    def end_offsets(self, partitions: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {partition: self.ends.get(partition[0], 0) for partition in partitions}

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        return {topic: self.ids.get(topic, "id") for topic in topics}

    def delete_retention_ms(self, topic: str) -> int:
        return DELETE_RETENTION_MS

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[RecordColumns]:
        rows = [row for row in self.records.get(topic, []) if max(start, self.begin_offset((topic, 0))) <= row[0] < end]
        for first in range(0, len(rows), self.run):
            if self.fail_after is not None and self.reads >= self.fail_after:
                raise KafkaClientError("the broker went away")
            self.reads += 1
            yield columns(topic, partition, rows[first : first + self.run])


def binary(keys, values, timestamps):
    """The columns of some records."""
    return pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.array(timestamps, np.int64)


def columns(topic, partition, rows) -> RecordColumns:
    return RecordColumns(
        topic,
        partition,
        np.array([row[0] for row in rows], np.int64),
        np.array([row[3] for row in rows], np.int64),
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array([row[2] for row in rows], pa.binary()),
    )


def write_random(store: TaskStore, rng, now: int) -> None:
    """Some writes of every kind around a stream time."""
    for _ in range(rng.randrange(12)):
        key = rng.choice([b"", b"a", b"ab", b"\xff", b"k%d" % rng.randrange(6)])
        value = rng.choice([None, b"", b"v%d" % rng.randrange(1000)])
        # Not 0: librdkafka takes that timestamp for "now".
        start = max(1, now - rng.randrange(90))
        local = None if value is None else timestamped(value, start)
        store.store("table").put(key, local, start)
        store.store("plain").put(key, value, start)
        store.store("windows").put(key, start, local, start)
        store.store("join").put(key, start, value, start)
        store.store("sessions").put(key, max(0, start - 5), start, value, start)
        store.store("versions").put(key, value, start)


def commit(store: TaskStore, logs: MemoryLogs, version: int, now_ms: int | None = None) -> RestoreTarget:
    """Commits a step: first the log, then the store."""
    now_ms = version * 1000 if now_ms is None else now_ms
    changelog = dict(store.changelog())
    before = {name: logs.ends.get(changelog_topic(APPLICATION, name), 0) for name in store.logged_stores}
    ends = before | {name: logs.append(changelog_topic(APPLICATION, name), batch) for name, batch in changelog.items()}
    digest = StepDigest()
    for name, batch in changelog.items():
        digest.add(name, batch)
    ids = {name: logs.ids.get(changelog_topic(APPLICATION, name), "id") for name in store.logged_stores}
    store.apply(StorePosition("query", version, ends, now_ms, ids))
    return RestoreTarget(
        "query",
        version,
        ends,
        written_ms=now_ms,
        expired_before=store.expired_before,
        changelog_records=digest.records,
        changelog_hash=digest.hexdigest(),
        changelog_begins=before,
        changelog_ids=ids,
    )


def marker_of(target: RestoreTarget) -> CommitMarker:
    """The marker of a step of task 0."""
    return CommitMarker(
        query_id=target.query_id,
        task=0,
        tasks=1,
        topology_hash="hash",
        version=target.version,
        batch_id=1,
        batch="",
        ranges={},
        topic_ids={},
        stream_time=0,
        operator_state={},
        changelog_ends=target.changelog_ends,
        counts={"changelog": target.changelog_records},
        changelog_hash=target.changelog_hash,
        changelog_begins=target.changelog_begins,
        changelog_ids=target.changelog_ids,
        now_ms=target.written_ms,
        expired_before=target.expired_before,
    )
