"""What the driver says and counts of tasks that move between hosts."""

from io import StringIO

from rich.console import Console

from state.restore.plan import Action
from state.restore.restorer import RestoreReport, StoreReport
from streams.metrics.application import StepFigures
from streams.microbatch.step import SAY_EVERY_S, TaskHosts, restored
from streams.spark.progress import Progress


def report(host, task=0, restore=None):
    return StepFigures(task, 1, host=host, restore=restore)


def read(action, copy="", records=5):
    return restored(RestoreReport(0, (StoreReport("totals", action, "", records),), copy))


def said(first, second, restore):
    placement = TaskHosts()
    assert not placement.moved("orders", report(first))
    placement.moved("orders", report(second, restore=restore))
    return placement.lines


def test_a_line_says_where_a_task_has_moved_and_what_that_has_cost():
    assert said("a", "b", read(Action.FROM_START, records=1200)) == [
        "task 0 moved from a to b: restored from 1,200 changelog records"
    ]
    assert said("a", "b", read(Action.TAIL)) == ["task 0 moved from a to b: rolled forward by 5 changelog records"]
    assert said("a", "b", read(Action.TAIL, "the replica in var")) == [
        "task 0 moved from a to b: taken over from the replica in var, then 5 changelog records"
    ]
    assert said("a", "b", restored(RestoreReport(0, ()))) == ["task 0 moved from a to b: its state was there"]
    assert said("a", "a", read(Action.TAIL)) == []


def test_every_move_counts_but_a_task_that_moves_all_the_time_is_a_line_every_ten_seconds():
    now = [0.0]
    placement = TaskHosts(lambda: now[0])
    moves = 0
    for step in range(100):
        now[0] += SAY_EVERY_S / 20
        moves += placement.moved("orders", report("ab"[step % 2]))
    assert moves == 99
    assert len(placement.lines) == 5


def test_tasks_of_sub_topologies_are_told_apart():
    placement = TaskHosts()
    placement.moved("orders", report("a"))
    placement.moved("orders", report("b", task=1))
    placement.moved("pairs", report("b"))
    assert placement.lines == []


def test_progress_shows_moves_and_counts_them():
    out = StringIO()
    progress = Progress("shop", Console(file=out, width=200), clock=lambda: 0.0)
    progress.started("orders", 1, ("orders",))
    with progress:
        for batch, host in enumerate("aab"):
            progress.step("orders", batch, [report(host, restore=read(Action.TAIL))])
    assert "shop/orders: task 0 moved from a to b: rolled forward by 5 changelog records" in out.getvalue()
    assert progress.subs["orders"].counters == {"moved": 1}
    assert "moved 1" in out.getvalue()
