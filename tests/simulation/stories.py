"""Short histories, each about a danger that one guard of the protocol averts.

With the guard, the history succeeds, or the application refuses to continue and nothing is lost. Without the guard, the
verification must fail.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random

import pytest

from state.changelog import changelog_topic, commits_topic
from state.commit.shared import SharedProducer
from state.commit.transaction import Transaction as StepsTransaction
from state.errors import (
    CheckpointMismatchError,
    ProduceError,
    RestoreError,
    RoutingMismatchError,
    StreamsError,
    TopicRecreatedError,
)
from state.kafka.key_hash import partition_for_key
from state.kafka.topics import TopicPartition, TopicSpec
from streams.testing.simulation import Crash, Fate, RequestEvent, SimulatedKafka
from streams.testing.simulation.kafka import SimulatedProducer, Transactional
from tests.simulation import application as simulated_application
from tests.simulation.application import Application, Refused, Setup
from tests.simulation.attempt import Attempt
from tests.simulation.chaos import Odds, Quiet, Seeded
from tests.simulation.cluster import Chaos, Cluster, Host
from tests.simulation.commands import lose_checkpoint, move, pause, replicate, rescale
from tests.simulation.history import committed_under_lost, play, simulated_surroundings
from tests.simulation.programs import (
    APPLICATION,
    COUNT,
    IDLE,
    PATTERN,
    RETRY,
    STAGES,
    TABLE,
    TICKS,
    WINDOW,
    Input,
    Program,
    clean_table,
    compact,
)
from tests.simulation.snapshots import SETTINGS, kept
from tests.simulation.verify import Red, check_invariants, markers, outputs

COMMITS = commits_topic(APPLICATION, "in")
COUNTS = changelog_topic(APPLICATION, "counts")
WINDOWS = changelog_topic(APPLICATION, "windows")


class Blackout(Quiet):
    """A total failure, once a task has committed a given version."""

    def __init__(self, application: Application, task: int, version: int) -> None:
        self._application, self._task, self._version = application, task, version

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        if COMMITS in cluster.kafka.topics and len(markers(cluster.kafka, COMMITS, self._task)) >= self._version:
            raise Crash(str(event))
        return Fate.NOW


def started(program: Program = COUNT, tasks: int = 2, hosts: int = 1) -> Application:
    """An application that has processed some input."""
    application = Application(Quiet(), Setup(program, tasks, hosts=hosts))
    feed(application, 6)
    application.work()
    return application


def worked_live(program: Program) -> Application:
    """The same in live execution."""
    application = Application(Quiet(), Setup(program, hosts=1, executions=("auto",)))
    feed(application, 6)
    application.work()
    return application


def feed(application: Application, count: int) -> None:
    """Writes the same records each time."""
    application.feed(Random(len(application.inputs)), count)


def stops_when(application: Application, task: int, version: int) -> None:
    """Runs until a task has committed a version, at which driver and tasks die."""
    application.cluster.chaos = Blackout(application, task, version)
    assert application.run() is not None, "the story did not happen"
    application.cluster.chaos = Quiet()
    application.cluster.kafka.deliver()


def make_anew(application: Application, topic: str) -> None:
    """Deletes a topic and creates it again, with the same settings."""
    kafka = application.cluster.kafka
    spec = TopicSpec(topic, kafka.partition_count(topic), kafka.settings.get(topic, {}))
    kafka.delete_topics([topic])
    kafka.create_topics([spec])


def must_refuse(application: Application, kind: type[StreamsError]) -> None:
    """Requires a refusal; if the application runs all the same, verifies its output."""
    if not application.refuses(kind):
        application.verify()


most_histories = sys.maxsize
"""How many histories a story plays at most."""


def unlucky(
    *kinds: str,
    pause: float = 0.0,
    count: int = 60,
    program: Program = COUNT,
    with_snapshots: float = 0,
    with_live: float = 0,
) -> Callable[[], None]:
    """Random histories with only some kinds of faults, but many of them."""
    odds = Odds(strike=0.1, pause=pause, kinds=frozenset(kinds))

    def story() -> None:
        for seed in range(min(count, most_histories)):
            play(seed, odds, [program], with_snapshots, with_live)

    return story


def commits_and_checkpoint_are_deleted() -> None:
    """The operator wants to reset the application, but forgets the changelogs."""
    application = started()
    make_anew(application, COMMITS)
    application.stop()
    application.files.data = {}
    must_refuse(application, CheckpointMismatchError)


def checkpoint_is_lost() -> None:
    """A start without the checkpoint is refused; with the checkpoint restored, the application continues."""
    application = started()
    kept, application.files.data = application.files.data, {}
    application.stop()
    feed(application, 3)
    must_refuse(application, CheckpointMismatchError)
    application.files.data = kept
    application.work()
    application.verify()


def checkpoint_is_rolled_back() -> None:
    """An older copy replaces the checkpoint; task 0 has not moved since, so the copy matches it. Then the right one is restored."""
    application = started()
    old = dict(application.files.data)
    for number in (9, 12):
        write(application, 1, number)
        application.work()
    right = dict(application.files.data)
    application.stop()
    feed(application, 6)
    application.files.data = old
    must_refuse(application, CheckpointMismatchError)
    application.files.data = right
    application.work()
    application.verify()


def write(application: Application, partition: int, number: int, key: str = "a") -> None:
    """Writes a record with a given number. Of two tasks, g0 and g2 belong to task 1, g1 to task 0."""
    application.write(Input("in", partition, key, number, (number + 1) * 20_000))


def source_is_made_anew() -> None:
    """The source topic is deleted and recreated, and has grown beyond the application's position."""
    application = started()
    application.stop()
    make_anew(application, "in")
    feed(application, 12)
    must_refuse(application, TopicRecreatedError)


