"""When a local store is trusted, and when it is not."""

import pytest

from state.errors import RestoreError
from state.restore.plan import MAX_AGE_MS, Action, LogRange, RestoreTarget, plan_restore
from state.stores.position import StorePosition
from state.stores.spec import StoreKind, StoreSpec

TABLE = StoreSpec("s", StoreKind.KEY_VALUE)
JOIN = StoreSpec("s", StoreKind.WINDOW, retention_ms=1, retain_duplicates=True)
NOW = 10 * MAX_AGE_MS
TARGET = RestoreTarget("query", 5, {"s": 100}, written_ms=NOW)


HERE = StorePosition("query", 4, {"s": 90}, NOW)
LOG = LogRange(0, 101)


def plan(position=HERE, offset=90, log=LOG, spec=TABLE):
    offsets = {} if offset is None else {"s": offset}
    (one,) = plan_restore([spec], position, offsets, TARGET, {"s": log}, now_ms=NOW)
    return one


def test_behind_reads_the_tail():
    one = plan()
    assert (one.action, one.start, one.end) == (Action.TAIL, 90, 100)


def test_up_to_date_reads_nothing():
    assert plan(offset=100).action is Action.NOTHING


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": None, "position": None}, "no local state"),
        ({"position": StorePosition("other", 4, {}, NOW)}, "comes from query other"),
        ({"offset": 101}, "is ahead"),
        ({"log": LogRange(95, 101)}, "starts at 95"),
        ({"position": StorePosition("query", 4, {}, NOW - MAX_AGE_MS - 1)}, "tombstones may be gone"),
    ],
)
def test_distrusted_stores_are_restored_from_the_start(change, reason):
    one = plan(**change)
    assert one.action is Action.FROM_START
    assert reason in one.reason
    assert one.start == change.get("log", LogRange(0, 0)).begin


def test_age_matters_only_where_tombstones_can_vanish():
    old = StorePosition("query", 4, {}, NOW - MAX_AGE_MS - 1)
    assert plan(position=old, spec=JOIN).action is Action.TAIL
    assert plan(position=old, offset=100).action is Action.NOTHING


def test_a_log_shorter_than_the_marker_says_is_an_error():
    with pytest.raises(RestoreError, match=r"ends at offset 99.*says 100"):
        plan(log=LogRange(0, 99))


def test_a_whole_log_that_was_trimmed():
    one = plan(offset=None, position=None, log=LogRange(101, 101))
    assert (one.start, one.end) == (100, 100)


def test_stores_without_a_log_need_nothing():
    spec = StoreSpec("s", StoreKind.KEY_VALUE, logged=False)
    assert plan_restore([spec], None, {}, TARGET, {}, now_ms=NOW) == []
