"""A copy that is read while it follows: each view is one commit as a whole, however much is committed meanwhile."""

import os
import re
import shutil
import threading
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from state.changelog import changelog_topic, commits_topic, rescale_topic
from state.commit.marker import RESCALED, CommitMarker
from state.commit.session import FLUSH_EVERY_S
from state.errors import KafkaClientError, RestoreError, StateError, TopicNotFoundError
from state.kafka.topics import TopicInfo
from state.restore.follower import Follower
from state.restore.place import CopiedTask, TaskPlace
from state.restore.snapshots import NO_SNAPSHOTS
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.restore.verify import check_not_rescaled
from state.stores.dump import state_digest
from state.tables.native_library import SWITCH_VARIABLE
from streams.drills.processes import wait_until
from streams.errors import CursorExpiredError, StoreNotReadyError
from streams.serve.copies import TaskCopy, life_of
from streams.serve.server import without_topic
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, marker_of
from tests.snapshots.life import Life

COMMITS = (commits_topic(APPLICATION, "orders"), 0)
TASK = CopiedTask(TaskPlace(APPLICATION, "orders", 0, 1, "hash"), tuple(SPECS))


class Served(Life):
    """A life whose markers are in a log, and a copy of its task that can be read."""

    def __init__(self, folder):
        super().__init__(folder)
        self.settings = NO_SNAPSHOTS
        self.digests_of = {}
        self.copy = self.new_copy()

    def new_copy(self, folder="copies"):
        memory = WorkerMemory()

        def make(task):
            place = self.folder / folder
            return TaskStateManager(self.logs, task.place.identity(), list(task.specs), place, memory=memory)

        return TaskCopy(self.logs, TASK, make)

    def step(self, wait=True):
        super().step(wait)
        self.logs.append_marker(COMMITS[0], marker_of(self.target))
        self.digests_of[self.version] = self.digests

    def digests_in(self, view):
        return {spec.name: state_digest(view.stores, spec.name) for spec in SPECS}


@pytest.fixture(params=["native", "rocksdict"])
def life(tmp_path, request, monkeypatch):
    if request.param == "rocksdict":
        monkeypatch.setenv(SWITCH_VARIABLE, "0")
    life = Served(tmp_path)
    yield life
    life.copy.close()


def test_each_view_is_one_commit_while_the_copy_goes_on(life):
    for _ in range(3):
        life.step()
    assert life.copy.bring_forward()
    with life.copy.reading() as third:
        for _ in range(4):
            life.step()
            life.copy.bring_forward()
        assert (third.version, life.copy.version) == (3, 7)
        assert life.digests_in(third) == life.digests_of[3]
        with life.copy.reading() as last:
            assert life.digests_in(last) == life.digests_of[7]
    assert not life.copy.bring_forward()


def test_a_view_is_kept_for_a_cursor_and_then_given_up(life):
    life.step()
    life.copy.bring_forward()
    with life.copy.reading() as first:
        life.copy.hold(first, 1000)
    life.step()
    life.copy.bring_forward()
    with life.copy.reading(1) as kept:
        assert life.digests_in(kept) == life.digests_of[1]
    life.copy.clock_s = lambda: 10**9
    # The last few commits are kept in any case, to read all tasks as of one micro-batch.
    for _ in range(5):
        life.step()
        life.copy.bring_forward()
    with pytest.raises(CursorExpiredError, match="commit 1"), life.copy.reading(1):
        pass


def test_cursors_live_however_many_commits_come_and_the_one_too_many_is_refused(life, monkeypatch):
    monkeypatch.setattr("streams.serve.copies._MOST_VIEWS", 25)
    for _ in range(25):
        life.step()
        life.copy.bring_forward()
        with life.copy.reading() as view:
            life.copy.hold(view, 1000)
    for version in (1, 13, 25):
        with life.copy.reading(version) as kept:
            assert life.digests_in(kept) == life.digests_of[version]
            life.copy.hold(kept, 1000)
    life.step()
    life.copy.bring_forward()
    with life.copy.reading() as view, pytest.raises(StoreNotReadyError, match="no other cursor"):
        life.copy.hold(view, 1000)
    with life.copy.reading(1):
        pass
    # Their time is over: nothing is kept that nobody needs.
    now_s = life.copy.clock_s()
    life.copy.clock_s = lambda: now_s + 1001
    life.copy.bring_forward()
    assert len(life.copy._views) <= 6


