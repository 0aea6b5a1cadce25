"""The real step over the simulated Kafka: what it writes, what it checks before it believes, and where it may die."""

import numpy as np
import pyarrow as pa
import pytest

from state.changelog import changelog_topic, commits_topic
from state.commit.crash_points import POINTS
from state.commit.decide import Decision, TaskIdentity
from state.commit.step import CommitStep, StepInput
from state.errors import (
    CheckpointMismatchError,
    FencedError,
    KafkaClientError,
    OpenTransactionError,
    RoutingMismatchError,
    StateLockedError,
    UnexpectedOffsetError,
)
from state.restore import task_stores
from state.restore.task_stores import WorkerMemory
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from streams.testing.simulation import RequestEvent, SimulatedKafka, SimulatedStores, SimulatedTable
from streams.testing.simulation.kafka import NothingHappens

IDENTITY = TaskIdentity("app", "in", 0, 1, "query", "hash")
SPECS = [StoreSpec("a", StoreKind.KEY_VALUE), StoreSpec("b", StoreKind.KEY_VALUE)]
COMMITS, A = commits_topic("app", "in"), changelog_topic("app", "a")
TOPICS = {COMMITS: 1, A: 1, changelog_topic("app", "b"): 1, "out": 1}


class DiedError(BaseException):
    """Stands for the end of the process."""


class Points:
    """Crash points that note where a step has come, and end it where they are told to."""

    def __init__(self, die_at=None, armed=()):
        self.die_at = die_at
        self.where = {die_at, *armed}
        self.reached = []
        self.versions = {}

    def armed(self, point, task, version):
        return point in self.where

    def reach(self, point, task, version):
        assert (task, point in POINTS) == (0, True)
        self.reached.append(point)
        self.versions[point] = version
        if point == self.die_at:
            raise DiedError


class Reads(NothingHappens):
    """Notes which partitions are read."""

    def __init__(self, seen):
        self.seen = seen

    def before(self, event):
        if event.kind == "read":
            self.seen.append(event.where)
        return super().before(event)


class Send:
    topic, headers, partition_keys, partitions = "out", None, None, None

    def __init__(self, rows):
        self.keys, self.values = (pa.array([row[i] for row in rows], pa.binary()) for i in range(2))
        self.timestamps = np.ones(len(rows), np.int64)


class Effects:
    operator_state, counters, stream_time, records_in = {}, {}, 1, 2

    def __init__(self, sends):
        self.sends = sends


class Task:
    """A task with its disk and Spark's copy of its marker."""

    def __init__(self):
        self.kafka = SimulatedKafka(TOPICS)
        self.table = SimulatedTable()
        self.copy = None
        self.batch = 0
        self.compared = {}

    def step(self, points=None, keep=True, fencing=False, **given):
        step = CommitStep(IDENTITY, self.kafka, self.stores(), points or Points(), self.compared)
        if fencing:
            step.start_fencing(self.copy)
        result = step.run(
            StepInput(self.batch, f"b{self.batch}", {}, {("in", 0): 5}, {}, 1, **given), self.copy, process
        )
        if keep:
            self.copy = result.copy
            self.batch += 1
        return result

    def stores(self):
        return SimulatedStores(self.kafka, IDENTITY, SPECS, self.table, WorkerMemory())

    def values(self, topic):
        found = self.kafka.columns(topic, 0)
        return [] if found is None else found.values.to_pylist()

    def rows(self, store):
        return dict(TaskStore(self.table, SPECS).rows(store))


def process(store, last):
    rows = []
    for key in (b"x", b"y"):
        count = int(store.store("a").get(key) or b"0") + 1
        store.store("a").put(key, b"%d" % count, count)
        store.store("b").put(key, b"%d" % -count, count)
        rows.append((key, b"%d" % count))
    return Effects([Send(rows)])


def test_an_attempt_that_was_fenced_deletes_no_changelog_records(task, monkeypatch):
    """Nothing fences a deletion: an attempt that slept for long would delete records of a changelog that was made since."""
    monkeypatch.setattr(task_stores, "trim_targets", lambda *given: {(A, 0): 2})
    task.step()
    assert task.kafka.begin_offset((A, 0)) == 2

    def fenced(store, last):
        task.kafka.producer(IDENTITY.transactional_id).init_transactions()
        return process(store, last)

    task.kafka.append(A, b"k", b"1", partition=0)
    monkeypatch.setattr(task_stores, "trim_targets", lambda *given: {(A, 0): 3})
    step = CommitStep(IDENTITY, task.kafka, task.stores(), Points())
    with pytest.raises(FencedError):
        step.run(StepInput(1, "b1", {}, {("in", 0): 5}, {}, 1), task.copy, fenced)
    assert task.kafka.begin_offset((A, 0)) == 2


@pytest.fixture
def task():
    return Task()


