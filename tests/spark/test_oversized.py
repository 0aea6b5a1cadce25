"""A micro-batch that was logged under larger limits than there are now: planned anew, as long as no task has committed it."""

from __future__ import annotations

from typing import Any

import pytest

from state.changelog import commits_topic
from state.commit.marker import CommitMarker
from streams import ApplicationFailedError
from tests.spark.harness import Harness, Sent, last_per_key
from tests.spark.live import count_topology

KEYS = [b"k%d" % number for number in range(8)]
RECORDS = 120


def sizes(harness: Harness, source: str) -> dict[int, int]:
    """Micro-batch -> the number of records that its largest task was called for."""
    found: dict[int, int] = {}
    for record in harness.read(commits_topic(harness.application_id, source)):
        marker = CommitMarker.from_bytes(record.value or b"")
        size = sum(end - start for of in marker.ranges.values() for start, end in of.values())
        found[marker.batch_id] = max(size, found.get(marker.batch_id, 0))
    return found


@pytest.mark.parametrize(
    ("first", "dies", "limits", "said"),
    [
        (True, "marker_sent", {"max_records_per_trigger": 40}, "No task has committed it: it is planned anew"),
        (False, "marker_sent", {"max_bytes_per_trigger": 40 * 102}, "No task has committed it: it is planned anew"),
        (
            False,
            "marker_sent@1",
            {"max_records_per_trigger": 40},
            "cannot be planned anew, for task 0 has committed it",
        ),
    ],
    ids=["first-by-records", "later-by-bytes", "half-committed"],
)
def test_a_logged_micro_batch_that_is_too_large(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, first: bool, dies: str, limits: dict[str, Any], said: str
) -> None:
    source, target = harness.topic("source", 2), harness.topic("target", 1)
    topology = count_topology(source, target)
    if not first:
        harness.send(source, [Sent(key, b"1" * 100, 1_000) for key in KEYS])
        harness.run(topology)
    harness.send(source, [Sent(KEYS[n % len(KEYS)], b"1" * 100, 2_000 + n) for n in range(RECORDS)])
    monkeypatch.setenv("STREAMS_FAULT", dies)
    with pytest.raises(ApplicationFailedError):
        harness.run(topology)
    monkeypatch.delenv("STREAMS_FAULT")
    console = harness.run(topology, **limits).console.file
    told = " ".join(console.getvalue().split())  # type: ignore[attr-defined]
    assert said in told
    assert f"with {RECORDS} records, of which the present limits allow " in told
    batch = 0 if first else 1
    planned = sizes(harness, source)
    assert (planned[batch] > 40) is (dies == "marker_sent@1"), planned
    assert all(size <= 40 for number, size in planned.items() if number > batch), planned
    expected = RECORDS // len(KEYS) + (0 if first else 1)
    found = last_per_key(harness.read(target))
    assert found == {key: expected.to_bytes(8, "big") for key in KEYS}
