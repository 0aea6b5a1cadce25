"""What the driver says and counts of tasks that move between hosts."""

from io import StringIO

from rich.console import Console

from state.restore.plan import Action
from state.restore.restorer import RestoreReport, StoreReport
from streams.driver.progress import Progress
from streams.engine.step.step import SAY_EVERY_S, TaskHosts, restored
from streams.metrics.application import StepFigures


def report(host, restore=None):
    return StepFigures(0, 1, host=host, restore=restore)


def read(action, copy="", records=5):
    return restored(RestoreReport(0, (StoreReport("totals", action, "", records),), copy))


def said(first, second, restore):
    hosts = TaskHosts()
    assert not hosts.moved("orders", 0, first, None)
    hosts.moved("orders", 0, second, restore)
    return hosts.lines


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
    hosts = TaskHosts(lambda: now[0])
    moves = 0
    for step in range(100):
        now[0] += SAY_EVERY_S / 20
        moves += hosts.moved("orders", 0, "ab"[step % 2], None)
    assert moves == 99
    assert len(hosts.lines) == 5


def test_tasks_of_sub_topologies_are_told_apart():
    hosts = TaskHosts()
    hosts.moved("orders", 0, "a", None)
    hosts.moved("orders", 1, "b", None)
    hosts.moved("pairs", 0, "b", None)
    assert hosts.lines == []


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


def test_a_live_task_that_is_opened_and_never_steps_has_moved_and_restored():
    """Its lease may end at once, for instance because the number of executors has changed; the next one finds the state there."""
    out = StringIO()
    progress = Progress("shop", Console(file=out, width=200), clock=lambda: 0.0)
    progress.started("orders", 1, ("orders",))
    with progress:
        progress.opened("orders", 0, "a", None)
        progress.opened("orders", 0, "b", read(Action.TAIL, "the replica in var"))
        progress.opened("orders", 0, "b", None, again=True)
        progress.step("orders", 1, [report("b")])
    assert (
        "shop/orders: task 0 moved from a to b: taken over from the replica in var, then 5 changelog records"
        in out.getvalue()
    )
    orders = progress.subs["orders"]
    assert orders.counters == {"moved": 1, "restored_from_copy": 1}
    assert (orders.tasks[0].restored.copies, orders.tasks[0].restored.records) == (1, 5)
    assert orders.tasks[0].failed_attempts == 1