def test_a_broker_that_goes_away_takes_nothing_from_the_readers(life):
    life.step()
    life.copy.bring_forward()
    life.step()
    life.logs.fail_after = life.logs.reads + 1
    with pytest.raises(KafkaClientError):
        life.copy.bring_forward()
    with life.copy.reading() as view:
        assert life.digests_in(view) == life.digests_of[1]
    life.logs.fail_after = None
    life.copy.bring_forward()
    with life.copy.reading() as view:
        assert life.digests_in(view) == life.digests_of[2]


def test_a_whole_restore_is_not_seen_by_the_readers(life):
    """A changelog of another id: the copy is emptied on disk and filled again, while its last view answers."""
    life.step()
    life.copy.bring_forward()
    life.step()
    seen = []
    read = life.logs.read

    def reading(topic, *place):
        if topic == changelog_topic(APPLICATION, "table"):
            with life.copy.reading() as view:
                seen.append((view.version, life.digests_in(view) == life.digests_of[1]))
        return read(topic, *place)

    life.logs.read = reading
    life.now_ms += 10**10
    life.copy._opened()[0]._clock_ms = lambda: life.now_ms
    life.copy.bring_forward()
    assert set(seen) == {(1, True)}
    with life.copy.reading() as view:
        assert life.digests_in(view) == life.digests_of[2]


def test_before_the_first_look_nothing_is_known_and_without_a_commit_the_stores_are_empty(life):
    with pytest.raises(StoreNotReadyError, match="still being restored"), life.copy.reading():
        pass
    life.copy.bring_forward()
    with life.copy.reading() as view:
        assert (view.version, list(view.stores.rows("table"))) == (0, [])
    life.step()
    life.copy.bring_forward()
    with life.copy.reading() as view:
        assert life.digests_in(view) == life.digests_of[1]


def test_who_waits_for_a_commit_is_woken_by_it(life):
    life.step()
    life.copy.bring_forward()
    assert not life.copy.wait(lambda view: view.version == 2, 0)
    found = []
    waiting = threading.Thread(target=lambda: found.append(life.copy.wait(lambda view: view.version == 2, 60)))
    waiting.start()
    life.step()
    life.copy.bring_forward()
    waiting.join()
    assert found == [True]


def test_the_age_counts_from_the_last_time_that_nothing_newer_existed(life):
    clock = [100.0]
    life.copy.clock_s = lambda: clock[0]
    life.step()
    life.copy.bring_forward()
    clock[0] = 103.0
    with life.copy.reading() as view:
        assert life.copy.age_ms_of(view) == 3000
        life.copy.known_until(102.5)
        assert life.copy.age_ms_of(view) == 500
        life.step()
        clock[0] = 105.0
        life.copy.bring_forward()
        assert life.copy.age_ms_of(view) == 2500
    assert life.copy.age_ms == 0


def test_an_end_that_was_asked_for_before_another_look_is_not_that_of_a_new_log(life):
    life.step()
    before = life.logs.end_offsets([COMMITS])[COMMITS]
    life.step()
    life.copy.bring_forward()
    life.copy.bring_forward(before, 0.0)
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (2, life.digests_of[2])


def asks_nothing(life):
    """From now on, the brokers do not say where logs end."""

    def end_offsets(places):
        raise KafkaClientError(f"asked for {places}")

    life.logs.end_offsets = end_offsets


def tell(life, *versions):
    """Tells the copy of markers, by the numbers of their commits."""
    for offset, _, marker, _ in life.logs.records[COMMITS[0]]:
        if CommitMarker.from_bytes(marker).version in versions:
            life.copy.hear(offset, marker)


def test_a_commit_that_the_copy_hears_of_is_followed_without_a_question(life):
    life.step()
    life.copy.bring_forward()
    life.step()
    life.step()
    ends = life.logs.end_offsets([COMMITS])
    asks_nothing(life)
    tell(life, 2, 3)
    life.copy.follow()
    assert not life.copy.has_heard
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (3, life.digests_of[3])
    assert life.copy.read_to == ends[COMMITS]
    # Kafka may give a marker again, as after another member has joined the group.
    tell(life, 2, 3)
    life.copy.follow()
    assert life.copy.version == 3


@pytest.mark.parametrize("told", [[3], [3, 2], [2, 4]])
def test_a_commit_that_does_not_follow_by_one_is_asked_for(life, told):
    life.step()
    life.copy.bring_forward()
    for _ in range(3):
        life.step()
    tell(life, *told)
    if told == [3, 2]:
        life.copy._heard.reverse()
    life.copy.follow()
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (4, life.digests_of[4])
    life.step()
    tell(life, 5)
    asks_nothing(life)
    life.copy.follow()
    assert life.copy.version == 5


