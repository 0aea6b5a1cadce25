"""The decision table of a step: Spark's copy against the last marker in Kafka."""

from dataclasses import replace

import orjson
import pytest

from state.commit.decide import Decision, TaskIdentity, decide
from state.commit.marker import CommitMarker
from state.errors import CheckpointMismatchError, MarkerFormatError

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


def test_first_step_runs() -> None:
    assert decide(IDENTITY, 0, "b0", None, None) is Decision.RUN


def test_next_step_runs() -> None:
    assert decide(IDENTITY, 8, "b8", marker(3), marker(3)) is Decision.RUN


def test_a_batch_that_kafka_has_already_is_skipped() -> None:
    assert decide(IDENTITY, 7, "b7", marker(3, 6, "b6"), marker(4)) is Decision.SKIP
    assert decide(IDENTITY, 7, "b7", None, marker(1)) is Decision.SKIP


@pytest.mark.parametrize(
    ("copy", "found", "says"),
    [
        (marker(3, 6, "b6"), marker(4, 7, "other"), "other input ranges"),
        (marker(3), marker(5), "rolled back"),
        (None, marker(2), "rolled back"),
        (marker(3), None, "deleted, truncated or recreated"),
        (marker(3), marker(2), "deleted, truncated or recreated"),
        (marker(3), replace(marker(3), stream_time=1), "differs"),
        (None, replace(marker(1), query_id="query-0"), "checkpoint was deleted"),
        (marker(3), replace(marker(3), tasks=8), "Set tasks=8"),
        (marker(3), replace(marker(3), topology_hash="hash-0"), "another topology"),
    ],
)
def test_everything_else_is_refused(copy: CommitMarker | None, found: CommitMarker | None, says: str) -> None:
    with pytest.raises(CheckpointMismatchError, match=says) as caught:
        decide(IDENTITY, 7, "b7", copy, found)
    assert "task 1 of 4 of app/orders" in str(caught.value)
    assert "streams reset app" in str(caught.value)


def test_marker_bytes_round_trip() -> None:
    one = marker(3)
    assert CommitMarker.from_bytes(one.to_bytes()) == one
    assert CommitMarker.from_bytes(one.to_bytes()).to_bytes() == one.to_bytes()


def test_a_marker_of_another_format_is_refused_whatever_its_fields() -> None:
    with pytest.raises(MarkerFormatError, match="format 1, this version knows 2"):
        CommitMarker.from_bytes(orjson.dumps({**orjson.loads(marker(3).to_bytes()), "format": 1, "based_on": 2}))


@pytest.mark.parametrize("data", [b"", b"not json", b"[]", b"{}", b'{"format": 99}'])
def test_what_is_no_marker_is_refused(data: bytes) -> None:
    with pytest.raises(MarkerFormatError):
        CommitMarker.from_bytes(data)