def source_is_made_anew_live() -> None:
    """The same in live execution."""
    application = worked_live(WINDOW)
    application.stop()
    make_anew(application, "in")
    feed(application, 12)
    must_refuse(application, TopicRecreatedError)


def a_topic_is_out_of_sight() -> None:
    """Live steps read a topic that is new under a pattern, then it cannot be seen for a while, and comes back."""
    application = worked_live(PATTERN)
    for _ in ("created", "out of sight", "back"):
        application.change_topics()
        feed(application, 6)
        application.work()
    application.verify()


def changelog_is_made_anew() -> None:
    """The changelog is recreated while the local stores are intact, and these are lost later."""
    application = started()
    make_anew(application, COUNTS)
    feed(application, 6)
    if application.refuses(RestoreError):
        return
    application.cluster.hosts[0].disks.clear()
    feed(application, 6)
    application.work()
    application.verify()


def a_changelog_record_is_lost() -> None:
    """A broker drops a changelog record of a step that is committed but not yet on the local disk."""
    application = started(tasks=1)
    feed(application, 3)
    stops_when(application, 0, 2)
    log = application.cluster.kafka.log(COUNTS, 0)
    lost = next(entry for entry in reversed(log.entries) if entry.readable)
    log.entries.remove(lost)
    feed(application, 6)
    must_refuse(application, RestoreError)


def keys_are_made_anew() -> None:
    """A micro-batch is half committed; when it is repeated, the function before the shuffle sends its record to task 1."""
    application = Application(Quiet(), Setup(COUNT, hosts=1))
    write(application, 0, 1)
    stops_when(application, 0, 1)
    application.change(1)
    if not refuses_a_task(application):
        counted = sum(len(values) for values in outputs(application.cluster.kafka).values())
        if counted != len(application.inputs):
            raise Red(f"{len(application.inputs)} records were counted {counted} times")


def refuses_a_task(application: Application) -> bool:
    """Whether rows that moved between tasks are noticed; another task may have processed them by then."""
    try:
        application.work()
    except Refused as refused:
        return isinstance(refused.__cause__, RoutingMismatchError)
    return False