def test_a_commit_of_another_query_is_asked_for(life):
    life.step()
    life.copy.bring_forward()
    life.step()
    (_, _, marker, _) = life.logs.records[COMMITS[0]][-1]
    life.copy.hear(10**6, replace(CommitMarker.from_bytes(marker), query_id="another").to_bytes())
    life.copy.follow()
    assert life.copy.read_to == life.logs.end_offsets([COMMITS])[COMMITS]
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (2, life.digests_of[2])


def test_records_that_are_not_those_of_the_marker_are_not_shown(life):
    life.step()
    life.copy.bring_forward()
    life.step()
    records = life.logs.records[changelog_topic(APPLICATION, "plain")]
    records[:] = [(offset, key, b"another", at) for offset, key, _, at in records]
    tell(life, 2)
    with pytest.raises(RestoreError, match="someone else writes"):
        life.copy.follow()
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (1, life.digests_of[1])


def test_what_a_copy_has_not_heard_of_is_found_by_the_second_look(life):
    follower = Follower(life.logs, lambda place: life.copy, [COMMITS])
    life.step()
    follower.look([COMMITS])
    assert life.copy.wait(lambda view: view.version == 1, 60)
    life.step()
    follower.look([COMMITS])
    assert not follower._busy, "the copy will be told of what is new since the last look"
    follower.look([COMMITS])
    assert life.copy.wait(lambda view: view.version == 2, 60)
    life.step()
    tell(life, 3)
    follower.hear(COMMITS, *life.copy._heard.pop())
    assert life.copy.wait(lambda view: view.version == 3, 60)
    follower.close()


def test_a_commit_that_was_heard_of_is_as_old_as_the_last_look(life):
    clock = [100.0]
    life.copy.clock_s = lambda: clock[0]
    life.step()
    life.copy.bring_forward()
    life.step()
    tell(life, 2)
    clock[0] = 103.0
    life.copy.follow()
    with life.copy.reading() as view:
        assert (view.version, life.copy.age_ms_of(view)) == (2, 3000)
    life.step()
    # A look has seen this commit before the copy has heard of it: later ones may exist since then.
    life.copy.looked = life.logs.end_offsets([COMMITS])[COMMITS], 103.0
    tell(life, 3)
    clock[0] = 103.5
    life.copy.follow()
    with life.copy.reading() as view:
        assert (view.version, life.copy.age_ms_of(view)) == (3, 500)


def killed(life, name):
    """A copy from the files that a kill at this moment would leave behind."""
    left = life.folder / name

    def files(folder):
        return sorted((str(file.relative_to(folder)), file.stat().st_size) for file in folder.rglob("*"))

    def copied():
        shutil.rmtree(left, ignore_errors=True)
        # RocksDB compacts in the background, and deletes files meanwhile.
        with suppress(shutil.Error):
            shutil.copytree(life.folder / "copies", left)
        with suppress(FileNotFoundError):
            return files(left) == files(life.folder / "copies")

    wait_until(copied, 60, "the files are copied as they are")
    return life.new_copy(name)


def version_on_disk(copy):
    return copy._opened()[1].position.version


def test_what_a_kill_takes_from_a_copy_is_read_again(life):
    """A commit that was heard of is not flushed, which would cost more than all else about it."""
    clock = [100.0]
    life.copy.clock_s = lambda: clock[0]
    life.step()
    life.copy.bring_forward()
    life.copy._flush(life.copy._opened()[1])
    for version in (2, 3):
        life.step()
        tell(life, version)
        life.copy.follow()
    with closing(killed(life, "third")) as third:
        flushed_for_each_snapshot = os.environ.get(SWITCH_VARIABLE) == "0"
        assert version_on_disk(third) == (3 if flushed_for_each_snapshot else 1)
        third.bring_forward()
        with third.reading() as view:
            assert life.digests_in(view) == life.digests_of[3]
    clock[0] += FLUSH_EVERY_S
    life.step()
    tell(life, 4)
    life.copy.follow()
    with closing(killed(life, "fourth")) as fourth:
        assert version_on_disk(fourth) == 4


def test_a_copy_that_is_closed_is_not_opened_again(life):
    life.step()
    life.copy.bring_forward()
    life.step()
    tell(life, 2)
    life.copy.close()
    life.copy.follow()
    life.copy.bring_forward()
    assert not life.copy.ready


