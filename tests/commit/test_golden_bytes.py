"""What lies in Kafka for years, byte by byte: a marker of each format, and the changelog of each kind of store.

A test that fails here says that an application which was started by an older version would not find what it has written, or would
read it in another way. Then the format's number must rise, the old bytes must stay readable, and a new row comes beside the old.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from state.commit.digest import StepDigest
from state.commit.marker import CommitMarker, format_of
from state.errors import MarkerFormatError
from state.stores.codec import timestamped
from state.stores.spec import StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable

FORMAT_2 = (
    b'{"batch":"b7","batch_id":7,"changelog_ends":{"counts":5},"changelog_hash":"8899aabbccddeeff",'
    b'"counts":{"changelog":5,"in":10,"out":1},"expired_before":{"minutes":60000},"format":2,"now_ms":1700000000000,'
    b'"operator_state":{"nodes":{"counts":{"stream_time":99}}},"query_id":"3f0c",'
    b'"ranges":{"orders":{"1":[10,20]},"people":{"0":[0,1]}},"stream_time":99,"task":1,"tasks":4,'
    b'"topic_ids":{"orders":"id-1","people":"id-2"},"topology_hash":"0011223344556677","version":3}'
)
FORMAT_3 = (
    b'{"adopted":2,"application_id":"app","batch":"b7","batch_id":7,"changelog_begins":{"counts":0},'
    b'"changelog_ends":{"counts":5},"changelog_hash":"8899aabbccddeeff","changelog_ids":{"counts":"id-3"},'
    b'"counts":{"changelog":5,"in":10,"out":1},"expired_before":{"minutes":60000},'
    b'"format":3,"now_ms":1700000000000,"operator_state":{"nodes":{"counts":{"stream_time":99}}},"passed_over":0,"query_id":"3f0c",'
    b'"ranges":{"orders":{"1":[10,20]},"people":{"0":[0,1]}},"routing":{"orders":{"1":[10,"5a"]}},"stream_time":99,"task":1,"tasks":4,'
    b'"topic_ids":{"orders":"id-1","people":"id-2"},"topology_hash":"0011223344556677","version":3}'
)
MARKER = CommitMarker(
    query_id="3f0c",
    task=1,
    tasks=4,
    topology_hash="0011223344556677",
    version=3,
    batch_id=7,
    batch="b7",
    ranges={"orders": {"1": (10, 20)}, "people": {"0": (0, 1)}},
    topic_ids={"orders": "id-1", "people": "id-2"},
    stream_time=99,
    operator_state={"nodes": {"counts": {"stream_time": 99}}},
    changelog_ends={"counts": 5},
    expired_before={"minutes": 60_000},
    counts={"in": 10, "out": 1, "changelog": 5},
    changelog_hash="8899aabbccddeeff",
    now_ms=1_700_000_000_000,
    changelog_begins={"counts": 0},
    changelog_ids={"counts": "id-3"},
    routing={"orders": {"1": (10, "5a")}},
    adopted=2,
    application_id="app",
)


def test_the_marker_as_it_is_written() -> None:
    assert MARKER.to_bytes() == FORMAT_3
    assert CommitMarker.from_bytes(FORMAT_3) == MARKER


def test_the_marker_of_a_query_that_continues_another_one() -> None:
    """A version that does not know the field takes local state for that of another query, and restores it."""
    continued = FORMAT_3.replace(b'"counts":{"changelog"', b'"continues":"1a2b","counts":{"changelog"')
    marker = replace(MARKER, continues="1a2b")
    assert marker.to_bytes() == continued
    assert CommitMarker.from_bytes(continued) == marker
    assert (marker.state_of, MARKER.state_of) == ("1a2b", "3f0c")


def test_the_marker_says_how_far_earlier_steps_have_read_what_this_one_did_not() -> None:
    after = MARKER.reached_before({"orders": {"0": (0, 9)}}, {"orders": "id-1"})
    assert after == {"orders": ("id-1", {"1": 20}), "people": ("id-2", {"0": 1})}
    marker = replace(MARKER, ranges={"orders": {"0": (0, 9)}}, topic_ids={"orders": "id-1"}, earlier=after)
    assert CommitMarker.from_bytes(marker.to_bytes()) == marker
    assert b'"earlier":{"orders":["id-1",{"1":20}],"people":["id-2",{"0":1}]}' in marker.to_bytes()
    assert marker.reached() == {"orders": ("id-1", {"0": 9, "1": 20}), "people": ("id-2", {"0": 1})}
    # However long a topic has nothing for the task, it is known which one it was.
    again = marker.reached_before({"people": {"0": (0, 2)}}, {"people": "another"})
    assert again == {"orders": ("id-1", {"0": 9, "1": 20})}


def test_the_marker_of_older_versions_is_read() -> None:
    old = replace(MARKER, changelog_begins={}, changelog_ids={}, routing={}, adopted=0, application_id="", format=2)
    assert CommitMarker.from_bytes(FORMAT_2) == old
    # Spark's copy is compared with what is found, and both are of the version that wrote them.
    assert CommitMarker.from_bytes(old.to_bytes()) == old


@pytest.mark.parametrize(("live", "number"), [(False, b"5"), (True, b"6")])
def test_a_marker_of_another_placement_has_a_format_of_its_own(live: bool, number: bytes) -> None:
    placed = replace(MARKER, placement="crc32", format=format_of("crc32", live))
    written = FORMAT_3.replace(b'"format":3', b'"format":' + number).replace(
        b'"query_id"', b'"placement":"crc32","query_id"'
    )
    assert placed.to_bytes() == written
    assert CommitMarker.from_bytes(written) == placed
    assert placed.live is live


def test_a_marker_of_a_later_version() -> None:
    more = FORMAT_3.replace(b'{"adopted"', b'{"a_new_field":[1],"adopted"')
    assert CommitMarker.from_bytes(more) == MARKER
    with pytest.raises(MarkerFormatError, match="format 7"):
        CommitMarker.from_bytes(FORMAT_3.replace(b'"format":3', b'"format":7'))


KEY, START, END = b"k1", 120_000, 180_000
SPECS = [
    StoreSpec("plain", StoreKind.KEY_VALUE),
    StoreSpec("table", StoreKind.TIMESTAMPED_KEY_VALUE),
    StoreSpec("join", StoreKind.WINDOW, retention_ms=600_000, retain_duplicates=True),
    StoreSpec("windows", StoreKind.TIMESTAMPED_WINDOW, retention_ms=600_000),
    StoreSpec("sessions", StoreKind.SESSION, retention_ms=600_000),
    StoreSpec("versions", StoreKind.VERSIONED, retention_ms=600_000),
]
CHANGELOGS = {
    "plain": [("6b31", "7631", 5), ("6b32", None, 6)],
    "table": [("6b31", "7631", 5), ("6b32", None, 6)],
    "join": [("6b31000000000001d4c000000000", "7631", 120001), ("6b31000000000001d4c000000001", "7632", 120002)],
    "windows": [("6b31000000000001d4c000000000", "7631", 120001), ("6b32000000000001d4c000000000", None, 120002)],
    "sessions": [
        ("6b31000000000002bf20000000000001d4c0", "7631", 180000),
        ("6b32000000000002bf20000000000001d4c0", None, 180000),
    ],
    "versions": [("6b31", "7631", 5), ("6b31", None, 7), ("6b32", "", 6)],
}
DIGEST = "daa307bfa86977f7"


def written() -> TaskStore:
    store = TaskStore(MemoryTable(), SPECS)
    store.store("plain").put(KEY, b"v1", 5)
    store.store("plain").put(b"k2", None, 6)
    store.store("table").put(KEY, timestamped(b"v1", 5), 5)
    store.store("table").put(b"k2", None, 6)
    store.store("join").put(KEY, START, b"v1", START + 1)
    store.store("join").put(KEY, START, b"v2", START + 2)
    store.store("windows").put(KEY, START, timestamped(b"v1", START + 1), START + 1)
    store.store("windows").put(b"k2", START, None, START + 2)
    store.store("sessions").put(KEY, START, END, b"v1", END)
    store.store("sessions").put(b"k2", START, END, None, END)
    store.store("versions").put(KEY, b"v1", 5)
    store.store("versions").put(KEY, None, 7)
    store.store("versions").put(b"k2", b"", 6)
    return store


def in_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def test_changelogs_of_each_kind_of_store() -> None:
    digest, found = StepDigest(), {}
    for name, batch in written().changelog():
        digest.add(name, batch)
        rows = zip(batch.keys.to_pylist(), batch.values.to_pylist(), batch.timestamps.tolist(), strict=True)
        found[name] = [(in_hex(key), in_hex(value), time) for key, value, time in rows]
    assert found == CHANGELOGS
    assert {spec.kind for spec in SPECS} == set(StoreKind)
    assert digest.hexdigest() == DIGEST, "a restore compares it with that of the marker"