def test_a_step_writes_all_or_nothing_and_says_what(task):
    assert task.step(routing=routed("r1")).decision is Decision.RUN
    marker = task.copy.marker
    assert (marker.version, marker.routing, marker.adopted, marker.application_id) == (1, routed("r1"), 0, "app")
    assert (marker.changelog_begins, marker.changelog_ends) == ({"a": 0, "b": 0}, {"a": 2, "b": 2})
    assert marker.changelog_ids == {
        name: task.kafka.topic_ids([changelog_topic("app", name)]).popitem()[1] for name in "ab"
    }
    assert task.values("out") == [b"1", b"1"]
    task.step()
    assert task.copy.marker.changelog_begins == {"a": 3, "b": 3}, "behind the control record"
    assert task.values("out") == [b"1", b"1", b"2", b"2"]
    assert task.rows("a") == {b"x": b"2", b"y": b"2"}


@pytest.mark.parametrize(
    "point", [point for point in POINTS if not point.startswith(("process_h", "before_rep", "report"))]
)
def test_a_crash_at_each_point_changes_nothing_but_time(task, point):
    for number in range(3):
        died = False
        try:
            task.step(Points(point if number == 1 else None))
        except DiedError:
            died = True
            task.table.crash()
            if point in ("restore_halfway", "restore_read"):
                pytest.fail("nothing was to be restored")
            task.step()
        assert died == ((number == 1 and not point.startswith("restore_")) or (number == 1 and point == "restore_done"))
    assert task.values("out") == [b"1", b"1", b"2", b"2", b"3", b"3"]
    assert task.rows("a") == {b"x": b"3", b"y": b"3"}


def test_points_stand_where_their_names_say(task):
    points = Points(armed=POINTS)
    task.step(points)
    expected = [
        point for point in POINTS if not point.startswith(("restore_h", "restore_r", "process_h", "before_r", "report"))
    ]
    in_order = [point for index, point in enumerate(points.reached) if point not in points.reached[:index]]
    assert in_order == expected


@pytest.mark.parametrize(("point", "out", "changes"), [("outputs_half_sent", 1, 0), ("changelog_half_sent", 2, 1)])
def test_half_sent_is_half_sent(task, point, out, changes):
    with pytest.raises(DiedError):
        task.step(Points(point))
    assert task.kafka.log("out", 0).end == out
    assert task.kafka.log(A, 0).end == changes
    task.table.crash()
    task.step()
    assert task.values("out") == [b"1", b"1"]


class Copied:
    """Has forgotten the checkpoint and the commits topic, but not the changelogs."""

    def __init__(self, trim=False, aborted=False):
        self.task = Task()
        if aborted:
            with pytest.raises(DiedError):
                self.task.step(Points("before_commit"))
        else:
            self.task.step()
        if trim:
            self.task.kafka.log(A, 0).cut(self.task.kafka.log(A, 0).end)
            self.task.kafka.delete_topic(changelog_topic("app", "b"))
            self.task.kafka.create_topic(changelog_topic("app", "b"))
        if not aborted:
            self.task.kafka.delete_topic(COMMITS)
            self.task.kafka.create_topic(COMMITS)
        self.task.copy, self.task.batch = None, 0
        self.task.table = SimulatedTable()


@pytest.mark.parametrize(("trim", "says"), [(False, r"has records in offsets \[0, 3\)"), (True, "starts at offset 3")])
def test_a_task_never_starts_empty_while_there_is_state(trim, says):
    task = Copied(trim).task
    with pytest.raises(CheckpointMismatchError, match=says) as caught:
        task.step()
    assert "another name" in str(caught.value)
    assert task.kafka.log("out", 0).end == 3, "nothing was written"


def test_what_was_only_begun_is_no_state():
    task = Copied(aborted=True).task
    assert task.step().decision is Decision.RUN
    assert task.values("out") == [b"1", b"1"]


@pytest.mark.parametrize("topic", [COMMITS, A])
def test_a_transaction_that_hangs_is_named_before_anything_is_done(task, topic):
    task.step()
    task.kafka.hang(topic, 0)
    with pytest.raises(OpenTransactionError, match=rf"{topic}-0 from offset") as caught:
        task.step()
    assert "`streams transactions --topic " in str(caught.value)
    assert task.values("out") == [b"1", b"1"]


@pytest.mark.parametrize("topic", [COMMITS, A])
def test_records_that_land_elsewhere_are_not_committed(task, topic):
    class Stranger(NothingHappens):
        """Writes to the topic after the step has looked where it ends."""

        def before(self, event):
            if event.kind == "send" and event.where == "out-0" and not self.done:
                self.done = True
                task.kafka.append(topic, b"k", b"of somebody else")
            return super().before(event)

        done = False

    task.step()
    task.kafka.hook = Stranger()
    with pytest.raises(UnexpectedOffsetError, match=rf"on {topic}-0 should be at offset"):
        task.step()
    assert task.values("out") == [b"1", b"1"]