def a_task_has_no_rows_any_more() -> None:
    """A task has committed a micro-batch that is then repeated, and its records were cleaned from the source meanwhile."""
    application = Application(Quiet(), Setup(WINDOW, 3, hosts=1))
    key = next(key for key in "abcdefgh" if _task_of(key) == 2)
    others = [next(key for key in "abcdefgh" if _task_of(key) == task) for task in (0, 1)]
    for number, name in enumerate([key, *others]):
        application.write(Input("in", 0, name, number, 20_000))
    stops_when(application, 2, 1)
    application.write(Input("in", 0, key, 3, 40_000))
    application.cluster.kafka.log("in", 0).compact()
    application.work()
    if sum(len(values) for values in outputs(application.cluster.kafka).values()) != 4:
        raise Red("not every record has come out once")


def a_record_with_a_made_key_is_cleaned() -> None:
    """A record is compacted away in the source, between the attempts of a half committed micro-batch."""
    application = Application(Quiet(), Setup(COUNT, hosts=1))
    for number, key in ((1, "a"), (3, "b"), (0, "c")):
        write(application, 0, number, key)
    stops_when(application, 0, 1)
    kafka = application.cluster.kafka
    write(application, 0, 4, "a")
    kafka.log("in", 0).compact()
    application.work()
    counted = sum(len(values) for values in outputs(kafka).values())
    if counted != len(application.inputs):
        raise Red(f"{len(application.inputs)} records were counted {counted} times")


def _task_of(key: str) -> int:
    return partition_for_key(key.encode(), 3)


def a_transaction_hangs() -> None:
    """A transaction hangs on the commits topic and hides later commits of the task, until an operator aborts it."""
    application = started(tasks=1)
    kafka = application.cluster.kafka
    span = kafka.hang(COMMITS, 0)
    feed(application, 3)
    stops_when(application, 0, 2)
    application.run()
    span.decided = False
    kafka.log(COMMITS, 0).close_span(span, kafka.now_ms)
    application.stop()
    application.work()
    application.verify()


def trimmed_windows_and_lost_disks() -> None:
    """Windows end, their changelog is trimmed, and the task continues on a host without its state."""
    application = started(WINDOW, tasks=1)
    for number in range(6, 15):
        # Each window has three records; its disk is lost between two of the same key.
        middle = (number + 1) % 3 == 1
        write(application, 0, number, "b" if middle else "a")
        application.work()
        if middle:
            application.cluster.hosts[0] = Host("host0")
    application.verify()


def a_leader_of_yesterday_is_asked() -> None:
    """A step is committed, its task dies, and the next attempt gets stale ends of the logs, from before the step."""
    application = started(tasks=1)
    feed(application, 3)
    stops_when(application, 0, 2)
    application.cluster.chaos = StaleOnce()
    application.work()
    application.verify()


class StaleOnce(Quiet):
    """Stale answers for the first task that asks for the ends of logs."""

    def __init__(self) -> None:
        self._told = False

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        if event.kind != "ends" or cluster.attempt is None or self._told:
            return Fate.NOW
        self._told = True
        return Fate.LATE


def positions_are_moved_within_an_adopted_micro_batch() -> None:
    """Task 0 has committed a micro-batch, task 1 has not; the checkpoint is lost and adopted, and the positions are moved."""
    application = started()
    feed(application, 6)
    stops_when(application, 0, 2)
    lose_checkpoint(application, Random(0))
    move(application, Random(0))
    application.work()
    application.verify()


def keys_change_before_an_adopted_checkpoint_is_used(whole: bool = True) -> Application:
    """Both tasks have committed the last micro-batch, or one has; the checkpoint is lost and adopted; another program starts."""
    application = started()
    feed(application, 6)
    if whole:
        application.work()
    else:
        stops_when(application, 0, 2)
    application.stop()
    lose_checkpoint(application, Random(0))
    application.change(1)
    return application


