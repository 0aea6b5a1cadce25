"""What new tasks begin with."""

from __future__ import annotations

import pytest

from streams.application.rescale.plan import UsersChoices, merged_state, sources_of
from streams.errors import RescaleError

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
    with pytest.raises(RescaleError, match="Take a multiple of the present number"):
        merged(nodes(seen=1), nodes(seen=2), users=users, choices=copied)


def test_state_without_a_rule_is_refused():
    with pytest.raises(RescaleError, match="no rule"):
        merged(nodes(unheard_of="text"))
    with pytest.raises(RescaleError, match="no rule"):
        merged({"task": {"unheard_of": 1}})