def test_a_copy_that_cannot_be_flushed_is_closed_nevertheless(life, monkeypatch):
    """A full disk: the process that gets the task next may be this one, and needs the database."""
    closed = []
    life.copy._on_close = lambda: closed.append("kafka")
    life.copy.listeners.append(lambda: closed.append("told"))
    life.step()
    life.copy.bring_forward()
    closed.clear()

    def full():
        raise StateError("no space left on device")

    monkeypatch.setattr(life.copy._opened()[1], "flush", full)
    with pytest.raises(StateError, match="no space"):
        life.copy.close()
    assert closed[0] == "kafka"
    with closing(life.new_copy()) as following:
        following.bring_forward()
        assert following.version == 1


def test_who_follows_the_changes_of_a_copy_hears_that_it_is_closed(life):
    told = []
    life.copy.listeners.append(lambda: told.append(life.copy.ready))
    life.copy.close()
    assert told == [False]


def test_an_application_that_was_reset_is_not_answered_for(life):
    life.step()
    life.copy.bring_forward()
    life.logs.records.pop(COMMITS[0])
    life.logs.ends[COMMITS[0]] = 0
    life.copy.bring_forward()
    with life.copy.reading() as view:
        assert (view.version, list(view.stores.rows("plain"))) == (0, [])


def test_an_application_whose_topics_are_gone_ends_the_command_and_says_what_to_do(life):
    follower = Follower(life.logs, lambda place: life.copy, [COMMITS])
    follower.look([COMMITS])

    def end_offsets(places):
        raise TopicNotFoundError(*COMMITS)

    life.logs.end_offsets = end_offsets
    with pytest.raises(TopicNotFoundError) as raised:
        follower.look([COMMITS])
    assert re.search("was reset.*Start this command again", str(without_topic(raised.value)))
    follower.close()


def rescaled(life, phase):
    """The application's topics during a rescale from one task to three, or after it."""
    life.logs.records.pop(COMMITS[0])
    life.logs.ends[COMMITS[0]] = 0
    life.logs.topics = {COMMITS[0]: TopicInfo("new", 3)}
    if phase == "during":
        life.logs.topics = {COMMITS[0]: TopicInfo("new", 1), rescale_topic(APPLICATION, "orders"): TopicInfo("", 1)}


@pytest.mark.parametrize("phase", ["during", "after"])
def test_an_application_that_was_rescaled_is_answered_for_with_the_old_rows(life, phase):
    """All copies are those of before until somebody starts a process again, and the age says so."""
    life.step()
    life.copy.bring_forward()
    follower = Follower(
        life.logs, lambda place: life.copy, [COMMITS], check=lambda: check_not_rescaled(life.logs, TASK.place)
    )
    follower.look([COMMITS])
    rescaled(life, phase)
    with pytest.raises(RestoreError, match="rescaled"):
        life.copy.bring_forward()
    # The group gives the tasks of the new topic to others, or to nobody while there is none.
    for assigned in ([], [(COMMITS[0], 2)], [COMMITS]):
        follower.look(assigned)
        assert set(follower.copies) == {COMMITS}
    # The new log may end where the old one did.
    follower._retry_at.clear()
    life.logs.ends[COMMITS[0]] = life.copy.read_to
    known_s = life.copy._current.known_s
    follower.look([COMMITS])
    assert (life.copy._current.known_s, "rescaled" in follower.trouble) == (known_s, True)
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (1, life.digests_of[1])
        before = life.copy.age_ms_of(view)
        life.copy.clock_s = lambda at=life.copy.clock_s: at() + 5
        assert life.copy.age_ms_of(view) >= before + 5000
    follower.close()


@pytest.mark.parametrize("heard", [True, False])
def test_the_marker_that_closes_a_task_for_a_rescale_is_no_commit(life, heard):
    """Its changelogs are about to be replaced: whoever took it would throw the rows away, and read whatever is there then."""
    life.step()
    life.copy.bring_forward()
    was = marker_of(life.target)
    closed = replace(was, query_id=was.query_id + RESCALED)
    life.logs.append_marker(COMMITS[0], closed)
    for topic in life.logs.records.keys() - {COMMITS[0]}:
        life.logs.records[topic] = []
    if heard:
        life.copy.hear(life.logs.ends[COMMITS[0]] - 2, closed.to_bytes())
    with pytest.raises(RestoreError, match="being rescaled"):
        (life.copy.follow if heard else life.copy.bring_forward)()
    with life.copy.reading() as view:
        assert (view.version, view.life, life.digests_in(view)) == (1, life_of(was.query_id), life.digests_of[1])
    # It is taken back: the same commit again.
    life.logs.append_marker(COMMITS[0], was)
    assert life.copy.bring_forward()
    with life.copy.reading() as view:
        assert (view.version, life.digests_in(view)) == (1, life.digests_of[1])