def an_old_attempt_commits_after_an_adoption() -> None:
    """An attempt of task 1, which has no marker yet, stands still; the checkpoint is lost and adopted; the attempt commits."""
    application = Application(Quiet(), Setup(COUNT, hosts=1))
    for number in (0, 1, 2):
        write(application, 0, number)
    application.cluster.chaos = StandsStill()
    assert application.run() is not None, "the story did not happen"
    application.cluster.chaos = Quiet()
    lose_checkpoint(application, Random(0))
    application.rest()
    if not application.refuses(CheckpointMismatchError):
        raise Red("it has gone on although a task has committed under the lost checkpoint")
    assert committed_under_lost(application)


class StandsStill(Quiet):
    """The first attempt of task 1 stands still before it fences older ones, and is given up; the others crash there."""

    def __init__(self) -> None:
        self.stood = False

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if attempt is not None and attempt.task == 1 and event.kind == "init":
            if self.stood:
                raise Crash(str(event))
            self.stood = True
            attempt.pause()
        return Fate.NOW

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        return int(what.startswith(("steady", "wait")))


class StandsStillBeforeItsSecondStep(StandsStill):
    """An attempt of task 0, which has committed once, stands still before it fences older ones, and another one takes its place."""

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        begins = attempt is not None and attempt.task == 0 and event.kind == "init"
        if begins and not self.stood and len(markers(cluster.kafka, COMMITS, 0)) == 1:
            self.stood = True
            attempt.pause()
        return Fate.NOW


def an_attempt_of_before_a_rescale_wakes_up() -> None:
    """The new log of commits ends where the old one ended before the attempt's step: it must not be taken for the old one.

    A task with a changelog would see that this is another one, too; here there is none.
    """
    chaos = StandsStillBeforeItsSecondStep()
    application = Application(chaos, Setup(TABLE, hosts=1))
    with simulated_surroundings(application):
        for _ in range(2):
            feed(application, 6)
            application.work()
        assert chaos.stood, "the story did not happen"
        assert application.cluster.zombies, "nobody stands still"
        rescale(application, Random(2))
        assert application.setup.tasks != 2, "nothing was rescaled"
        assert len(markers(application.cluster.kafka, COMMITS, 0)) == 1, "the log has another end"
        application.rest()
        feed(application, 6)
        application.work()
        application.verify()


def positions_are_moved_twice() -> None:
    """Without a start in between; a retry topic has records that were read and are not deleted yet."""
    application = started(RETRY)
    application.stop()
    for _ in range(2):
        move(application, Random(0))
    application.work()
    application.verify()


def a_row_is_deleted_while_nobody_reads() -> None:
    """A row of a global table is deleted while the application is stopped, for so long that its tombstone is gone, too."""
    application = Application(Quiet(), Setup(TABLE, hosts=1))
    with simulated_surroundings(application):
        for row in (1, None):
            application.write_row("a", row)
            application.write_row("b", 2)
            application.cluster.advance(8 * 24 * 3600 * 1000)
            clean_table(application.cluster.kafka)
            write(application, 0, len(application.inputs))
            application.work()
            application.stop()
        application.verify()


def a_replica_is_old() -> None:
    """A replica has rows that are deleted later, for so long ago that the tombstones are gone, and the task's disk is lost."""
    application = Application(Quiet(), Setup(TICKS, tasks=1, settings=SETTINGS, hosts=1))
    cluster = application.cluster
    with kept(cluster):
        feed(application, 3)
        application.work()
        replicate(application, Random(0))
        # The rows are sent and deleted.
        cluster.advance(10_000)
        application.work()
        application.stop()
        cluster.advance(8 * 24 * 3600 * 1000)
        compact(cluster.kafka, application.job, tombstones=True)
        cluster.hosts[0].disks.pop((application.job.sub.name, 0))
        feed(application, 1)
        application.work()
        application.verify()


