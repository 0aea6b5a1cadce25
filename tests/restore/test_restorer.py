"""When a local store is trusted, and when it is not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from state.changelog import DELETE_RETENTION_MS, changelog_topic
from state.errors import KafkaClientError, RestoreError
from state.restore import restorer as loading
from state.restore.plan import Action, LogRange, RestoreTarget, plan_restore
from state.restore.restorer import Restorer
from state.stores.dump import state_digest
from state.stores.position import StoreOrigin
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import StorePosition, TaskStore, open_task_store
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, write_random

TABLE = StoreSpec("s", StoreKind.KEY_VALUE)
JOIN = StoreSpec("s", StoreKind.WINDOW, retention_ms=1, retain_duplicates=True)
MAX_AGE_MS = DELETE_RETENTION_MS // 2
NOW = 10 * MAX_AGE_MS
TARGET = RestoreTarget("query", 5, {"s": 100}, written_ms=NOW, changelog_ids={"s": "id"})


HERE = StoreOrigin("query", "id", NOW)
LOG = LogRange(0, 101, "id")


def plan(origin=HERE, offset=90, log=LOG, spec=TABLE, target=TARGET):
    offsets = {} if offset is None else {"s": offset}
    origins = {} if origin is None else {"s": origin}
    (one,) = plan_restore([spec], origins, offsets, target, {"s": log}, now_ms=NOW)
    return one


def test_behind_reads_the_tail():
    one = plan()
    assert (one.action, one.start, one.end) == (Action.TAIL, 90, 100)


def test_up_to_date_reads_nothing():
    assert plan(offset=100).action is Action.NOTHING


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": None, "origin": None}, "no local state"),
        ({"origin": None}, "does not say where it comes from"),
        ({"origin": StoreOrigin("other", "id", NOW)}, "comes from query other"),
        ({"origin": StoreOrigin("query", "id-0", NOW)}, "with id id-0, this one has id"),
        ({"offset": 101}, "is ahead"),
        ({"log": LogRange(95, 101, "id")}, "starts at 95"),
        ({"origin": StoreOrigin("query", "id", NOW - MAX_AGE_MS - 1)}, "tombstones may be gone"),
        ({"origin": StoreOrigin("query", "id", NOW - 1001), "log": LogRange(0, 101, "id", 2000)}, "1 s old"),
        ({"origin": StoreOrigin("query", "id", NOW + 86_400_000)}, "86400 s newer than the clock of this host"),
    ],
)
def test_distrusted_stores_are_restored_from_the_start(change, reason):
    one = plan(**change)
    assert one.action is Action.FROM_START
    assert reason in one.reason
    assert one.start == change.get("log", LogRange(0, 0)).begin


def test_age_matters_only_where_tombstones_can_vanish():
    old = StoreOrigin("query", "id", NOW - MAX_AGE_MS - 1)
    assert plan(origin=old, spec=JOIN).action is Action.TAIL
    assert plan(origin=old, offset=100).action is Action.NOTHING


def test_what_is_not_known_of_a_topic_is_not_compared():
    assert plan(origin=StoreOrigin("query", "", NOW)).action is Action.TAIL
    assert plan(log=LogRange(0, 101)).action is Action.TAIL
    assert plan(target=replace(TARGET, changelog_ids={})).action is Action.TAIL


def test_a_changelog_that_was_created_again_and_has_grown_is_an_error():
    with pytest.raises(RestoreError, match=r"created again after step 5: its id was id, now it is id-2"):
        plan(log=LogRange(0, 101, "id-2"))


def test_a_store_without_a_log_is_emptied_if_it_is_foreign():
    spec = StoreSpec("s", StoreKind.KEY_VALUE, logged=False)
    (one,) = plan_restore([spec], {"s": StoreOrigin("other")}, {}, TARGET, {}, now_ms=NOW)
    assert (one.action, one.start, one.end) == (Action.FROM_START, 0, 0)
    assert plan_restore([spec], {"s": HERE}, {}, TARGET, {}, now_ms=NOW) == []


def test_a_log_shorter_than_the_marker_says_is_an_error():
    with pytest.raises(RestoreError, match=r"ends at offset 99.*says 100"):
        plan(log=LogRange(0, 99, "id"))


def test_a_whole_log_that_was_trimmed():
    one = plan(offset=None, origin=None, log=LogRange(101, 101, "id"))
    assert (one.start, one.end) == (100, 100)


# --- A restored store equals the live one byte for byte, wherever the restore starts and however often it is cut short.


class Progress:
    def __init__(self):
        self.started = []
        self.batches = []

    def on_start(self, store, task, offsets):
        self.started.append((store, task, offsets))

    def on_batch(self, store, task, records, bytes_, remaining):
        self.batches.append((store, task, records, bytes_, remaining))


def live_store(seed, steps=30, logs=None):
    """A store that lived through random steps, its logs, and the targets and copies of the way."""
    rng = random.Random(seed)
    logs = logs or MemoryLogs()
    store = TaskStore(MemoryTable(), SPECS)
    target = None
    for version in range(1, steps + 1):
        write_random(store, rng, now=version * 20)
        if version % 4 == 0:
            for name in ("windows", "join", "sessions"):
                store.expire(name, version * 20 - 100)
        target = commit(store, logs, version)
    return store, logs, target


def digests(store):
    return {spec.name: state_digest(store, spec.name) for spec in SPECS}


def bring(store, logs, target, now_ms=None, **options):
    now_ms = target.written_ms if now_ms is None else now_ms
    return Restorer(logs, APPLICATION, 0, **options).restore_to(store, target, now_ms=now_ms)


@pytest.mark.parametrize("seed", range(4))
def test_from_the_start(seed, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_RECORDS", 20)
    live, logs, target = live_store(seed)
    progress = Progress()
    restored = open_task_store(tmp_path, SPECS)
    report = bring(restored, logs, target, listener=progress)
    assert digests(restored) == digests(live)
    assert restored.position == live.position
    assert restored.expired_before == live.expired_before
    assert {store.action for store in report.stores} == {Action.FROM_START}
    assert (
        report.records == sum(len(records) for records in logs.records.values()) == sum(b[2] for b in progress.batches)
    )
    assert report.bytes == sum(b[3] for b in progress.batches) > 0
    assert [b[4] for b in progress.batches if b[0] == "table"][-1] == 0
    # What a restore leaves is what the next step needs: the same writes give the same bytes.
    for store in (live, restored):
        write_random(store, random.Random(99), now=620)
    assert {n: b.keys for n, b in dict(live.changelog()).items()} == {
        n: b.keys for n, b in dict(restored.changelog()).items()
    }
    live.apply(StorePosition("query", 31, {}))
    restored.apply(StorePosition("query", 31, {}))
    assert digests(restored) == digests(live)
    restored.close()


@pytest.mark.parametrize("seed", range(4))
def test_tail_after_the_last_steps_were_lost(seed):
    logs = MemoryLogs()
    store, _, old = live_store(seed, steps=10, logs=logs)
    behind = TaskStore(MemoryTable(), SPECS)
    bring(behind, logs, old)
    rng = random.Random(seed)
    for version in range(11, 20):
        write_random(store, rng, now=version * 20)
        target = commit(store, logs, version)
    report = bring(behind, logs, target)
    assert {s.action for s in report.stores} <= {Action.TAIL, Action.NOTHING}
    assert digests(behind) == digests(store)
    assert bring(behind, logs, target).stores == (), "nothing is left to do"


def test_cut_short_it_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CHUNK_RECORDS", 20)
    live, logs, target = live_store(5)
    whole = TaskStore(MemoryTable(), SPECS)
    bring(whole, logs, target)
    needed = logs.reads
    restored = open_task_store(tmp_path, SPECS)
    attempts, logs.reads = 0, 0
    done = False
    while not done:
        attempts += 1
        logs.fail_after = logs.reads + 9
        try:
            bring(restored, logs, target)
            done = True
        except KafkaClientError:
            assert restored.position is None, "no step is claimed before the end"
        restored.close()
        restored = open_task_store(tmp_path, SPECS)
    assert attempts > 3
    assert logs.reads < 2 * needed
    assert digests(restored) == digests(live)
    restored.close()


def test_trimmed_log_gives_the_same_store():
    live, logs, target = live_store(6)
    for name, offset in live.trim_offsets.items():
        topic = changelog_topic(APPLICATION, name)
        assert offset > 0
        logs.begins[topic] = offset
    restored = TaskStore(MemoryTable(), SPECS)
    report = bring(restored, logs, target)
    assert digests(restored) == digests(live)
    assert report.records < sum(len(records) for records in logs.records.values())


def test_compacted_log_gives_the_same_store():
    live, logs, target = live_store(7)
    for name in ("table", "plain", "windows", "sessions"):
        topic = changelog_topic(APPLICATION, name)
        last = {key: offset for offset, key, _, _ in logs.records[topic]}
        logs.records[topic] = [row for row in logs.records[topic] if last[row[1]] == row[0] and row[2] is not None]
    restored = TaskStore(MemoryTable(), SPECS)
    # So late that tombstones may be gone without anybody's fault.
    bring(restored, logs, target, now_ms=target.written_ms + DELETE_RETENTION_MS)
    assert digests(restored) == digests(live)


def test_expired_rows_are_not_loaded():
    _, logs, target = live_store(8)
    restored = TaskStore(MemoryTable(), SPECS)
    report = bring(restored, logs, target)
    windows = next(store for store in report.stores if store.store == "windows")
    assert windows.rows < windows.records / 2
    unbounded = TaskStore(MemoryTable(), SPECS)
    bring(unbounded, logs, replace(target, expired_before={}))
    assert len(list(unbounded.rows("windows"))) > len(list(restored.rows("windows")))


def one_step_behind():
    """A store that was brought to the step before the last one, its logs, and the live store with its last step."""
    live, logs, target = live_store(9, steps=10)
    behind = TaskStore(MemoryTable(), SPECS)
    bring(behind, logs, target)
    live.store("table").put(b"k", None, 210)
    live.store("plain").put(b"k", b"v", 210)
    return behind, logs, live, commit(live, logs, 11)


@pytest.mark.parametrize("whole", [True, False])
def test_the_last_step_is_checked_against_its_marker(whole):
    behind, logs, live, target = one_step_behind()
    store = TaskStore(MemoryTable(), SPECS) if whole else behind
    for _ in range(2):
        with pytest.raises(RestoreError, match="digest") as caught:
            bring(store, logs, replace(target, changelog_hash="0" * 16))
        assert "someone else writes" in str(caught.value)
        assert "reset" not in str(caught.value)
        assert store.offsets == {}, "what could not be proven is not believed by the next attempt"
    late = target.written_ms + DELETE_RETENTION_MS
    bring(store, logs, replace(target, changelog_hash="0" * 16), now_ms=late)
    assert digests(store) == digests(live), "nothing can be proven when tombstones may be gone"


def test_a_missing_record_is_found():
    behind, logs, _, target = one_step_behind()
    logs.records[changelog_topic(APPLICATION, "plain")].pop()
    with pytest.raises(RestoreError, match="wrote 2 changelog records, 1 were found"):
        bring(behind, logs, target)


def test_records_of_another_kind_of_store_are_refused():
    _, logs, target = live_store(9, steps=10)
    logs.records[changelog_topic(APPLICATION, "windows")] = logs.records[changelog_topic(APPLICATION, "plain")]
    with pytest.raises(RestoreError, match="belongs to another store"):
        bring(TaskStore(MemoryTable(), SPECS), logs, target)


def test_without_any_commit_local_state_is_foreign():
    live, logs, _ = live_store(9, steps=3)
    Restorer(logs, APPLICATION, 0).restore_to(live, None, now_ms=0)
    assert live.position is None
    assert live.offsets == {}
    assert all(not list(live.rows(spec.name)) for spec in SPECS)


def test_a_store_added_later_starts_at_its_own_log():
    live, logs, target = live_store(3, steps=10)
    table = MemoryTable()
    bring(TaskStore(table, SPECS[:2]), logs, target)
    restored = TaskStore(table, SPECS)
    report = bring(restored, logs, target)
    assert {s.store: s.action for s in report.stores if s.action is Action.NOTHING} == {
        "table": Action.NOTHING,
        "plain": Action.NOTHING,
    }
    assert digests(restored) == digests(live)
