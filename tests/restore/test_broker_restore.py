"""Restores from a real broker's changelogs: transactions, aborted ones, trimmed and compacted logs."""

import random
import time

import pytest
from confluent_kafka import Producer

from state.changelog import changelog_topic, ensure_changelogs, trim_targets
from state.commit.digest import StepDigest
from state.kafka.admin import KafkaAdmin, delete_if_possible, wait_until_decided
from state.kafka.reader import open_range_reader
from state.restore.plan import RestoreTarget
from state.restore.restorer import Restorer
from state.stores.dump import state_digest
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore, open_task_store
from state.tables.table import MemoryTable
from tests.restore.logs import SPECS, write_random

TASK = 1
NOW = 1_700_000_000_000


class Application:
    """Steps of one task with real changelogs; each step is a transaction, and sometimes one is aborted before it."""

    def __init__(self, broker, name, specs=SPECS):
        self.config = {"bootstrap.servers": broker.bootstrap_servers}
        self.admin = KafkaAdmin(self.config)
        self.name = name
        self.specs = specs
        ensure_changelogs(self.admin, specs, name, tasks=2)
        self.producer = Producer({**self.config, "transactional.id": name})
        self.producer.init_transactions()
        self.store = TaskStore(MemoryTable(), specs)
        self.version = 0
        self.next_offset = {}

    def topic(self, store):
        return changelog_topic(self.name, store)

    def commit(self):
        changelog = dict(self.store.changelog())
        begins = self.end_offsets([(self.topic(spec.name), TASK) for spec in self.specs])
        self.version += 1
        if self.version % 3 == 0:
            self.send(changelog, junk=True)
            self.producer.abort_transaction()
        self.send(changelog)
        self.producer.commit_transaction()
        offsets = {spec.name: self.next_offset.get(self.topic(spec.name), 0) for spec in self.specs}
        ids = {
            spec.name: topic_id for spec in self.specs for topic_id in self.topic_ids([self.topic(spec.name)]).values()
        }
        self.store.apply(StorePosition("query", self.version, offsets, NOW, ids))
        digest = StepDigest()
        for name, batch in changelog.items():
            digest.add(name, batch)
        return RestoreTarget(
            "query",
            self.version,
            offsets,
            NOW,
            self.store.expired_before,
            digest.records,
            digest.hexdigest(),
            {topic.removeprefix(f"{self.name}-").removesuffix("-changelog"): end for (topic, _), end in begins.items()},
            ids,
        )

    def send(self, changelog, junk=False):
        self.producer.begin_transaction()
        for name, batch in changelog.items():
            rows = zip(batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True)
            for key, value, timestamp in rows:
                data = b"junk" if junk else value
                self.producer.produce(self.topic(name), data, key, TASK, self.delivered, timestamp=timestamp)
        self.producer.flush()

    def delivered(self, error, message):
        assert error is None
        self.next_offset[message.topic()] = message.offset() + 1

    # What a restore reads from.
    def begin_offset(self, partition):
        return self.admin.begin_offsets([partition])[partition]

    def end_offsets(self, partitions):
        # A commit returns before its control records are written.
        return wait_until_decided(self.admin, partitions, 120)

    def topic_ids(self, topics):
        return {name: info.topic_id for name, info in self.admin.describe_topics(topics).items()}

    def delete_retention_ms(self, topic):
        return int(self.admin.topic_config(topic)["delete.retention.ms"])

    def read(self, topic, partition, start, end):
        if start >= end:
            return
        reader = open_range_reader(self.config, topic, partition, start)
        try:
            yield from reader.read(end)
        finally:
            reader.close()

    def restored(self, path, target):
        store = open_task_store(path, self.specs)
        report = Restorer(self, self.name, TASK).restore_to(store, target, now_ms=target.written_ms)
        return store, report

    def digests(self, store):
        return {spec.name: state_digest(store, spec.name) for spec in self.specs}

    def close(self):
        self.admin.close()
        del self.producer


@pytest.fixture
def application(broker, request):
    started = []

    def start(name, specs=SPECS):
        started.append(Application(broker, name, specs))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_live_restored_and_rolled_forward_are_equal(application, tmp_path):
    app = application("equal")
    rng = random.Random(1)
    for version in range(1, 11):
        write_random(app.store, rng, now=version * 20)
        if version == 9:
            for name in ("windows", "join", "sessions"):
                app.store.expire(name, 80)
        target = app.commit()
    restored, report = app.restored(tmp_path, target)
    assert app.digests(restored) == app.digests(app.store)
    assert restored.position == app.store.position
    assert report.records > 0
    restored.close()
    write_random(app.store, rng, now=220)
    app.store.store("table").put(b"sure", None, 220)
    target = app.commit()
    restored, report = app.restored(tmp_path, target)
    assert app.digests(restored) == app.digests(app.store)
    assert report.records == target.changelog_records
    restored.close()


def test_trimmed_changelogs_hold_what_live_segments_need(application, tmp_path):
    app = application("trimmed")
    rng = random.Random(2)
    for version in range(1, 11):
        write_random(app.store, rng, now=version * 20)
        for name in ("windows", "join", "sessions"):
            app.store.expire(name, version * 20 - 100)
        target = app.commit()
    targets = trim_targets(app.specs, app.store.trim_offsets, app.name, TASK)
    assert {topic for topic, _ in targets} == {app.topic(name) for name in ("windows", "join", "sessions")}
    delete_if_possible(app.admin, targets, {})
    assert app.admin.begin_offsets(list(targets)) == targets
    restored, _ = app.restored(tmp_path, target)
    assert app.digests(restored) == app.digests(app.store)
    restored.close()


def test_compacted_changelog_gives_the_same_store(application, tmp_path):
    spec = StoreSpec(
        "table",
        StoreKind.KEY_VALUE,
        # The smallest segments that Kafka allows, cleaned as soon as they are rolled.
        changelog_config={
            "segment.bytes": str(1 << 20),
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "1",
            # Longer than any restore of this test takes: a reader between a put and its deletion must still find that.
            "delete.retention.ms": "60000",
            "segment.ms": "100",
        },
    )
    app = application("compacted", [spec])
    table = app.store.store("table")
    for version in range(1, 9):
        for i in range(300):
            gone = (i + version) % 3 == 0
            table.put(b"%d" % i, None if gone else b"%d" % version * 1000, version)
        target = app.commit()
    written = target.changelog_ends["table"]
    deadline = time.monotonic() + 150
    topic = app.topic("table")
    while True:
        restored, report = app.restored(tmp_path / str(time.monotonic()), target)
        digest = state_digest(restored, "table")
        restored.close()
        assert digest == state_digest(app.store, "table")
        if report.records < written // 2:
            break
        assert time.monotonic() < deadline, f"{topic} was not compacted: {report.records} of {written} records are left"
        time.sleep(0.5)
        # Segments roll only when something is written.
        table.put(b"roll", b"%d" % app.version, 9)
        target = app.commit()


def test_an_aborted_tail_and_an_empty_log_give_the_store_of_the_last_commit(application, tmp_path):
    app = application("odd", [StoreSpec("table", StoreKind.KEY_VALUE), StoreSpec("empty", StoreKind.KEY_VALUE)])
    table = app.store.store("table")
    for number in range(10):
        table.put(b"%d" % number, b"value", 1)
    target = app.commit()
    table.put(b"never", b"committed", 1)
    app.send(dict(app.store.changelog()), junk=True)
    app.producer.abort_transaction()
    app.store.discard()
    restored, report = app.restored(tmp_path, target)
    assert report.records == 10
    assert app.digests(restored) == app.digests(app.store)
    restored.close()
