"""Changelog records that are not needed any more stay for a while, whoever runs the task meanwhile."""

from dataclasses import replace

import pytest

from state.changelog import changelog_topic, due, note_needed, noted, trim_notes
from state.kafka.topics import TopicInfo
from state.restore.task_stores import TaskStateManager, WorkerMemory
from state.stores.spec import StoreKind
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, SPECS, MemoryLogs, commit, marker_of
from tests.restore.test_task_stores import IDENTITY

DAY = 24 * 3_600_000


def run(steps, delay):
    """Steps of (time, first offset needed): where each may cut, and what the marker holds at most."""
    notes, cuts, most = {}, [], 0
    for now, offset in steps:
        cuts.append(due(notes, {"s": offset}, now, delay).get("s", 0))
        state = {"nodes": {}}
        note_needed(state, {"task": {"needed": notes}}, {"s": offset}, now, delay)
        notes = trim_notes(state)
        most = max(most, *(len(of_store) for of_store in notes.values()), 0) if notes else most
    return cuts, most


def test_what_a_jump_of_time_has_expired_stays_a_day():
    steps = [(0, 10), (1_000, 10), (2_000, 5_000), (2_000 + DAY - 1, 5_000), (2_000 + DAY + 1_000, 5_000)]
    # The jump at 2000 comes within an eighth of a day of the last note: it is noted with the next step behind that.
    cuts, _ = run([*steps, (2_000 + 3 * DAY, 5_000)], DAY)
    assert cuts == [0, 0, 0, 10, 10, 5_000]


def test_notes_stay_few_and_the_changelog_bounded():
    minute = 60_000
    steps = [(n * minute, n) for n in range(3 * 24 * 60)]
    cuts, most = run(steps, DAY)
    assert most <= 10
    for (now, _), cut in list(zip(steps, cuts, strict=True))[24 * 60 * 5 // 4 :]:
        assert now - cut * minute >= DAY, "a day at least"
        assert now - cut * minute <= DAY + 2 * (DAY // 8) + minute, "and hardly more"


def test_without_a_delay_all_goes_at_once():
    cuts, most = run([(0, 10), (1, 20)], 0)
    assert (cuts, most) == ([10, 20], 0)


def test_what_is_needed_again_is_never_cut():
    # As after a restore, which may know less of what is expired.
    assert due({"s": [(0, 50)]}, {"s": 20}, 2 * DAY, DAY) == {"s": 20}


@pytest.mark.parametrize("notes", [{}, {"other": [(0, 5)]}])
def test_a_store_without_notes_waits(notes):
    assert due(notes, {"s": 20}, 2 * DAY, DAY) == {}
    assert noted(notes, {"s": 20}, 2 * DAY, DAY) == {"s": [(2 * DAY, 20)]}


def test_a_clock_that_goes_back_delays_only():
    assert noted({"s": [(DAY, 5)]}, {"s": 9}, 0, DAY) == {"s": [(DAY, 5)]}


class Deleting(MemoryLogs):
    """Notes the cuts that are asked for."""

    def __init__(self):
        super().__init__()
        self.cuts = []

    def delete_records(self, before):
        self.cuts.append(dict(before))

    def describe_topics(self, names):
        return {name: TopicInfo(topic_id, 1) for name, topic_id in self.topic_ids(names).items()}


def test_a_tasks_stores_cut_only_what_the_marker_says_is_due(tmp_path):
    logs = Deleting()
    store = TaskStore(MemoryTable(), SPECS)
    windows = next(spec.name for spec in SPECS if spec.kind is StoreKind.TIMESTAMPED_WINDOW)
    for version, start in ((1, 0), (2, 10_000_000)):
        store.store(windows).put(b"k", start, bytes(8) + b"v", start)
        store.expire(windows, start)
        target = commit(store, logs, version)
    # A store that is just made from the changelog judges nothing: the step before has made it.
    before = TaskStateManager(logs, IDENTITY, SPECS, tmp_path, memory=WorkerMemory())
    with before.open() as opened:
        before.restore_to(opened, marker_of(target))
    for trim_delay_ms, notes, cut in (
        (0, {}, 2),
        (DAY, {}, None),
        (DAY, {windows: [[5, 1]]}, None),
        (DAY, {windows: [[4, 1]]}, 1),
    ):
        stores = TaskStateManager(
            logs,
            IDENTITY,
            SPECS,
            tmp_path,
            clock_ms=lambda: DAY + 4,
            memory=WorkerMemory(),
            trim_delay_ms=trim_delay_ms,
        )
        marker = replace(marker_of(target), operator_state={"task": {"needed": notes}})
        logs.cuts.clear()
        with stores.open() as opened:
            stores.restore_to(opened, marker)
            stores.trim(opened, stores.to_trim(opened))
        place = (changelog_topic(APPLICATION, windows), 0)
        assert [one[place] for one in logs.cuts if place in one] == ([] if cut is None else [cut])
