"""When a local store is trusted, and when it is not."""

from dataclasses import replace

import pytest

from state.changelog import DELETE_RETENTION_MS
from state.errors import RestoreError
from state.restore.plan import Action, LogRange, RestoreTarget, plan_restore
from state.stores.position import StoreOrigin
from state.stores.spec import StoreKind, StoreSpec

TABLE = StoreSpec("s", StoreKind.KEY_VALUE)
JOIN = StoreSpec("s", StoreKind.WINDOW, retention_ms=1, retain_duplicates=True)
MAX_AGE_MS = DELETE_RETENTION_MS // 2
NOW = 10 * MAX_AGE_MS
TARGET = RestoreTarget("query", 5, {"s": 100}, written_ms=NOW, changelog_ids={"s": "id"})


HERE = StoreOrigin("query", "id", NOW)
LOG = LogRange(0, 101, "id")


def plan(origin=HERE, offset=90, log=LOG, spec=TABLE, target=TARGET):
    offsets = {} if offset is None else {"s": offset}
    origins = {} if origin is None else {"s": origin}
    (one,) = plan_restore([spec], origins, offsets, target, {"s": log}, now_ms=NOW)
    return one


def test_behind_reads_the_tail():
    one = plan()
    assert (one.action, one.start, one.end) == (Action.TAIL, 90, 100)


def test_up_to_date_reads_nothing():
    assert plan(offset=100).action is Action.NOTHING


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"offset": None, "origin": None}, "no local state"),
        ({"origin": None}, "does not say where it comes from"),
        ({"origin": StoreOrigin("other", "id", NOW)}, "comes from query other"),
        ({"origin": StoreOrigin("query", "id-0", NOW)}, "with id id-0, this one has id"),
        ({"offset": 101}, "is ahead"),
        ({"log": LogRange(95, 101, "id")}, "starts at 95"),
        ({"origin": StoreOrigin("query", "id", NOW - MAX_AGE_MS - 1)}, "tombstones may be gone"),
        ({"origin": StoreOrigin("query", "id", NOW - 1001), "log": LogRange(0, 101, "id", 2000)}, "1 s old"),
        ({"origin": StoreOrigin("query", "id", NOW + 86_400_000)}, "86400 s newer than the clock of this host"),
    ],
)
def test_distrusted_stores_are_restored_from_the_start(change, reason):
    one = plan(**change)
    assert one.action is Action.FROM_START
    assert reason in one.reason
    assert one.start == change.get("log", LogRange(0, 0)).begin


def test_age_matters_only_where_tombstones_can_vanish():
    old = StoreOrigin("query", "id", NOW - MAX_AGE_MS - 1)
    assert plan(origin=old, spec=JOIN).action is Action.TAIL
    assert plan(origin=old, offset=100).action is Action.NOTHING


def test_what_is_not_known_of_a_topic_is_not_compared():
    assert plan(origin=StoreOrigin("query", "", NOW)).action is Action.TAIL
    assert plan(log=LogRange(0, 101)).action is Action.TAIL
    assert plan(target=replace(TARGET, changelog_ids={})).action is Action.TAIL


def test_a_changelog_that_was_created_again_and_has_grown_is_an_error():
    with pytest.raises(RestoreError, match=r"created again after step 5: its id was id, now it is id-2"):
        plan(log=LogRange(0, 101, "id-2"))


def test_a_store_without_a_log_is_emptied_if_it_is_foreign():
    spec = StoreSpec("s", StoreKind.KEY_VALUE, logged=False)
    (one,) = plan_restore([spec], {"s": StoreOrigin("other")}, {}, TARGET, {}, now_ms=NOW)
    assert (one.action, one.start, one.end) == (Action.FROM_START, 0, 0)
    assert plan_restore([spec], {"s": HERE}, {}, TARGET, {}, now_ms=NOW) == []


def test_a_log_shorter_than_the_marker_says_is_an_error():
    with pytest.raises(RestoreError, match=r"ends at offset 99.*says 100"):
        plan(log=LogRange(0, 99, "id"))


def test_a_whole_log_that_was_trimmed():
    one = plan(offset=None, origin=None, log=LogRange(101, 101, "id"))
    assert (one.start, one.end) == (100, 100)
