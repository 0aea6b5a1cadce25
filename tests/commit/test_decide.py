"""The decision table of a step: Spark's copy against the last marker in Kafka."""

from dataclasses import replace

import orjson
import pytest

from state.commit.decide import Decision, TaskIdentity, decide
from state.commit.guards import check_not_passed_over, check_routing
from state.commit.marker import NO_KEYS, CommitMarker, Routing
from state.errors import CheckpointMismatchError, MarkerFormatError, RoutingMismatchError

IDENTITY = TaskIdentity("app", "orders", 1, 4, "query-1", "hash-1")


def marker(version: int, batch_id: int = 7, batch: str = "b7") -> CommitMarker:
    return CommitMarker(
        query_id="query-1",
        task=1,
        tasks=4,
        topology_hash="hash-1",
        version=version,
        batch_id=batch_id,
        batch=batch,
        ranges={"orders": {"1": (10, 20)}},
        topic_ids={"orders": "id"},
        stream_time=99,
        operator_state={"node": {"stream_time": 99}},
        changelog_ends={"counts": 5},
        expired_before={},
        counts={"in": 10, "out": 1, "changelog": 5},
        changelog_hash="00",
        now_ms=1,
    )


def routed(digest: str, records: int = 10) -> Routing:
    return {"orders": {"1": (records, digest)}}


def test_first_step_runs() -> None:
    assert decide(IDENTITY, 0, "b0", None, None) is Decision.RUN


def test_next_step_runs() -> None:
    assert decide(IDENTITY, 8, "b8", marker(3), marker(3)) is Decision.RUN


def test_a_batch_that_kafka_has_already_is_skipped() -> None:
    assert decide(IDENTITY, 7, "b7", marker(3, 6, "b6"), marker(4)) is Decision.SKIP
    assert decide(IDENTITY, 7, "b7", None, marker(1)) is Decision.SKIP


def test_a_commit_that_spark_has_passed_over_is_valid_if_the_next_input_follows_it() -> None:
    behind, passed = marker(3, 6, "b6"), marker(4)
    assert decide(IDENTITY, 8, "b8", behind, passed, {"orders": {"1": (20, 30), "2": (0, 5)}}) is Decision.RUN
    for ranges in ({"orders": {"1": (19, 30)}}, {"orders": {"2": (0, 5)}}, {}):
        with pytest.raises(CheckpointMismatchError):
            decide(IDENTITY, 8, "b8", behind, passed, ranges)
    with pytest.raises(CheckpointMismatchError):
        decide(IDENTITY, 7, "other", behind, passed, {"orders": {"1": (20, 30)}})


def test_what_was_committed_behind_a_commit_that_spark_has_passed_over_is_skipped() -> None:
    behind, again = marker(3, 6, "b6"), replace(marker(5, 8, "b8"), passed_over=1)
    assert decide(IDENTITY, 8, "b8", behind, again) is Decision.SKIP
    with pytest.raises(CheckpointMismatchError, match="rolled back"):
        decide(IDENTITY, 8, "b8", behind, marker(5, 8, "b8"))


def test_a_commit_that_spark_has_passed_over_must_not_have_been_made_by_keys_of_functions() -> None:
    behind, passed = marker(3, 6, "b6"), marker(4)
    check_not_passed_over(IDENTITY, passed, behind, [])
    check_not_passed_over(IDENTITY, replace(passed, routing=routed("d1")), passed, ["KEY-SELECT"])
    with pytest.raises(RoutingMismatchError, match="KEY-SELECT"):
        check_not_passed_over(IDENTITY, replace(passed, routing=routed("d1")), behind, ["KEY-SELECT"])


def adopted(version: int, at: int, batch_id: int = 7, batch: str = "b7") -> CommitMarker:
    return replace(marker(version, batch_id, batch), adopted=at)


def test_a_query_that_has_taken_over_goes_on_at_the_adopted_version() -> None:
    assert decide(IDENTITY, 8, "b8", None, adopted(5, at=5)) is Decision.RUN
    assert decide(IDENTITY, 7, "b7", None, adopted(5, at=5)) is Decision.SKIP, "the adopted state contains this step"
    assert decide(IDENTITY, 7, "b7", None, adopted(6, at=5)) is Decision.SKIP
    assert decide(IDENTITY, 8, "b8", adopted(6, at=5), adopted(6, at=5)) is Decision.RUN