def writes_spill_at_times() -> None:
    """Some writes of a step spill, and further ones follow."""
    for size in (300, 450, 600, 900):
        application = Application(Quiet(), Setup(WINDOW, settings={"spill_bytes": size}))
        for _ in range(2):
            feed(application, 10)
            application.work()
        application.verify()


class CrashesAfterWrites(Quiet):
    """A crash right after one of the writes to a disk, and after each part of one that is not atomic."""

    def __init__(self, number: int) -> None:
        self.left = number

    def after(self, cluster: Cluster, event: RequestEvent) -> None:
        """See `Chaos`."""
        if event.kind == "write":
            self.left -= 1
            if not self.left:
                raise Crash(str(event))


def crashes_after_writes() -> None:
    """After each write of a short history, or after each part of it."""
    number, crashed = 0, True
    while crashed:
        number += 1
        chaos = CrashesAfterWrites(number)
        application = Application(chaos, Setup(COUNT, hosts=1))
        for _ in range(2):
            feed(application, 6)
            application.work()
        application.verify()
        crashed = chaos.left <= 0


def idle_at_times() -> None:
    """Records come once in 50 seconds, and tasks are idle in between; a window is 60 seconds long."""
    application = started(IDLE, tasks=1)
    for _ in range(6):
        for _ in range(5):
            application.cluster.advance(10_000)
            application.work()
        feed(application, 2)
        application.work()
    application.verify()


def paused() -> None:
    """The whole application is paused while input comes in."""
    application = started()
    feed(application, 6)
    pause(application, Random(0))
    application.work()


def commits_fail() -> None:
    """Task 0 cannot commit, and the driver ends."""
    application = started()
    feed(application, 6)
    application.cluster.chaos = NoCommit()
    assert application.run() is not None, "the story did not happen"
    check_invariants(application.cluster, application.queries[0])


class NoCommit(Quiet):
    """No commit reaches the broker."""

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        if event.kind == "commit":
            raise ProduceError("simulated")
        return Fate.NOW


# Live execution


def started_live(chaos: Chaos) -> Application:
    """An application that is about to process its first input live, on two hosts."""
    application = Application(chaos, Setup(WINDOW, hosts=2, executions=("auto",)))
    feed(application, 12)
    return application


def switches(application: Application, execution: str) -> None:
    """Stops the application, whose next starts are in one execution."""
    application.stop()
    application.setup = replace(application.setup, executions=(execution,))


class InHalves(Quiet):
    """Records arrive in halves, for several steps of a slot; what stands still is given up, and replaced on the other host."""

    stood = False

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        return int(what.startswith(("all records", "steady", "wait for it")) or (what == "host" and self.stood))


class TwiceAndLate(InHalves):
    """A commit is sent twice; the second request comes when the next step has sent its results, and the process dies right then."""

    def __init__(self) -> None:
        self._sent: str | None = None
        self.struck = False

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        if event.kind == "commit" and self._sent is None:
            self._sent = event.where
            return Fate.TWICE
        if self._sent and not self.struck and event.where.startswith(f"{WINDOWS}-{self._sent[-1]}"):
            self.struck = True
            cluster.kafka.deliver_commits()
            raise Crash(str(event))
        return Fate.NOW


def a_commit_arrives_within_the_next_step() -> None:
    """See `TwiceAndLate`."""
    chaos = TwiceAndLate()
    application = started_live(chaos)
    application.work()
    assert chaos.struck, "the story did not happen"
    application.verify()


class StandsStillBehindAStep(InHalves):
    """A slot's commit is sent twice, so its next step needs a new producer, and before that it stands still."""

    def __init__(self) -> None:
        self._committed: object = None

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if event.kind == "commit" and self._committed is None:
            self._committed = attempt
            return Fate.TWICE
        if event.kind == "read" and attempt is self._committed is not None and not self.stood:
            self.stood = True
            assert attempt is not None, "a slot reads"
            attempt.pause()
        return Fate.NOW