def test_the_follower_brings_copies_forward_and_lets_go_of_those_that_move(life):
    follower = Follower(life.logs, lambda place: life.copy, [COMMITS], kept_s=0)
    follower.look([COMMITS])
    assert life.copy.wait(lambda view: view.version == 0, 60), (
        "a task that has never committed is empty, and can be read"
    )
    life.step()
    while life.copy.version < 1:
        follower.look([COMMITS])
    follower.look([COMMITS, ("elsewhere", 0)])
    assert set(follower.copies) == {COMMITS}
    life.step()
    while life.copy.version < 2:
        follower.look([COMMITS])
    follower.look([])
    assert follower.copies == {}
    follower.close()
    assert not life.copy.ready


def test_a_copy_answers_until_another_process_has_one(life):
    """After brokers were away, a group has given all tasks to nobody. So it is for a moment while a task moves."""
    clock, elsewhere = [100.0], []
    follower = Follower(
        life.logs,
        lambda place: life.copy,
        [COMMITS],
        elsewhere=lambda place: place in elsewhere,
        kept_s=5,
        clock_s=lambda: clock[0],
    )
    life.step()
    follower.look([COMMITS])
    assert life.copy.wait(lambda view: view.version == 1, 60)
    for seconds, others, here in ((0, [COMMITS], True), (4, [COMMITS], True), (100, [], True), (200, [COMMITS], False)):
        clock[0], elsewhere[:] = 100.0 + seconds, others
        follower.look([])
        assert bool(follower.copies) is here, seconds
    follower.close()


def test_a_copy_that_comes_back_is_the_same_one(life, monkeypatch):
    made = []
    follower = Follower(life.logs, lambda place: made.append(place) or life.copy, [COMMITS])
    for assigned in ([COMMITS], [], [COMMITS], []):
        follower.look(assigned)
        assert life.copy.wait(lambda view: True, 60)
    assert (made, set(follower.copies)) == ([COMMITS], {COMMITS})
    follower.close()


class Busy(TaskCopy):
    """A copy of a task that commits faster than the copy follows, so that it has always heard of another commit."""

    has_heard = True

    def __init__(self, logs, may_look):
        super().__init__(logs, TASK, lambda task: None)
        self.looks = 0
        self.may_look = may_look

    def bring_forward(self, end=None, asked_s=0.0):
        self.follow()

    def follow(self):
        self.may_look.wait()
        self.looks += 1


def test_copies_of_tasks_that_never_rest_take_turns():
    places = [(COMMITS[0], task) for task in range(3)]
    logs = MemoryLogs()
    all_wait = threading.Event()
    copies = {place: Busy(logs, all_wait) for place in places}
    follower = Follower(logs, copies.__getitem__, places, parallel=1)
    follower.look(places)
    all_wait.set()
    wait_until(lambda: min(copy.looks for copy in copies.values()) >= 100, 60, "a copy waits forever")
    follower.close()
    looks = [copy.looks for copy in copies.values()]
    assert max(looks) - min(looks) <= 1


class Restored(Busy):
    """A copy whose restore lasts until the others have been brought forward many times."""

    ready = has_heard = False

    def follow(self):
        self.may_look.wait(60)
        self.looks += 1


class Following(Busy):
    """A copy that can be read, and brought forward a hundred times."""

    ready = True

    @property
    def has_heard(self):
        return self.looks < 100

    def follow(self):
        self.looks += 1
        if not self.has_heard:
            self.may_look.set()


def test_copies_that_can_be_read_do_not_wait_for_restores():
    logs, many = MemoryLogs(), threading.Event()
    copies = {
        (COMMITS[0], task): kind(logs, many) for task, kind in enumerate([Restored, Restored, Following, Following])
    }
    follower = Follower(logs, copies.__getitem__, copies, parallel=1)
    follower.look(copies)
    for place in copies:
        follower.hear(place, 0, b"")
    followed_first = many.wait(30)
    follower.close()
    assert followed_first