@pytest.mark.parametrize(
    ("copy", "found", "says", "remedy"),
    [
        (marker(3, 6, "b6"), marker(4, 7, "other"), "other input ranges", "streams adopt MODULE:TOPOLOGY -a app"),
        (marker(3), marker(5), "rolled back", "streams adopt MODULE:TOPOLOGY -a app"),
        (None, marker(2), "rolled back", "streams adopt MODULE:TOPOLOGY -a app"),
        (None, adopted(7, at=5), "rolled back", "streams adopt MODULE:TOPOLOGY -a app"),
        (None, adopted(6, at=5, batch="other"), "other input ranges", "streams adopt MODULE:TOPOLOGY -a app"),
        (marker(3), None, "deleted, truncated or recreated", "Restore the commits topic from a backup"),
        (marker(3), marker(2), "deleted, truncated or recreated", "Restore the commits topic from a backup"),
        (marker(3), replace(marker(3), stream_time=1), "differs", "streams adopt MODULE:TOPOLOGY -a app"),
        (
            None,
            replace(marker(1), query_id="query-0"),
            "checkpoint was deleted",
            "streams adopt MODULE:TOPOLOGY -a app",
        ),
        (
            None,
            replace(adopted(5, at=5), query_id="query-0"),
            "checkpoint was deleted",
            "streams adopt MODULE:TOPOLOGY -a app",
        ),
        (marker(3), replace(marker(3), tasks=8), "by 8 tasks", "Set tasks=8"),
        (marker(3), replace(marker(3), topology_hash="hash-0"), "another topology", "Run the old topology"),
    ],
)
def test_everything_else_is_refused(
    copy: CommitMarker | None, found: CommitMarker | None, says: str, remedy: str
) -> None:
    with pytest.raises(CheckpointMismatchError, match=says) as caught:
        decide(IDENTITY, 7, "b7", copy, found)
    assert "task 1 of 4 of app/orders" in str(caught.value)
    assert remedy in str(caught.value)
    assert "streams reset" not in str(caught.value) or remedy.startswith("Restore"), "the state can be kept"


def test_a_skipped_step_was_given_the_same_rows() -> None:
    committed, names = replace(marker(4), routing=routed("r1")), ["KSTREAM-KEY-SELECT-0001"]
    check_routing(IDENTITY, committed, routed("r1"), names)
    check_routing(IDENTITY, marker(4), {}, [])
    check_routing(IDENTITY, marker(4), routed(NO_KEYS), [])
    check_routing(IDENTITY, replace(marker(4), format=2), routed("r2"), [])
    for routing in (routed("r2"), routed(NO_KEYS), {}, {**routed("r1"), "other": {"0": (1, "r3")}}):
        with pytest.raises(
            RoutingMismatchError, match=r"task 1 of 4 .*: batch 7 .* step 4, .*'KSTREAM-KEY-SELECT-0001'"
        ) as caught:
            check_routing(IDENTITY, committed, routing, names)
        assert "repartition()" in str(caught.value)


def test_records_that_compaction_has_cleaned_are_no_fault_of_a_function() -> None:
    committed = replace(marker(4), routing=routed("r1"))
    check_routing(IDENTITY, committed, routed("r2", records=9), ["KSTREAM-KEY-SELECT-0001"])
    check_routing(IDENTITY, committed, routed(NO_KEYS, records=9), ["KSTREAM-KEY-SELECT-0001"])


def test_marker_bytes_round_trip() -> None:
    one = marker(3)
    assert CommitMarker.from_bytes(one.to_bytes()) == one
    assert CommitMarker.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()


def test_a_marker_of_an_older_or_newer_program_is_read() -> None:
    fields = orjson.loads(marker(3).to_bytes())
    newer = orjson.dumps({**fields, "some_day": {"a": 1}})
    assert CommitMarker.from_bytes(newer) == marker(3), "what was added within a format is left out"
    older = {name: value for name, value in fields.items() if name not in ("routing", "adopted")}
    assert CommitMarker.from_bytes(orjson.dumps({**older, "format": 2})) == replace(marker(3), format=2)


@pytest.mark.parametrize("number", [1, 7, "3"])
def test_a_marker_of_another_format_is_refused_whatever_its_fields(number: object) -> None:
    with pytest.raises(MarkerFormatError, match=f"format {number}, this version knows 2 to 6"):
        CommitMarker.from_bytes(orjson.dumps({**orjson.loads(marker(3).to_bytes()), "format": number, "based_on": 2}))


@pytest.mark.parametrize(
    "data", [b"", b"not json", b"[]", b"{}", b'{"format": 99}', b'{"format": 3}', b'{"format": 3, "ranges": {}}']
)
def test_what_is_no_marker_is_refused(data: bytes) -> None:
    with pytest.raises(MarkerFormatError):
        CommitMarker.from_bytes(data)
