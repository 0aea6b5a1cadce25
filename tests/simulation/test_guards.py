"""Each guard of the protocol is necessary: with the guard switched off, a story about its danger fails."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from state.commit import decide, guards, step, transaction
from state.commit.decide import Decision
from state.commit.session import TaskSession
from state.commit.shared import SharedProducer
from state.restore import plan, restorer
from state.restore.snapshots import TaskSnapshots
from state.stores.task_store import TaskStore
from state.tables.buffer import WriteBuffer
from streams.application import adopt, execution, markers, start
from streams.application.dead_letters import Replayed
from streams.application.markers import MarkerAccess
from streams.checkpoint.files import Checkpoint
from streams.engine.graph import global_tables
from streams.engine.live.task import LiveTask
from streams.engine.source import topics
from streams.engine.source.pauses import PauseWatch
from streams.engine.source.planner import BatchPlanner
from streams.engine.task import task
from streams.testing.simulation import SimulatedKafka, SimulatedTable
from streams.testing.simulation.kafka import SimulatedProducer
from tests import budget
from tests.simulation import stories
from tests.simulation.application import Failed
from tests.simulation.programs import ENRICH, ERRORS, STAGES, TICKS, WINDOW
from tests.simulation.verify import Red


def nothing(*_, **__):
    """A check that never finds anything."""


def one_producer_for_all_steps(patch):
    fenced, made = guards.fenced_producer, {}

    def producer(kafka, transactional_id, kept=False):
        if (kafka, transactional_id) not in made:
            made[kafka, transactional_id] = fenced(kafka, transactional_id)
        return made[kafka, transactional_id]

    patch.setattr(guards, "fenced_producer", producer)


def fence_after_reading(patch):
    def producer(kafka, transactional_id, kept=False):
        made = kafka.producer(transactional_id)
        begin = made.begin

        def fence_and_begin():
            made.init_transactions()
            begin()

        made.begin = fence_and_begin
        return made

    patch.setattr(guards, "fenced_producer", producer)


def store_before_commit(patch):
    send = transaction.StepTransaction.send

    def send_and_apply(self, step, last, store, effects, ends, known, watch):
        result, position = send(self, step, last, store, effects, ends, known, watch)
        store.apply(position)
        return result, position

    patch.setattr(transaction.StepTransaction, "send", send_and_apply)


def spilled_writes_are_in_the_table(patch):
    move_to = WriteBuffer.move_to

    def move_into_both(self, scratch):
        for key, value in list(self.changes(self._prefix, self._end) or ()):
            self._table.write([(key, value)])
        move_to(self, scratch)

    patch.setattr(WriteBuffer, "move_to", move_into_both)


def writes_after_a_spill_are_forgotten(patch):
    parts = WriteBuffer._spilled_parts

    def parts_of_scratch(self):
        self._forget()
        yield from parts(self)

    patch.setattr(WriteBuffer, "_spilled_parts", parts_of_scratch)


def files_are_not_verified(patch):
    def fetch(self, snapshot, into):
        for file in snapshot.files:
            self._location.get(self._file(file.sha256), into / file.name)

    patch.setattr(TaskSnapshots, "fetch", fetch)


def trimmed_when_planned(patch):
    latest = BatchPlanner.latest

    def latest_and_trim(self, start):
        end = latest(self, start)
        self.confirmed(end)
        return end

    patch.setattr(BatchPlanner, "latest", latest_and_trim)


def topics_out_of_sight_are_forgotten(patch):
    positions = LiveTask._positions

    def positions_and_forget(self):
        found = positions(self)
        self._hidden = {}
        return found

    patch.setattr(LiveTask, "_positions", positions_and_forget)


def off(*places):
    """Switches checks off: (where, name)."""

    def switch(patch):
        for where, name in places:
            patch.setattr(where, name, nothing)

    return switch


@dataclass(frozen=True)
class Guard:
    """A guard.

    Attributes:
        name: What the guard ensures.
        off: Switches the guard off.
        story: The danger that the guard averts.
    """

    name: str
    off: Callable
    story: Callable


def no_fence(patch):
    def fence(self, transactional):
        transactional.epoch = 0
        self.decide(transactional)
        return 0

    patch.setattr(SimulatedKafka, "_fence", fence)


def no_others(patch):
    genuine = SharedProducer.__init__

    def init(self, kafka, name, others=(), running=()):
        genuine(self, kafka, name, (), running)

    patch.setattr(SharedProducer, "__init__", init)


def not_called_again(patch):
    """Tasks without rows are not called in a repeated micro-batch, and a commit that Spark passed over is not accepted."""
    patch.setattr(BatchPlanner, "is_repeat", lambda *_: False)
    patch.setattr(decide, "follows", lambda *_: False)


def twice_as_if_nobody_had_sent_it(patch):
    patch.setattr(Replayed, "has", lambda *_: False)


def no_barriers(patch):
    versions = execution.versions_of
    patch.setattr(execution, "versions_of", lambda found: versions({t: m for t, m in found.items() if m is not None}))


def positions_of_the_start(patch):
    positions = LiveTask._positions
    patch.setattr(
        LiveTask, "_positions", lambda self: {topic: self._start.of(topic, self.task) for topic in positions(self)}
    )


def positions_of_before_the_fence(patch):
    take_over = execution.Switch._take_over

    def with_old_positions(self, prepared, at):
        found = self.preflight.markers(prepared).read()
        return take_over(self, prepared, lambda _: at(found))

    patch.setattr(execution.Switch, "_take_over", with_old_positions)


def too_far(patch):
    genuine = task.idle_ms
    patch.setattr(task, "idle_ms", lambda *given: 2 * genuine(*given))


GUARDS = [
    Guard("one producer a step", one_producer_for_all_steps, stories.unlucky("late", "crash")),
    Guard("fence before reading the marker", fence_after_reading, stories.unlucky("crash", pause=0.2)),
    Guard(
        "the marker decides",
        lambda patch: patch.setattr(step, "decide", lambda *_: Decision.RUN),
        stories.unlucky("crash", "lost"),
    ),
    Guard(
        "markers and checkpoint are compared before any task runs",
        off(*((start, check) for check in ("check_program", "check_checkpoint", "check_topic"))),
        stories.checkpoint_is_rolled_back,
    ),
    Guard(
        "no task starts empty running a changelog",
        off((guards, "check_nothing_written")),
        stories.commits_and_checkpoint_are_deleted,
    ),
    Guard("a skipped step was given the same rows", off((guards, "check_routing")), stories.keys_are_made_anew),
    Guard(
        "a repeated micro-batch calls every task",
        not_called_again,
        stories.a_task_has_no_rows_any_more,
    ),
    Guard(
        "records land where the step assumed", off((guards, "check_delivered")), stories.a_leader_of_yesterday_is_asked
    ),
    Guard(
        "nothing is committed behind an open transaction",
        off((guards, "check_decided"), (guards, "check_delivered")),
        stories.a_transaction_hangs,
    ),
    Guard("a roll-forward proves its records", off((plan, "check_step_digest")), stories.a_changelog_record_is_lost),
    Guard(
        "a changelog has all that was promised",
        off(
            (transaction, "check_end"),
            (plan, "check_end"),
            *((place, "check_changelog_id") for place in (plan, restorer)),
        ),
        stories.changelog_is_made_anew,
    ),
    Guard("the disk follows the commit", store_before_commit, stories.commits_fail),
    Guard(
        "writes that have spilled wait for the commit, too",
        spilled_writes_are_in_the_table,
        stories.unlucky("crash", count=20),
    ),
    Guard(
        "what is written after a spill belongs to the step",
        writes_after_a_spill_are_forgotten,
        stories.writes_spill_at_times,
    ),
    Guard(
        "a write to the disk is atomic",
        lambda patch: patch.setattr(SimulatedTable, "atomic", False),
        stories.crashes_after_writes,
    ),
    Guard(
        "only changelogs of ended windows are trimmed",
        lambda patch: patch.setattr(TaskStore, "trim_offsets", TaskStore.offsets),
        stories.trimmed_windows_and_lost_disks,
    ),
    Guard("inputs are trimmed when they are consumed", trimmed_when_planned, stories.unlucky("crash", program=STAGES)),
    Guard(
        "an adopted micro-batch is done before positions are moved",
        lambda patch: patch.setattr(Checkpoint, "repeats", False),
        stories.positions_are_moved_within_an_adopted_micro_batch,
    ),
    Guard(
        "positions in the application's own topics stay",
        lambda patch: patch.setattr(adopt, "_with_unmoved_topics", lambda sub, first, checkpoint, markers: first),
        stories.positions_are_moved_twice,
    ),
    Guard("a pause holds", lambda patch: patch.setattr(PauseWatch, "__call__", lambda _: False), stories.paused),
    Guard(
        "dead letters are in the transaction of their step",
        lambda patch: patch.setattr(step, "decide", lambda *_: Decision.RUN),
        stories.unlucky("crash", "lost", program=ERRORS, count=30),
    ),
    Guard("a letter is sent once", twice_as_if_nobody_had_sent_it, stories.unlucky("crash", program=ERRORS, count=30)),
    Guard(
        "answers from elsewhere and ticks are part of a step that is not repeated",
        lambda patch: patch.setattr(step, "decide", lambda *_: Decision.RUN),
        lambda: (
            stories.unlucky("crash", program=ENRICH, count=30)(),
            stories.unlucky("crash", program=TICKS, count=20)(),
        ),
    ),
    Guard("idle time is no longer than the clock's", too_far, stories.idle_at_times),
    Guard(
        "a global table that was away for long is read again",
        lambda patch: patch.setattr(global_tables, "cannot_continue", lambda *_: None),
        stories.a_row_is_deleted_while_nobody_reads,
    ),
    Guard(
        "a snapshot is verified",
        files_are_not_verified,
        stories.unlucky("crash", pause=0.05, count=60, with_snapshots=1),
    ),
    Guard(
        "a copy that may have missed deletions is not used",
        lambda patch: patch.setattr(plan.LogRange, "outlives", lambda *_: False),
        stories.a_replica_is_old,
    ),
    Guard(
        "a producer that may have asked twice writes no other transaction",
        lambda patch: patch.setattr(SimulatedProducer, "again", lambda producer: not producer._begun),
        stories.a_commit_arrives_within_the_next_step,
    ),
    Guard(
        "a session that fences again compares the marker with its own",
        off((TaskSession, "_check")),
        stories.an_old_session_wakes_up,
    ),
    Guard("live sessions fence", no_fence, stories.unlucky("crash", pause=0.2, count=20, program=WINDOW, with_live=1)),
    Guard(
        "a live task continues at its marker",
        positions_of_the_start,
        stories.unlucky("crash", count=10, program=WINDOW, with_live=1),
    ),
    Guard(
        "micro-batches begin where live steps have ended",
        lambda patch: patch.setattr(execution, "position", lambda checkpoint, _: checkpoint.start(0)),
        stories.executions_are_switched,
    ),
    Guard(
        "a switch fences sessions that have committed nothing",
        lambda patch: (patch.setattr(MarkerAccess, "fenced", MarkerAccess.read), no_barriers(patch)),
        stories.an_old_session_commits_after_a_switch,
    ),
    Guard("a switch writes a marker where there is none", no_barriers, stories.an_old_session_fences_after_a_switch),
    Guard(
        "a switch decides its positions behind its last fence",
        positions_of_before_the_fence,
        stories.an_old_session_commits_within_a_switch,
    ),
    Guard(
        "a switch fences the slots of live execution",
        lambda patch: patch.setattr(markers, "slot_transactional_id", lambda *_: "nobody"),
        stories.an_old_session_commits_after_a_switch,
    ),
    Guard(
        "a slot fences those that its tasks may have been in", no_others, stories.a_slot_dies_and_there_are_fewer_slots
    ),
    Guard("a marker's offset says who may commit", off((guards, "check_delivered")), stories.nobody_is_fenced),
    Guard(
        "a log of commits is known by its topic's id",
        lambda patch: patch.setattr(guards, "id_of", lambda kafka, topic: topic),
        stories.an_attempt_of_before_a_rescale_wakes_up,
    ),
    Guard(
        "a session begins at the last step that was committed",
        off((guards, "check_is_last")),
        stories.markers_are_lost,
    ),
    Guard("a topic is known by its id", off((topics, "check_same")), stories.source_is_made_anew),
    Guard("a live task knows a topic by its id", off((topics, "check_same")), stories.source_is_made_anew_live),
    Guard(
        "a marker keeps positions of topics out of sight",
        topics_out_of_sight_are_forgotten,
        stories.a_topic_is_out_of_sight,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_with_it_all_is_well(guard, monkeypatch):
    """A history of a guard that is on is one more random history, so few are played of each."""
    monkeypatch.setattr(stories, "most_histories", budget.share(60))
    guard.story()


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_without_it_something_breaks(guard, monkeypatch):
    guard.off(monkeypatch)
    with pytest.raises((Red, Failed)):
        guard.story()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 65])
def test_a_history_is_the_same_each_time(seed):
    """Ids and the order of sets decide nothing: 2 has snapshots, a damaged file and an adoption, 65 several sub-topologies."""
    traces = []
    for hashes in "12":
        command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed)]
        played = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": hashes}, capture_output=True, text=True)
        traces.append(re.sub(r"/simulated-[^/]*/", "/", played.stdout).splitlines())
    assert traces[0] == traces[1]
    assert traces[0][-1] == "all is well"


def test_an_old_attempt_commits_after_an_adoption():
    stories.an_old_attempt_commits_after_an_adoption()


def test_a_lost_checkpoint():
    stories.checkpoint_is_lost()


def test_a_record_with_a_made_key_that_compaction_has_cleaned():
    stories.a_record_with_a_made_key_is_cleaned()


def test_a_micro_batch_that_all_tasks_have_committed_is_not_compared_with_a_later_program():
    application = stories.keys_change_before_an_adopted_checkpoint_is_used()
    stories.feed(application, 6)
    application.work()
    application.verify()


def test_a_micro_batch_that_a_task_has_yet_to_run_is_compared():
    assert stories.refuses_a_task(stories.keys_change_before_an_adopted_checkpoint_is_used(whole=False))