def an_old_session_wakes_up() -> None:
    """Its tasks have been taken over, and its next step would need a new producer, which would fence the others."""
    chaos = StandsStillBehindAStep()
    application = started_live(chaos)
    application.work()
    assert chaos.stood, "the story did not happen"
    assert application.cluster.zombies, "nobody stands still"
    application.verify()


class StandsStillWithinAStep(InHalves):
    """A slot stands still in a step, before it commits or fences anew, and the other ones die, and so the driver.

    Args:
        at: The kind of the event: `commit`, or `init`.
    """

    def __init__(self, at: str) -> None:
        self._at = at
        self._steps: object = None
        self._stands: Attempt | None = None
        self.armed = True

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if attempt is None or not attempt.live or not self.armed:
            return self._before_driver(cluster, event) if attempt is None else Fate.NOW
        if event.kind == "listen":
            self._steps = attempt
        if event.kind == self._at and attempt is self._steps and self._stands is None:
            self._stands, self.stood = attempt, True
            attempt.pause()
        elif event.kind == "init" and self._stands not in (None, attempt):
            raise Crash(str(event))
        return Fate.NOW

    def _before_driver(self, cluster: Cluster, event: RequestEvent) -> Fate:
        return Fate.NOW


class ContinuesFirst(StandsStillWithinAStep):
    """Once it may, it continues before all others."""

    may_continue = False

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        return count - 1 if self.may_continue and what.startswith("who") else super().choose(count, what)


def an_old_session_commits_after_a_switch(at: str = "commit") -> None:
    """No task has committed anything live, so there is no marker that the switch could replace."""
    chaos = ContinuesFirst(at)
    application = started_live(chaos)
    assert application.run() is not None, "the story did not happen"
    chaos.may_continue = True
    switches(application, "micro-batch")
    application.work()
    application.verify()


def an_old_session_fences_after_a_switch() -> None:
    """It fences whoever has taken over, and must find that its query is over: its task has never committed anything."""
    with fencing_in_first_steps():
        an_old_session_commits_after_a_switch("init")


@contextmanager
def fencing_in_first_steps() -> Iterator[None]:
    """Slots replace their producers before their first step, too, as if the first ones could not be used."""
    genuine = SharedProducer.transaction

    def transaction(shared: SharedProducer) -> StepsTransaction:
        if shared._transaction is None:
            shared._replace()
        return genuine(shared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SharedProducer, "transaction", transaction)
        yield


class ContinuesWithinASwitch(StandsStillWithinAStep):
    """It continues right before the driver fences one of its tasks for the second time."""

    continued = False

    def __init__(self) -> None:
        super().__init__("init")
        self._fenced: set[str] = set()

    def _before_driver(self, cluster: Cluster, event: RequestEvent) -> Fate:
        if not (cluster.switching and event.kind == "init"):
            return Fate.NOW
        if event.where in self._fenced and self._stands in cluster.zombies:
            self.continued = True
            cluster.let_go_on(self._stands)
        self._fenced.add(event.where)
        return Fate.NOW


def an_old_session_commits_within_a_switch() -> None:
    """What it commits before the switch replaces its marker counts, so micro-batches begin behind it."""
    chaos = ContinuesWithinASwitch()
    chaos.armed = False
    with fencing_in_first_steps():
        application = started_live(chaos)
        application.work()
        feed(application, 12)
        chaos.armed = True
        assert application.run() is not None, "the story did not happen"
        switches(application, "micro-batch")
        application.work()
        assert chaos.continued, "the story did not happen"
        application.verify()


