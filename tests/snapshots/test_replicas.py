"""Replicas follow commits, say how far behind they are, and are taken over instead of restored from."""

import time
from dataclasses import replace

import pytest

from state.changelog import commits_topic
from state.errors import KafkaClientError, RestoreError
from state.restore.place import CopiedTask, TaskPlace
from state.restore.plan import Action
from state.restore.restorer import RestoreEndedError, UnlessOver
from state.restore.snapshots import NO_SNAPSHOTS
from state.stores.dump import read_task_store
from state.tables.open_tables import open_table
from state.tables.rocks_common import RocksSettings
from streams.application.restore import Replica
from tests.restore.logs import APPLICATION, SPECS, commit, marker_of
from tests.snapshots.life import Life

COMMITS = (commits_topic(APPLICATION, "orders"), 0)
WAIT_S = 60


class Followed(Life):
    """A life whose markers are in a log, with a replica of the task, and no snapshots."""

    def __init__(self, folder):
        super().__init__(folder)
        self.settings = NO_SNAPSHOTS
        self.replica_dir = folder / "replicas"
        self.replica = self.new_replica()

    def new_replica(self, specs=SPECS, **options):
        task = CopiedTask(TaskPlace(APPLICATION, "orders", 0, 1, "hash"), tuple(specs))
        return Replica(self.logs, [task], self.replica_dir, **options)

    def stores(self, host=None, memory=None, **options):
        return super().stores(host, memory, **{"replica_dir": self.replica_dir, **options})

    def step(self, wait=True):
        super().step(wait)
        self.logs.append_marker(COMMITS[0], marker_of(self.target))

    def follow(self, replica=None, assigned=(COMMITS,)):
        """Lets the replica follow until it rests, and gives its position."""
        replica = replica or self.replica
        deadline = time.monotonic() + WAIT_S
        while True:
            (position,) = replica.follow(assigned)
            if position.behind == 0 or position.fault:
                return position
            assert time.monotonic() < deadline
            time.sleep(0.005)


@pytest.fixture
def life(tmp_path):
    life = Followed(tmp_path)
    yield life
    life.replica.close()


def test_a_replica_follows_each_commit_and_says_how_far_behind_it_is(life):
    for _ in range(3):
        life.step()
    assert life.replica.follow([COMMITS])[0].behind is None
    assert (life.follow().version, life.replica.offsets()) == (3, {COMMITS: life.logs.ends[COMMITS[0]]})
    life.step()
    (position,) = life.replica.follow([COMMITS])
    assert position.behind > 0
    assert position.warm, "a copy is of use while its task goes on committing"
    assert life.follow().version == 4


def test_a_copy_of_a_task_that_never_rests_is_warm(life):
    """At every look there is a commit that the copy has not."""
    deadline = time.monotonic() + WAIT_S
    life.step()
    while not (position := life.replica.follow([COMMITS])[0]).warm:
        assert time.monotonic() < deadline
        life.step()
        time.sleep(0.05)
    assert position.behind > 0


def test_a_task_takes_the_copy_on_its_host_over_and_reads_the_tail(life, caplog):
    for _ in range(5):
        life.step()
    life.follow()
    life.step()
    report = life.restored("second")
    assert report.copy.startswith("the replica in ")
    assert report.records == life.target.changelog_records
    assert {store.action for store in report.stores} <= {Action.TAIL, Action.NOTHING}
    assert "other users had access" not in caplog.text, "RocksDB makes folders that others may enter"
    # The task and the replica go on, each with its own database.
    life.host = "second"
    life.step()
    assert life.follow().version == 7
    assert life.restored("third").records == 0


def test_a_restore_that_ends_behind_a_copy_says_so_and_the_next_one_reads_the_tail(life):
    for _ in range(3):
        life.step()
    life.follow()
    life.step()
    with pytest.raises(RestoreEndedError) as raised:
        life.restored("second", listener=UnlessOver(lambda: True, None))
    assert raised.value.done.copy.startswith("the replica in ")
    assert life.restored("second").copy == ""


def test_a_copy_of_some_stores_saves_those_and_the_others_are_restored(life):
    some = [spec for spec in SPECS if spec.name in ("plain", "windows")]
    replica = life.new_replica(some)
    for _ in range(4):
        life.step()
    life.follow(replica)
    replica.close()
    actions = {store.store: store.action for store in life.restored("second").stores}
    assert actions["plain"] is actions["windows"] is Action.NOTHING
    assert actions["table"] is Action.FROM_START


