"""Rows of another program in the changelogs of internal stores: refused when they are restored, by topic, partition and offset."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from state.changelog import changelog_topic
from state.columns import numbers_at, sliced
from state.errors import ForeignRowError
from state.headers import encode_headers
from state.restore.plan import RestoreTarget
from state.restore.restorer import Restorer
from state.stores.changelog_records import ChangelogBatch
from state.stores.row_formats import misfit
from state.stores.spec import RowFormat, StoreKind, StoreSpec
from state.stores.task_store import TaskStore
from state.tables.table import MemoryTable
from tests.restore.logs import APPLICATION, MemoryLogs

WAITING = struct.pack(">qB", 5, 1) + b"k" + struct.pack(">q", 0), b"\x01\0\0\0\0value"
SUPPRESSED = struct.pack(">q", 5) + b"k", struct.pack(">qiiii", 5, -1, -1, 3, -1) + b"new"
SUBSCRIPTION = b"\0\0\0\x01fpk", b"\0\x02" + bytes(16) + b"pk"
GOOD = {RowFormat.WAITING: WAITING, RowFormat.SUPPRESSED: SUPPRESSED, RowFormat.SUBSCRIPTION: SUBSCRIPTION}


def batch_of(form: RowFormat, key: bytes, value: bytes | None, headers: bytes | None = None) -> ChangelogBatch:
    """A good record and this one."""
    good_key, good_value = GOOD[form]
    return ChangelogBatch(
        pa.array([good_key, key], pa.binary()),
        pa.array([good_value, value], pa.binary()),
        np.array([1, 2]),
        None if headers is None else pa.array([None, headers], pa.binary()),
    )


def restored(form: RowFormat, key: bytes, value: bytes | None) -> dict[bytes, bytes]:
    """What the store has after a restore of a good row and this one."""
    spec = StoreSpec("s", StoreKind.KEY_VALUE, rows=form)
    logs = MemoryLogs()
    end = logs.append(changelog_topic(APPLICATION, "s"), batch_of(form, key, value))
    target = RestoreTarget("query", 1, {"s": end}, written_ms=1000, changelog_ids={"s": "id"})
    with TaskStore(MemoryTable(), [spec]) as store:
        Restorer(logs, APPLICATION, 0).restore_to(store, target, now_ms=1000)
        return dict(store.rows("s"))


@pytest.mark.parametrize("form", list(GOOD))
def test_rows_of_the_format_are_restored(form: RowFormat) -> None:
    key, value = GOOD[form]
    assert restored(form, key + b"x", None) == {key: value}


@pytest.mark.parametrize(
    ("form", "key", "value", "why"),
    [
        (RowFormat.WAITING, struct.pack(">qB", 5, 1) + b"k", b"\x01\0\0\0\x01\0\0\0\x02\x01v", "less than 17 bytes"),
        (RowFormat.WAITING, WAITING[0], b"\x01\0\0", "less than 5 bytes"),
        (RowFormat.WAITING, WAITING[0], b"\0\0\0\0\0v", "different sides"),
        (RowFormat.WAITING, WAITING[0], b"\x01\0\0\0\x09v", "headers are longer than the row"),
        (RowFormat.WAITING, WAITING[0], b"\x01\xff\0\0\x09v", "headers are longer than the row"),
        (RowFormat.SUPPRESSED, b"k", SUPPRESSED[1], "fewer than 8 bytes"),
        (RowFormat.SUPPRESSED, SUPPRESSED[0], SUPPRESSED[1][:20], "less than 24 bytes"),
        (RowFormat.SUPPRESSED, SUPPRESSED[0], SUPPRESSED[1][:-1], "not those of its parts"),
        (
            RowFormat.SUPPRESSED,
            SUPPRESSED[0],
            struct.pack(">qiiii", 5, -2, -1, 3, -1) + b"new",
            "not those of its parts",
        ),
        (RowFormat.SUBSCRIPTION, b"\0\0", SUBSCRIPTION[1], "less than 4 bytes"),
        (RowFormat.SUBSCRIPTION, b"\0\0\0\x09fpk", SUBSCRIPTION[1], "foreign key is longer"),
        (RowFormat.SUBSCRIPTION, SUBSCRIPTION[0], b"\x02\x02" + bytes(30), "version 2 of subscriptions"),
        (RowFormat.SUBSCRIPTION, SUBSCRIPTION[0], b"\x01\x02" + bytes(17), "cut off"),
    ],
)
def test_other_rows_are_refused(form: RowFormat, key: bytes, value: bytes, why: str) -> None:
    with pytest.raises(ForeignRowError, match=why) as raised:
        restored(form, key, value)
    topic = changelog_topic(APPLICATION, "s")
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == (topic, 0, 1)
    assert f"offset 1 of {topic}-0" in str(raised.value)
    assert "streams reset" in str(raised.value)


def test_the_header_decides_the_format_of_suppressed_updates() -> None:
    batch = batch_of(RowFormat.SUPPRESSED, *SUPPRESSED, headers=encode_headers([("v", b"\x03")]))
    assert misfit(RowFormat.SUPPRESSED, batch) == (1, "the lengths inside its value are not those of its parts")


@pytest.mark.parametrize("rows", [1, 1000])
def test_no_kernel_takes_a_cell_apart_that_is_too_short(rows: int) -> None:
    cells = pa.array([b"0123456789" * 3] * rows + [b"0123456789"], pa.binary())
    with pytest.raises(ValueError, match="a cell of 10 bytes where each needs 17"):
        sliced(cells, 9, 8)
    with pytest.raises(ValueError, match="a cell of 10 bytes where each needs 12"):
        numbers_at(cells, 4)