class DiesBeforeItsFirstCommit(InHalves):
    """Slot 1 dies before each of its commits, and the driver gives up; then there is one slot only."""

    over = False

    def before(self, cluster: Cluster, event: RequestEvent) -> Fate:
        """See `Chaos`."""
        attempt = cluster.attempt
        if not self.over and event.kind == "commit" and attempt is not None and attempt.task == 1:
            raise Crash(str(event))
        return Fate.NOW

    def choose(self, count: int, what: str) -> int:
        """See `Chaos`."""
        if what == "slots":
            return int(self.over)
        # Slot 1 begins, so that it has left something open when it is given up for good.
        return 1 if what.startswith("who") and not self.over and count > 1 else super().choose(count, what)


def a_slot_dies_and_there_are_fewer_slots() -> None:
    """Its transaction stays open on the logs of a task that is in another slot then, and has no marker."""
    chaos = DiesBeforeItsFirstCommit()
    application = started_live(chaos)
    assert application.run() is not None, "the story did not happen"
    assert not markers(application.cluster.kafka, COMMITS, 1), "the story did not happen"
    chaos.over = True
    application.work()
    application.verify()


def nobody_is_fenced() -> None:
    """Each producer has an id of its own, so that old ones go on; what is left open, the brokers abort at some time.

    Only the offsets of the markers tell then which of several processes may commit.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedKafka, "producer", unknown_to_others)
        patch.setattr(SimulatedKafka, "log_ends", once_all_is_decided)
        patch.setattr(simulated_application, "MISPLACED", 0)
        for seed in range(20):
            chaos = Seeded(
                seed, faults=4, odds=Odds(strike=0.05, pause=0.05, kinds=frozenset({"crash", "lost", "fail"}))
            )
            application = Application(chaos, Setup(WINDOW if seed % 2 else STAGES, executions=("auto", "auto")))
            with simulated_surroundings(application, seed):
                for _ in range(3):
                    application.feed(chaos.random, 6)
                    application.work()
                    application.stop()
                # Readers of the results see nothing behind what the dead have left open.
                application.rest()
                time_out(application.cluster.kafka, list(application.cluster.kafka._transactional.values()))
                application.verify()


def time_out(kafka: SimulatedKafka, some: Iterable[Transactional]) -> None:
    """The brokers abort what was open for too long."""
    for transactional in some:
        kafka.time_out(transactional.name)


def unknown_to_others(kafka: SimulatedKafka, transactional_id: str, kept: bool = False) -> SimulatedProducer:
    """A producer whose transactional id nobody else has."""
    name = f"{transactional_id} of {len(kafka._transactional)}"
    return SimulatedProducer(kafka, kafka._transactional.setdefault(name, Transactional(name)))


def written_by(transactional: Transactional) -> set[TopicPartition]:
    """Where control records are missing."""
    return {(log.topic, log.partition) for log, _ in (*transactional.open.values(), *transactional.decided)}


genuine_ends = SimulatedKafka.log_ends


def once_all_is_decided(
    kafka: SimulatedKafka, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Where logs end, once the transactions that were open there have come to the end of their time."""
    places = list(partitions)
    time_out(kafka, [one for one in kafka._transactional.values() if written_by(one).intersection(places)])
    return genuine_ends(kafka, places)


def markers_are_lost() -> None:
    """A broker that lacks a task's last steps becomes the leader of its log of commits, while the application is stopped."""
    application = started_live(Quiet())
    application.work()
    log = application.cluster.kafka.log(COMMITS, 0)
    entries, end = len(log.entries), log.end
    feed(application, 12)
    application.work()
    application.stop()
    assert log.end > end, "the story did not happen"
    log.end = end
    del log.entries[entries:]
    try:
        application.work()
    except Refused as refused:
        # The other task has lost nothing, and may go on meanwhile.
        if not isinstance(refused.__cause__, CheckpointMismatchError):
            raise
        return
    application.verify()


def executions_are_switched() -> None:
    """From live execution to micro-batches and back, while the executions before have left their steps."""
    application = started_live(Quiet())
    for execution in ("micro-batch", "auto", "micro-batch"):
        application.work()
        switches(application, execution)
        feed(application, 6)
    application.work()
    application.verify()