def test_a_commit_that_a_stale_leader_hides_is_not_done_again(task):
    """The end of the commits topic is asked of a leader that is none any more: the marker found is the one before."""
    task.step()
    before = {(COMMITS, 0): (0, 0), (A, 0): (0, 0), (changelog_topic("app", "b"), 0): (0, 0)}
    stale = task.kafka.log_ends
    task.copy, task.batch, task.table = None, 0, SimulatedTable()
    task.kafka.log_ends = lambda partitions: {place: before[place] for place in partitions}
    with pytest.raises(UnexpectedOffsetError):
        task.step()
    task.kafka.log_ends = stale
    assert task.values("out") == [b"1", b"1"]


def routed(digest):
    return {"in": {"0": (5, digest)}}


def test_rows_that_have_moved_are_noticed_by_a_skipped_step(task):
    task.step(keep=False, routing=routed("r1"))
    with pytest.raises(RoutingMismatchError, match=r"KEY-1.*repartition"):
        task.step(routing=routed("r2"), keyed_by=["KEY-1"])
    assert task.step(routing=routed("r1")).decision is Decision.SKIP
    assert task.values("out") == [b"1", b"1"]


@pytest.mark.parametrize(
    "error", [StateLockedError("db", 1, "held"), KafkaClientError("away"), OSError("no space left")]
)
def test_a_step_that_is_committed_already_needs_no_store(task, error):
    with pytest.raises(DiedError):
        task.step(Points("after_commit"))
    task.table.crash()
    task.table.lock = refuse(error)
    assert task.step().decision is Decision.SKIP
    del task.table.lock
    task.step()
    assert task.values("out") == [b"1", b"1", b"2", b"2"]
    assert task.rows("a") == {b"x": b"2", b"y": b"2"}


def test_the_points_of_a_step_that_is_skipped_are_those_of_its_own_version(task):
    task.step()
    with pytest.raises(DiedError):
        task.step(Points("after_commit"))
    again = Points()
    assert task.step(again).decision is Decision.SKIP
    assert {again.versions[point] for point in ("before_init", "after_tail_read", "after_decide")} == {2}


def refuse(error):
    def lock(owner):
        raise error

    return lock


def test_the_last_marker_is_read_again_only_where_the_log_may_have_a_newer_one(task):
    def reads(**given):
        seen = []
        task.kafka.hook = Reads(seen)
        decision = task.step(**given).decision
        return decision, seen.count(f"{COMMITS}-0")

    # An empty log has none.
    assert reads() == (Decision.RUN, 0)
    assert reads() == (Decision.RUN, 0)
    assert reads(keep=False) == (Decision.RUN, 0)
    # That step is repeated: the log has the marker of its first attempt.
    assert reads() == (Decision.SKIP, 1)
    assert reads() == (Decision.RUN, 0)
    # Another process compares the log itself.
    task.compared = {}
    assert reads() == (Decision.RUN, 1)


def test_a_fence_that_was_begun_is_ended_with_the_attempt(task):
    step = CommitStep(IDENTITY, task.kafka, task.stores(), Points())
    step.start_fencing(None)
    step.close()
    epochs = [event for event in watched(task) if event.kind == "init"]
    assert epochs == [], "nobody is fenced once the attempt is over"
    assert task.step(fencing=True).decision is Decision.RUN
    step.close()


def watched(task):
    seen = []

    class Watch(NothingHappens):
        def before(self, event: RequestEvent):
            seen.append(event)
            return super().before(event)

    task.kafka.hook = Watch()
    return seen


def test_a_fence_comes_after_its_crash_point(task):
    seen = watched(task)
    with pytest.raises(DiedError):
        task.step(Points("before_init"), fencing=True)
    assert seen == []


def test_nothing_is_trimmed_in_the_step_after_a_restore_from_the_start():
    windows = StoreSpec("a", StoreKind.WINDOW, retention_ms=100, segment_ms=10)
    kafka, memory = SimulatedKafka(TOPICS), WorkerMemory()

    def step(table, number, copy):
        def write(store, last):
            store.store("a").put(b"k", number * 100, b"v", 1)
            store.expire("a", number * 100 - 50)
            return Effects([])

        stores = SimulatedStores(kafka, IDENTITY, [windows], table, memory)
        given = StepInput(number, f"b{number}", {}, {}, {}, 1)
        return CommitStep(IDENTITY, kafka, stores, Points()).run(given, copy, write).copy

    kept, copy = SimulatedTable(), None
    for number in (1, 2):
        copy = step(kept, number, copy)
    assert kafka.log(A, 0).begin == 0
    other = SimulatedTable()
    copy = step(other, 3, copy)
    assert kafka.log(A, 0).begin == 0, "a store that was just made from the changelog does not judge it"
    copy = step(other, 4, copy)
    assert kafka.log(A, 0).begin > 0
    assert isinstance(other, MemoryTable)