def test_without_a_replica_the_changelog_is_read(life):
    life.step()
    assert life.restored("second").copy == ""


def test_a_replica_that_is_busy_is_not_waited_for_long(life):
    for _ in range(3):
        life.step()
    life.follow()
    busy = open_table(next(life.replica_dir.glob("*/*/*/db")))
    stores = life.stores("second", settings=RocksSettings(lock_timeout_s=0.05))
    with stores.open() as store:
        stores.restore_to(store, marker_of(life.target))
    busy.close()
    assert stores.report.copy == ""


def test_a_damaged_replica_is_passed_over(life):
    for _ in range(3):
        life.step()
    life.follow()
    next(life.replica_dir.glob("*/*/*/db/CURRENT")).write_bytes(b"rubbish")
    assert life.restored("second").copy == ""


class Offsets:
    """A listener that adds up how many offsets restores begin with."""

    def __init__(self):
        self.count = 0

    def on_start(self, store, task, offsets):
        self.count += offsets

    def on_batch(self, store, task, records, bytes_, remaining):
        pass


def test_a_task_that_moves_away_stays_on_disk_and_is_brought_forward_when_it_comes_back(life):
    offsets = Offsets()
    replica = life.new_replica(listener=offsets)
    for _ in range(9):
        life.step()
    life.follow(replica)
    assert replica.follow([]) == []
    whole, offsets.count = offsets.count, 0
    life.step()
    assert life.follow(replica).version == 10
    assert 0 < offsets.count < whole / 4, "the tail was read, not everything"
    replica.close()


def test_a_replica_can_be_read_with_its_position(life):
    for _ in range(3):
        life.step()
    life.follow()
    with read_task_store(next(life.replica_dir.glob("*/*/*")), SPECS) as store:
        assert (store.position.version, store.store("plain").get(b"sure")) == (3, b"v3")


def test_a_failure_is_shown_and_tried_again(life):
    now = [0.0]
    replica = life.new_replica(clock_s=lambda: now[0])
    life.step()
    life.logs.fail_after = life.logs.reads
    position = life.follow(replica)
    assert "the broker went away" in position.fault
    assert not position.warm
    life.logs.fail_after = None
    now[0] += 60
    deadline = time.monotonic() + WAIT_S
    while not (position := replica.follow([COMMITS])[0]).warm:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert (position.version, position.behind) == (1, 0)
    replica.close()


def test_a_replica_holds_nothing_that_is_not_committed(life):
    life.step()
    life.follow()
    # Records are in the changelog, their marker is not there yet: a transaction that is still open, or was aborted.
    with life.stores().open() as store:
        store.store("plain").put(b"sure", b"uncommitted", 9)
        commit(store, life.logs, 2, life.now_ms)
    for _ in range(3):
        position = life.follow()
    assert (position.version, position.behind) == (1, 0)
    with read_task_store(next(life.replica_dir.glob("*/*/*")), SPECS) as store:
        assert store.store("plain").get(b"sure") == b"v1"


def test_brokers_that_are_away_are_the_callers_matter(life, monkeypatch):
    def away(partitions):
        raise KafkaClientError("the broker went away")

    life.step()
    monkeypatch.setattr(life.logs, "end_offsets", away)
    with pytest.raises(KafkaClientError):
        life.replica.follow([COMMITS])


def test_a_replica_says_that_the_application_was_rescaled(life):
    life.step()
    assert life.follow().version == 1
    # The marker that a rescale to two tasks leaves.
    life.logs.append_marker(COMMITS[0], replace(marker_of(life.target), tasks=2))
    deadline = time.monotonic() + WAIT_S
    while not (position := life.replica.follow([COMMITS])[0]).fault:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert "task 0 of 1 of" in position.fault
    assert "the application has 2 tasks now, it was rescaled. Start this command again" in position.fault
    with pytest.raises(
        RestoreError, match=r"there is a task 1 that did not exist .* was rescaled\. Start the replica again"
    ):
        life.replica.follow([COMMITS, (COMMITS[0], 1)])
