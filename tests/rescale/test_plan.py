"""Where the checkpoint of the new tasks begins, and what is refused because it is not at rest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from streams.application.rescale.plan import UsersChoices, first_batch, merged_state, sources_of
from streams.application.start import Findings, Preflight
from streams.checkpoint.compare import SubIdentity
from streams.checkpoint.files import Checkpoint
from streams.engine.source.offsets import FirstBatch, SourceOffsets, TopicOffsets
from streams.errors import RescaleError
from tests.checkpoint.made import made_marker

SUB = SubIdentity("app", "in", 2, "hash")


def at(offset: int, now_ms: int | None = None) -> SourceOffsets:
    return SourceOffsets({"in": TopicOffsets("id", (offset,))}, now_ms=now_ms)


def checkpoint(logged: int, committed: int, first: FirstBatch | None = None) -> Checkpoint:
    offsets = {batch: at(10 * (batch + 1), now_ms=7) for batch in range(logged + 1)}
    return Checkpoint("query", logged, committed, offsets, first or FirstBatch(at(0)))


def test_reading_goes_on_where_the_last_micro_batch_ended():
    markers = {0: made_marker(0, batch_id=3), 1: None}
    assert first_batch(SUB, checkpoint(3, 3), markers) == FirstBatch(at(40), fixed=True)


def test_a_micro_batch_that_was_only_planned_is_planned_again():
    markers = {0: made_marker(0, batch_id=3), 1: made_marker(1, batch_id=2)}
    assert first_batch(SUB, checkpoint(4, 3), markers) == FirstBatch(at(40), fixed=True)
    assert first_batch(SUB, checkpoint(0, -1), {0: None, 1: None}) == FirstBatch(at(0))


def test_a_micro_batch_that_a_task_has_committed_must_be_finished_first():
    with pytest.raises(RescaleError, match="micro-batch 4 was begun and is not finished"):
        first_batch(SUB, checkpoint(4, 3), {0: made_marker(0, batch_id=4), 1: made_marker(1, batch_id=3)})


def test_the_micro_batch_that_an_adoption_repeats_must_be_finished_first():
    adopted = checkpoint(-1, -1, FirstBatch(at(0), at(10)))
    with pytest.raises(RescaleError, match="micro-batch 0 was begun and is not finished"):
        first_batch(SUB, adopted, {0: made_marker(0, batch_id=0), 1: made_marker(1, batch_id=-1)})


def test_a_checkpoint_without_a_micro_batch_begins_where_it_would_have_begun():
    assert first_batch(
        SUB, checkpoint(-1, -1, FirstBatch(at(5))), {0: made_marker(0, batch_id=-1), 1: None}
    ) == FirstBatch(at(5), fixed=True)
    assert first_batch(SUB, Checkpoint(), {0: None, 1: None}) is None


def test_where_state_ends_is_where_the_next_start_begins_though_nothing_is_logged():
    class Unlogged(Preflight):
        """Its sources would begin elsewhere, if they could choose."""

        def _planner(self, prepared: Any) -> Any:
            return SimpleNamespace(initial=lambda: at(0), limit=None)

        def markers(self, prepared: Any) -> Any:
            return None

    read = FirstBatch.from_json(FirstBatch(at(40), fixed=True).to_json())
    preflight = Unlogged(None, None, None, print)  # type: ignore[arg-type]
    prepared = SimpleNamespace(sub=SimpleNamespace(name="in"))
    assert preflight._first(prepared, Findings(checkpoint(-1, -1, read), {}, None)) == FirstBatch(at(40), fixed=True)


# --- What new tasks begin with.

NOTHING = UsersChoices()


def merged(*states: dict, task: int = 0, tasks: int = 1, users: frozenset[str] = frozenset(), choices=NOTHING) -> dict:
    return merged_state(states, task, tasks, users, choices)


def nodes(**state: object) -> dict:
    return {"nodes": {"node": state}}


@pytest.mark.parametrize(
    ("task", "old", "new", "sources"), [(0, 2, 4, [0]), (3, 2, 4, [1]), (1, 6, 2, [1, 3, 5]), (0, 3, 2, [0, 1, 2])]
)
def test_a_new_task_takes_over_keys_of_the_tasks_with_the_same_remainder(task, old, new, sources):
    assert list(sources_of(task, old, new)) == sources


def test_times_are_the_earliest_so_that_no_record_is_late_that_would_not_have_been():
    assert merged(nodes(stream_time=70), nodes(stream_time=50)) == nodes(stream_time=50)


def test_a_task_that_has_seen_no_record_leaves_the_time_open_and_idle_time_begins_at_the_smallest_of_the_others():
    assert merged(nodes(stream_time=70), {}, nodes(stream_time=50)) == nodes(idle_from=50)
    assert merged(nodes(idle_from=50), nodes(stream_time=40, idle_from=20)) == nodes(idle_from=40)
    assert merged(nodes(stream_time=40, idle_from=20)) == nodes(stream_time=40)
    task = [{"task": {"time": {"stream_time": time}}} for time in (70, -1)]
    assert merged(*task) == {"task": {"time": {"idle_from": 70}}}
    assert merged({"task": {"time": {"stream_time": -1}}}, {}) == {}


def test_bounds_of_rows_stay_bounds_and_numbers_are_not_used_twice():
    states = nodes(earliest=30, number=4, records=3, bytes=99), nodes(earliest=20, number=9, records=1, bytes=5)
    assert merged(*states) == nodes(earliest=20, number=9)
    assert merged(nodes(oldest_start={"1": 5, "2": 9}), nodes(oldest_start={"2": 7})) == nodes(
        oldest_start={"1": 5, "2": 7}
    )


def test_the_newest_row_of_a_joins_store_is_the_newest_of_all():
    shared = [{"shared": {"join": {"join-this": time, "stream_time": time}}} for time in (10, 30)]
    assert merged(*shared) == {"shared": {"join": {"join-this": 30, "stream_time": 10}}}


def test_partition_times_go_to_the_task_that_owns_the_partition():
    times = {"task": {"partition_times": {"in": {"0": [[5, 50]], "2": [[7, 70]]}}}}
    assert merged(times, task=0, tasks=4) == {"task": {"partition_times": {"in": {"0": [[5, 50]]}}}}
    assert merged(times, task=2, tasks=4) == {"task": {"partition_times": {"in": {"2": [[7, 70]]}}}}


def test_a_schedule_goes_on_at_its_earliest_time_unless_all_tasks_have_cancelled_it():
    one = {
        "task": {"punctuations": {"node/0": {"next": 50, "cancelled": True}, "node/1": {"next": 5, "cancelled": True}}}
    }
    two = {"task": {"punctuations": {"node/0": {"next": 40}, "node/1": {"next": 9, "cancelled": True}}}}
    assert merged(one, two)["task"]["punctuations"] == {
        "node/0": {"next": 40},
        "node/1": {"next": 5, "cancelled": True},
    }


def test_what_counts_for_one_start_or_one_changelog_is_left_out():
    assert merged({"task": {"idle": {"since": 1}, "needed": {"store": [[1, 2]]}}}) == {}


def test_a_processors_state_needs_the_users_word():
    users = frozenset({"node"})
    with pytest.raises(RescaleError, match="--state node=copy"):
        merged(nodes(seen=1), users=users)
    assert merged(nodes(seen=1), users=users, choices=UsersChoices(states={"node": "drop"})) == {}
    copied = UsersChoices(states={"node": "copy"})
    assert merged(nodes(seen=1), {}, nodes(seen=1), users=users, choices=copied) == nodes(seen=1)
    with pytest.raises(RescaleError, match="a multiple of the current number"):
        merged(nodes(seen=1), nodes(seen=2), users=users, choices=copied)


def test_state_without_a_rule_is_refused():
    with pytest.raises(RescaleError, match="no rule"):
        merged(nodes(unheard_of="text"))
    with pytest.raises(RescaleError, match="no rule"):
        merged({"task": {"unheard_of": 1}})
